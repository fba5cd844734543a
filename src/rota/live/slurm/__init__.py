"""The loop of a manager beside Slurm, and its records."""
