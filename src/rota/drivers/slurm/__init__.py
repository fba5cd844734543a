"""Rota on Slurm: read what Slurm knows, and have it carry decisions out."""
