"""Alert rules as settings: their shape, their conditions, and what conditions may name."""
