"""Exact max-load placement by dynamic programming over the ideals (downward closed sets) of the graph."""
