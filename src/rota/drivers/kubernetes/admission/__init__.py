"""Admission: mistakes are refused, and defaults set, when an object is applied."""
