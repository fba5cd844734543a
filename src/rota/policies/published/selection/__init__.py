"""Selection policies."""
