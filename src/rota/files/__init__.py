"""What users write, as our types: cluster files, failure files, and the quantities in them.

Importing this room is cheap: the libraries that read YAML and check its shape are loaded with the first file.
"""

from rota.files.cluster import read_cluster
from rota.files.faults import Fault, read_faults

__all__ = ["Fault", "read_cluster", "read_faults"]
