"""The dashboard: pages around the same service and the same news as the API."""
