"""Co-location policies."""
