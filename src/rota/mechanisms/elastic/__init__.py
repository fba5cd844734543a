"""Elastic policies: a rule that chooses the number of tasks per job, and the resizing of jobs."""
