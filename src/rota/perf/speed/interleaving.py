"""The stages of an iteration on storage, CPU, GPU and network, and what interleaving those of several jobs gives.

The model of Zhao et al. (SIGCOMM 2022), with iterations of one length: shorter ones are counted several at a time.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import permutations

from rota.core.model.job import Job

Stages = tuple[float, ...]
"""The parts of an iteration spent on storage, CPU, GPU and network, one after the other."""

STAGES: dict[str, Stages] = {
    "ResNet-18": (0.45, 0.20, 0.25, 0.10),
    "ResNet-50": (0.20, 0.10, 0.60, 0.10),
    "Transformer": (0.05, 0.05, 0.80, 0.10),
    "LM": (0.02, 0.03, 0.85, 0.10),
    "Recommendation": (0.10, 0.50, 0.30, 0.10),
    "A3C": (0.00, 0.85, 0.10, 0.05),
    "CycleGAN": (0.10, 0.05, 0.80, 0.05),
}
"""By family, for jobs that do not say: assumed from what such models are known to wait for, not measured."""
UNKNOWN: Stages = (0.0, 0.0, 1.0, 0.0)
LABEL = "stages"
"""The label by which a job says its stages: four numbers with `/` between them."""


@cache
def stages_of(job: Job) -> Stages:
    """A job's stages: as its label says, as its family's, or all GPU."""
    said = next((value for name, value in job.labels if name == LABEL), None)
    if said is not None:
        return read_stages(said) or UNKNOWN
    family = (job.model or "").partition(" (")[0]
    return STAGES.get(family, UNKNOWN)


def read_stages(text: str) -> Stages | None:
    """Stages as parts of 1 from the label's text; None where it is not four numbers of which one is above 0."""
    try:
        parts = tuple(float(part) for part in text.split("/"))
    except ValueError:
        return None
    total = sum(parts)
    if len(parts) != len(UNKNOWN) or not 0 < total < math.inf or min(parts) < 0:
        return None
    return tuple(part / total for part in parts)


def throughput(group: tuple[Stages, ...]) -> float:
    """Iterations of a group in the time that a job alone needs for one."""
    return len(group) * rounds_each(group)


@cache
def rounds_each(group: tuple[Stages, ...]) -> float:
    """Iterations of each job of a group in the time that it needs alone for one, at the best order of its members.

    In each of four slots every member is on another resource; a slot lasts as long as the longest stage in it. More
    than four take turns.
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
