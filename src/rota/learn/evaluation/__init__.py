"""Comparison of placement methods on common workloads."""
