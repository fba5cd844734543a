"""Utilisation of a job alone on its devices: from its label, or derived from two packed copies of it.

If two copies of a model on one device, each at the fraction r < 1 of its speed alone, keep it busy all the time, then
one copy alone keeps it busy for 1 / 2r of the time. Two copies without interference only bound it: at most one half.
"""

from __future__ import annotations

import math

from rota.core.errors import RotaError
from rota.core.model.job import Job

UNKNOWN = 1.0
"""Utilisation assumed for a job without a profile: no idle time."""
LABEL = "utilization"
"""The label with which a job declares its utilisation, from 0 to 1."""


def of_pair(ratio: float) -> float:
    """Return the utilisation of one copy, given the relative speed of each of two packed copies."""
    return 1.0 if ratio <= 0.5 else max(1.0 / (2.0 * ratio), 0.5)


def check_fraction(name: str, value: float) -> None:
    """Refuse a parameter that is not between 0 and 1."""
    if not 0 < value <= 1:
        raise RotaError(f"{name} is {value:g}; it must be from 0 to 1")


def said_by(job: Job) -> float | None:
    """Return the utilisation that a job's label declares."""
    for name, value in job.labels:
        if name == LABEL:
            try:
                declared = float(value)
            except ValueError:
                return None
            return min(max(declared, 0.0), 1.0) if math.isfinite(declared) else None
    return None
