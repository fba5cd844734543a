"""The part of the time in which a job alone keeps its devices busy: as it says, or as follows from two copies of it.

Two copies of a model on one device, each at the part r of its speed alone, keep it busy all the time if r is below 1;
so one copy alone keeps it busy for 1 / 2r of the time. Two that do not disturb each other say only: half at most.
"""

from __future__ import annotations

import math

from rota.core.errors import RotaError
from rota.core.model.job import Job

UNKNOWN = 1.0
"""Of a job of which nothing is known: as if it left nothing to others."""
LABEL = "utilization"
"""The label by which a job can say it itself, as a part of 1."""


def of_pair(ratio: float) -> float:
    """How busy one copy keeps a device of which two have so much of their speed each."""
    return 1.0 if ratio <= 0.5 else max(1.0 / (2.0 * ratio), 0.5)


def check_part(name: str, value: float) -> None:
    """Refuse a parameter that is no part of 1."""
    if not 0 < value <= 1:
        raise RotaError(f"{name} is {value:g}; it must be a part of 1, such as 0.5")


def said_by(job: Job) -> float | None:
    """What a job's label says."""
    for name, value in job.labels:
        if name == LABEL:
            try:
                said = float(value)
            except ValueError:
                return None
            return min(max(said, 0.0), 1.0) if math.isfinite(said) else None
    return None
