"""Batch scripts of Slurm as job files."""
