"""What passes between the loop and the driver: orders to run a job, and words that go with the driver's events."""

from __future__ import annotations

from dataclasses import dataclass

from rota.core.model.job import Job
from rota.core.model.placement import Placement
from rota.files.job import Launch


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOrder:
    """A job to start, with all that is needed for it."""

    job: Job
    launch: Launch
    placement: Placement
    attempt: int
    failures: int
    work_s: float
    resizes: bool = False
    """Whether it runs already and gets another number of tasks, or goes elsewhere."""
    moves: bool = False
    """Whether it goes elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitDetail:
    """What goes with an event: exit code, words for the user, what went wrong for programs."""

    exit_code: int | None = None
    message: str = ""
    failure: str | None = None
