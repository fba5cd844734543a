"""Planners for a model that is cut between a device, an edge server and the cloud, or spread over edge devices."""
