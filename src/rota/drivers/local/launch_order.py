"""The order to run one attempt of a job on this machine."""

from __future__ import annotations

from dataclasses import dataclass

from rota.core.model.job import Job
from rota.core.model.placement import Placement
from rota.files.job import Launch


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOrder:
    """A job to start, with everything that is needed to do it."""

    job: Job
    launch: Launch
    placement: Placement
    attempt: int
    failures: int
    work_s: float
    resizes: bool = False
    """Whether the job already runs and gets another number of tasks or other devices."""
    moves: bool = False
    """Whether it gets other devices."""
    account: str | None = None
    """The Unix account that was settled when it was submitted; None: that of its user or tenant now."""
