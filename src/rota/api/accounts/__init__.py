"""Accounts over HTTP: usage, prices, budgets and messages."""
