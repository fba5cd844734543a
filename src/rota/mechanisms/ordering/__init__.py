"""Ordering policies: a sort key per job, one list scheduler for all of them."""
