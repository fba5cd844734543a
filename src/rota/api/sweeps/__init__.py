"""Sweeps over HTTP: the routes, and the part of the manager that runs them."""
