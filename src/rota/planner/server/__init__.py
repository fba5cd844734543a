"""Planners for one server or one device: swapping, threads and co-running, overlap of operators."""
