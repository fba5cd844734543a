"""Learning from history: what a job will need and how long its parts take, and how far that can be trusted."""
