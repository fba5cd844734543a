"""Planners that learn by trying placements in the simulator (the extra `learn`)."""
