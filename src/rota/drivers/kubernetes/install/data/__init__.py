"""Data of an installation: the dashboard and the alert rules."""
