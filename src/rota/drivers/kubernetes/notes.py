"""The annotations and labels by which Rota and pods tell each other things."""

from __future__ import annotations

PREFIX = "rota.dev/"
DEVICES = PREFIX + "devices"
"""Tells a pod its devices: `0,1`."""
PLACEMENT = PREFIX + "placement"
"""Holds the placement of the whole gang, so that a restart can go on with it."""
SEAT = PREFIX + "seat"
"""Says which seat of that placement is the pod's."""
JOB_ID = PREFIX + "id"
"""Names the job."""
SIZE = PREFIX + "size"
"""Says how many tasks the job had when the pod was bound."""
LATE = PREFIX + "late"
"""Marks a pod that came when all seats of its gang were taken: it is a job of its own."""
GPU = PREFIX + "gpu"
"""With it a pod names device types that will do, best first."""
