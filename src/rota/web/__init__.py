"""The dashboard: web pages on top of the service and change notifications that the API uses."""
