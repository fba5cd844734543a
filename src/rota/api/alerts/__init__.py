"""Alerts over HTTP, and the figures that their rules read."""
