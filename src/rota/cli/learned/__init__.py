"""Commands that learn from past runs: estimate, learn, profile."""
