"""Stages of an iteration on storage, CPU, GPU and network, and the throughput of interleaving several jobs.

The model of Zhao et al. (SIGCOMM 2022), with iterations of equal length: shorter ones are counted several at a time.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import permutations

from rota.core.model.job import Job

Stages = tuple[float, ...]
"""Fractions of an iteration spent on storage, CPU, GPU and network, in sequence."""

STAGES: dict[str, Stages] = {
    "ResNet-18": (0.45, 0.20, 0.25, 0.10),
    "ResNet-50": (0.20, 0.10, 0.60, 0.10),
    "Transformer": (0.05, 0.05, 0.80, 0.10),
    "LM": (0.02, 0.03, 0.85, 0.10),
    "Recommendation": (0.10, 0.50, 0.30, 0.10),
    "A3C": (0.00, 0.85, 0.10, 0.05),
    "CycleGAN": (0.10, 0.05, 0.80, 0.05),
}
"""Defaults by model family: assumed from the known bottlenecks of such models, not measured."""
UNKNOWN: Stages = (0.0, 0.0, 1.0, 0.0)
LABEL = "stages"
"""The label with which a job declares its stages: four numbers separated by `/`."""


@cache
def stages_of(job: Job) -> Stages:
    """Return a job's stages: from its label, its family, or all GPU."""
    declared = next((value for name, value in job.labels if name == LABEL), None)
    if declared is not None:
        return read_stages(declared) or UNKNOWN
    family = (job.model or "").partition(" (")[0]
    return STAGES.get(family, UNKNOWN)


def read_stages(text: str) -> Stages | None:
    """Return stages that sum to 1 from the label's text; None unless it is four numbers with at least one above 0."""
    try:
        parts = tuple(float(part) for part in text.split("/"))
    except ValueError:
        return None
    total = sum(parts)
    if len(parts) != len(UNKNOWN) or not 0 < total < math.inf or min(parts) < 0:
        return None
    return tuple(part / total for part in parts)


def throughput(group: tuple[Stages, ...]) -> float:
    """Return the iterations of a group in the time that one job alone needs for one."""
    return len(group) * rounds_each(group)


@cache
def rounds_each(group: tuple[Stages, ...]) -> float:
    """Return the iterations of each job of a group in the time it needs alone for one, at the best order.

    In each of four slots every job uses another resource; a slot lasts as long as its longest stage. Groups of more
    than four are time-sliced.
    """
    kinds = len(UNKNOWN)
    if len(group) > kinds:
        return rounds_each(group[:kinds]) * kinds / len(group)
    return 1.0 / min(_period(group, offsets) for offsets in permutations(range(kinds), len(group)))


def _period(group: tuple[Stages, ...], offsets: tuple[int, ...]) -> float:
    kinds = len(UNKNOWN)
    return sum(
        max(stages[(slot + offset) % kinds] for stages, offset in zip(group, offsets, strict=True))
        for slot in range(kinds)
    )
