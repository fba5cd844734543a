"""What changes in Slurm about jobs that run: they are suspended and resumed, get other time limits, leave nodes.

The engine takes the speed of a running job. For all other changes the state has to be rebuilt from Slurm.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from rota.core.messages.events import SpeedChanged
from rota.core.state.job_record import LiveJob
from rota.drivers.slurm.printed.records import SlurmJob

log = logging.getLogger("rota.slurm")
_SETTLED = frozenset({"RUNNING", "SUSPENDED", "STOPPED"})
"""States in which Slurm says what a job holds; as it ends, it says less and less."""


class RunningJobs:
    """Compares jobs that run with what they were when this state of theirs began."""

    def __init__(self, outdated: asyncio.Event) -> None:
        """`outdated` is set when the state has to be rebuilt."""
        self._outdated = outdated
        self._known: dict[str, SlurmJob] = {}
        self._suspended: set[str] = set()

    def note(self, job: SlurmJob) -> None:
        """Note how a job runs that is taken up as it is; others are noted when they are first looked at."""
        if job.state in _SETTLED:
            self._known[job.id] = job

    def rate(self, name: str) -> float:
        """How much work a job does in a second."""
        return 0.0 if name in self._suspended else 1.0

    def follow(self, job: SlurmJob, live: LiveJob, now_s: float) -> list[SpeedChanged]:
        """Return the change of a running job's speed; set `outdated` where it is another job now."""
        if job.state not in _SETTLED:
            return []
        before = self._known.setdefault(job.id, job)
        if before is not job and before.start_s != job.start_s:
            self._known[job.id] = before = job  # another run of it
            self._suspended.discard(job.id)
        changed = _change(before, job)
        if changed and not self._outdated.is_set():
            log.info("is not as it was; the state is read again", extra={"job": job.id, "change": changed})
            self._outdated.set()
        if job.is_suspended == (job.id in self._suspended):
            return []
        (self._suspended.add if job.is_suspended else self._suspended.discard)(job.id)
        if not job.is_suspended and not self._outdated.is_set():
            log.info("was resumed; the state is read again", extra={"job": job.id})
            self._outdated.set()  # how long it has run is what it ran in Slurm
        return [SpeedChanged(live.job.id, live.work_done(now_s), self.rate(job.id))]

    def keep(self, names: Collection[str]) -> None:
        """Forget all other jobs."""
        if len(self._known) > 2 * len(names) + 100:
            self._known = {name: job for name, job in self._known.items() if name in names}
            self._suspended.intersection_update(names)


def _change(before: SlurmJob, job: SlurmJob) -> str:
    """What is other about a job that runs; empty if nothing is."""
    if before is job:
        return ""
    if before.time_limit_s != job.time_limit_s:
        return "its time limit"
    return "its nodes" if _held(before) != _held(job) else ""


def _held(job: SlurmJob) -> dict[str, int]:
    return {share.node: share.gpus.count for share in job.shares}


def suspension_words(job: SlurmJob) -> str:
    """What to say of a suspended job."""
    return f"Slurm: {job.state}; it keeps its devices, and does not run on before it is resumed"
