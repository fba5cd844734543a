"""Elastic policies."""
