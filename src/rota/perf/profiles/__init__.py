"""Measured training speeds: the built-in catalogue, profile files, and estimates of what is missing."""
