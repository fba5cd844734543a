"""The health of the manager's nodes: what failed where, checks, and states that follow from both."""
