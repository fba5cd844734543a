"""Placement of batches of jobs for low network cost."""
