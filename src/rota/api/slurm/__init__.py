"""Rota on Slurm over HTTP."""
