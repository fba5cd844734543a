"""Read-only views of a running manager for the API, the dashboard and the command line."""
