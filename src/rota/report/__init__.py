"""Journals and states made readable: metrics, tables, plots."""
