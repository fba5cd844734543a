"""Alerts: rules over metrics and events, their states, and the messages about them."""
