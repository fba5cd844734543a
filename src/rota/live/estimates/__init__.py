"""Resource estimates learned from jobs that have ended."""
