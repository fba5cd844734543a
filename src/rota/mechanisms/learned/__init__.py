"""Placement by a trained network or a heuristic, at fixed intervals."""
