"""Selection policies: a rule that selects the jobs to place when devices become free."""
