"""Sizes of jobs predicted from jobs that ended, each prediction used only as far as earlier ones came true.

A prediction is the geometric mean of a group's values: of sizes, for jobs alike (same user, name, model and devices),
or of the ratio of true to declared length, for the jobs of one user. A group is trusted once it has seen enough jobs
and most of its latest predictions were right within a factor of two.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Any, NamedTuple

from rota.core.model.job import Job

ENOUGH = 8
"""Jobs that a group must have seen before it is trusted."""
TRUSTED = 0.7
"""The least fraction of right predictions, over the latest jobs."""
MEMORY = 0.1
"""The weight of the latest job in a group's means."""
RIGHT = math.log(2.0)
"""A prediction is right within a factor of two."""
MOST_GROUPS = 4096
"""Groups that are remembered; the one that saw a job longest ago is dropped."""
_NUMBER = re.compile(r"\d+")


class GroupRecord(NamedTuple):
    """Jobs seen, the mean logarithm of their values, and the fraction of predictions that were right."""

    jobs: int
    mean: float
    right: float


class GroupPredictor:
    """Predicts a value by group, from the values seen."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupRecord] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def predict(self, group: str) -> float | None:
        """Return the expected value; None where the group is not to be trusted."""
        found = self._groups.get(group)
        if found is None or found.jobs < ENOUGH or found.right < TRUSTED:
            return None
        return math.exp(found.mean)

    def learn(self, group: str, value: float) -> None:
        """Record a value, and whether it had been predicted."""
        log = math.log(max(value, 1e-9))
        found = self._groups.pop(group, None)
        if found is None:
            found = GroupRecord(1, log, 0.0)
        else:
            weight = max(MEMORY, 1.0 / (found.jobs + 1))
            right = float(abs(log - found.mean) <= RIGHT)
            found = GroupRecord(
                found.jobs + 1, found.mean + weight * (log - found.mean), found.right + weight * (right - found.right)
            )
        self._groups[group] = found
        if len(self._groups) > MOST_GROUPS:
            del self._groups[next(iter(self._groups))]

    @property
    def memory(self) -> Any:
        """All groups, as JSON can hold them."""
        return [[name, *record] for name, record in self._groups.items()]

    def recall(self, memory: Any) -> None:
        """Restore what `memory` returned."""
        self._groups = {name: GroupRecord(*record) for name, *record in memory}


@lru_cache(MOST_GROUPS)
def _without_numbers(name: str) -> str:
    """Return a name with a # for each number in it."""
    return _NUMBER.sub("#", name)


def alike(job: Job) -> str:
    """Return the group of jobs like this one; digits in names, which count repetitions, are dropped."""
    name = _without_numbers(job.name) if job.name else ""
    return "\t".join((job.tenant, job.user, name, job.model or "", f"{job.gpu_milli}"))


def declarer(job: Job) -> str:
    """Return the group of jobs whose lengths the same user declares."""
    return f"{job.tenant}\t{job.user}"
