"""Jobs whose GPUs are idle: warned after a while, and suspended or stopped if that changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rota.core.model.job import JobId
from rota.drivers.local.gpu.settings import IdleAction, IdleRule


class IdleStep(Enum):
    """What is due about an idle job."""

    WARN = "warn"
    ACT = "act"


@dataclass(slots=True)
class _IdleState:
    warned_s: float
    acted: bool = False


class IdleWatch:
    """Applies the rule to each job; a job that works again is forgiven."""

    def __init__(self, rule: IdleRule) -> None:
        self.rule = rule
        self._warned: dict[JobId, _IdleState] = {}

    @property
    def is_on(self) -> bool:
        """Whether there is a rule at all."""
        return self.rule.below_percent > 0

    def check(self, job_id: JobId, busy: float | None, held_s: float, now_s: float) -> IdleStep | None:
        """Take in how busy a job's GPUs were in the time that the rule names; return what is due, if anything.

        `busy` is None where it is not known, as on shared GPUs: no rule applies to such a job.
        """
        if busy is None or held_s < self.rule.for_s or busy >= self.rule.below_percent:
            self._warned.pop(job_id, None)
            return None
        state = self._warned.get(job_id)
        if state is None:
            self._warned[job_id] = _IdleState(now_s)
            return IdleStep.WARN
        is_due = now_s - state.warned_s >= self.rule.grace_s and not state.acted
        if is_due and self.rule.action is not IdleAction.WARN:
            state.acted = True
            return IdleStep.ACT
        return None

    def forget(self, running: set[JobId]) -> None:
        """Forget jobs that hold no GPUs any more."""
        for job_id in [job_id for job_id in self._warned if job_id not in running]:
            del self._warned[job_id]

    def words(self, busy: float) -> str:
        """Return the warning of an idle job."""
        rule = self.rule
        follows = {
            IdleAction.WARN: "",
            IdleAction.SUSPEND: f"; it is suspended in {_minutes(rule.grace_s)} unless that changes",
            IdleAction.STOP: f"; it is stopped in {_minutes(rule.grace_s)} unless that changes",
        }[rule.action]
        return (
            f"its GPUs were busy for {busy:.1f}% of the last {_minutes(rule.for_s)}, "
            f"less than {rule.below_percent:g}%{follows}"
        )


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"
