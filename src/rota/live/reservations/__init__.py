"""Reservations: nodes that only jobs of one tenant, or of some users, may use in a time."""
