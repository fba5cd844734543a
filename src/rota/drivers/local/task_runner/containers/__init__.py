"""Tasks in containers, on the side of the supervisor."""
