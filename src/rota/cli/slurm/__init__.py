"""The commands of Rota on Slurm."""
