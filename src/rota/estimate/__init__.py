"""Estimates from history: resources and durations of jobs, with the measured error."""
