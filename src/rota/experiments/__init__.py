"""Grids of simulations with seeds, intervals and provenance."""
