"""Gavel's family (Narayanan et al., OSDI 2020): shares of time on device types, served in rounds."""
