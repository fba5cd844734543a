"""Starts that Slurm refuses though devices are free: for a reservation, a limit of a QOS or an account, a licence.

Nothing is gained by asking again and again, while devices are kept for the job: each refusal doubles the pause.
"""

from __future__ import annotations

from rota.drivers.slurm.printed.records import SlurmJob

FIRST_S, LONGEST_S = 5.0, 600.0
_LASTING = ("QOS", "Assoc", "ReqNodeNotAvail", "Reservation", "Licenses", "Partition", "Account", "BadConstraints")
"""How Slurm's codes begin that do not pass when other jobs end."""


class RefusedStarts:
    """How often Slurm refused to start each job, one after the other."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}

    def pause_s(self, name: str) -> float:
        """Note a refusal, and return how long to wait before the next attempt."""
        times = self._times[name] = self._times.get(name, 0) + 1
        return min(FIRST_S * 2.0 ** (times - 1), LONGEST_S)

    def forget(self, name: str) -> None:
        """Forget a job that has started or ended."""
        self._times.pop(name, None)


def is_refused(job: SlurmJob) -> bool:
    """Whether Slurm says of a released job that it may not start, for a reason that lasts."""
    return job.is_pending and job.priority > 0 and job.reason.startswith(_LASTING)
