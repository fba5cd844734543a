"""Sessions in pods: commands, terminals and ports of tasks, through the API server."""
