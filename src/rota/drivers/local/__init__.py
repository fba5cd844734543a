"""This machine: its devices, and jobs as real processes under supervisors that outlive the server."""
