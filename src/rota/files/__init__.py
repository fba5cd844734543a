"""Reads files that users write into Rota's types: clusters, jobs, faults, scenarios, settings.

Importing this room is cheap: the libraries that read YAML and check its shape are loaded with the first file.
"""

from rota.files.cluster import read_cluster
from rota.files.faults import Fault, read_faults

__all__ = ["Fault", "read_cluster", "read_faults"]
