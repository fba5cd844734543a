"""Policies with a learned placement."""
