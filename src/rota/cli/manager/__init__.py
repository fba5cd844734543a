"""Commands that run and administer a manager."""
