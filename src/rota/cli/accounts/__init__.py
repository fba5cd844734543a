"""Commands for accounts: usage, prices, budgets, fair-share standing and messages."""
