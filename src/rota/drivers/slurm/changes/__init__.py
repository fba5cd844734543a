"""What changes in Slurm from one look to the next."""
