"""The page about used device time: sums over time, budgets, and the fair-share standing."""
