"""GPUs of the manager's machine: routes and metrics."""
