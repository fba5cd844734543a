"""The labels by which jobs and nodes of a replay name their partitions."""

from __future__ import annotations

from typing import Final

JOB_LABEL: Final = "slurm.partition"
"""The label of a job with the partition in which it ran, or several as `a,b`."""
NODE_LABEL: Final = "slurm.partition/"
"""How the labels of a node begin that name its partitions."""
YES: Final = "yes"
"""The value of such a label of a node."""
