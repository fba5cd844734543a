"""Journals and records on disk."""
