"""Requests of users: who asks, what is refused and why, and entries for the loop."""
