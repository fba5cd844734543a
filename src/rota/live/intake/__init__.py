"""Requests of users: what is asked for, what is refused and why, and entries for the loop."""
