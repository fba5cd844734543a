"""Learned placement: workloads to learn from, an environment, training, and a controlled comparison."""
