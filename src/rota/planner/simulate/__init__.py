"""The evaluator: what a plan comes to on given devices, by one set of rules for every planner."""
