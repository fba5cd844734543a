"""The command line: one file per command, wired together here and nowhere else."""
