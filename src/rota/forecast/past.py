"""What ended jobs teach: what each asked for, what it declared, and how long it really ran."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rota.core.model.job import Job

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class RanOn:
    """Where a job ran: a node, the number of its tasks, and whether it shared devices that it asked for whole."""

    node: str
    tasks: int
    shared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """A submission, and the work after which it ended; None while it has not."""

    job: Job
    submit_s: float
    work_s: float | None = None
    """Its run time at full speed, without what was lost."""
    done_s: float = 0.0
    """What it has done, if it has not ended."""
    command: str = ""
    restarts: int = 0
    """How often it was stopped and started again."""
    ran_on: RanOn | None = None
    """Where it ran from start to end; None if that is not known, or it was in several places."""


def kind_of(name: str) -> str:
    """Return a job's name without the digits that count repetitions."""
    return _NUMBER.sub("#", name)


def ended(past: Sequence[PastRun]) -> list[PastRun]:
    """Return those that ran to an end."""
    return [each for each in past if each.work_s is not None and each.work_s > 0]
