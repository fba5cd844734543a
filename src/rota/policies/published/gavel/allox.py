"""AlloX (Le et al., EuroSys 2020): the least sum of completion times, as a matching of jobs to positions in queues."""

from __future__ import annotations

from typing import Any

import numpy as np

from rota.core.errors import RotaError
from rota.mechanisms.rounds.rule import ShareQuestion, Shares
from rota.mechanisms.solvers.assignment import earliest, first_places
from rota.policies.published.gavel.declare import Compat, gavel
from rota.policies.published.gavel.fifo import whole

_NEVER = 1e10
"""The run time on a type that a job can't run on: longer than any real one."""
_NO_TYPE = -1


class GavelAllox:
    """A job keeps its first device type until it ends. Jobs of several devices get what is left over."""

    sees_types = True
    packs = False
    backfills = True

    def __init__(self, *, refuses_large: bool) -> None:
        self._refuses_large = refuses_large
        self._type_of: dict[int, int] = {}

    @property
    def memory(self) -> Any:
        """The type of each job."""
        return list(self._type_of.items())

    def recall(self, memory: Any) -> None:
        """Restore the type of each job."""
        self._type_of = dict(memory)

    def shares(self, question: ShareQuestion) -> Shares:
        """The first job in each free device's queue becomes fixed to that device's type."""
        active = {job.seq: job for job in question.jobs}
        self._type_of = {seq: at for seq, at in self._type_of.items() if seq in active and active[seq].speeds[at] > 0}
        big = next((job for job in question.jobs if job.scale > 1), None)
        if big is not None and self._refuses_large:
            raise RotaError(
                f"policy 'gavel/allox': job {big.live.job.id} needs {big.scale} devices; AlloX takes jobs of one"
            )
        rows = [row for row, job in enumerate(question.jobs) if job.seq not in self._type_of and job.scale == 1]
        free = list(question.devices)
        for at in self._type_of.values():
            free[at] -= 1
        devices = [at for at in question.by_name() for _ in range(free[at])]
        if rows and devices:
            self._match(question, rows, devices)
        return {(job.seq,): whole(question, self._type_of.get(job.seq, _NO_TYPE)) for job in question.jobs}

    def _match(self, question: ShareQuestion, rows: list[int], devices: list[int]) -> None:
        """Hungarian method; being k-th from last on a device costs k times the run time (Le et al., section 4)."""
        speeds = question.speeds[np.ix_(rows, devices)]
        with np.errstate(divide="ignore"):
            took_s = np.where(speeds > 0, question.remaining[rows, None] / speeds, _NEVER)
        age_s = np.broadcast_to(question.age_s[rows, None], took_s.shape)
        firsts = earliest(took_s, age_s, *first_places(np.array(devices), len(rows)))
        for device, row in firsts.items():
            if speeds[row, device] > 0:
                self._type_of[question.jobs[rows[row]].seq] = devices[device]


allox = gavel(
    "allox",
    lambda params, knowledge: GavelAllox(refuses_large=params.compat is Compat.GAVEL),
    summary="The matching of jobs to device queues with the least sum of completion times.",
    cites="Le et al., EuroSys 2020; as in Narayanan et al., OSDI 2020",
    knows="speed by type, length",
    starvation="possible",
)
