"""Accounts: the device time of jobs, what it costs, budgets and their effect, and the fair-share standing."""
