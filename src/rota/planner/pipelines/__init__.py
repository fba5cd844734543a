"""Planners of pipelines: a chain of layers cut into stages, each on one or more devices."""
