"""The published policies, one file per system, grouped by family."""
