"""What Slurm prints, as types: the only place where its forms are known."""
