"""Workload files and generators: what arrives when, and how it will really go."""
