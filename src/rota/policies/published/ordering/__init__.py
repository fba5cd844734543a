"""Ordering policies."""
