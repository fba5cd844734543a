"""Drivers: carry decisions out and report events."""
