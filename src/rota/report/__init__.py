"""Metrics, tables and figures of histories and journals."""
