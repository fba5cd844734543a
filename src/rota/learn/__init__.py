"""Placement that is learned: workloads to learn from, an environment, training, and a fair comparison."""
