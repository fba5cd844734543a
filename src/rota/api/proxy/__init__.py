"""Web servers of running jobs in a browser: each at an origin of its own, behind the manager's login."""
