"""Machines that fail: how often, of which cause, what it costs, and how often to save against it."""
