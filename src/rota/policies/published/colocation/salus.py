"""Salus: jobs keep their memory on the device and switch between iterations (Yu and Chowdhury, MLSys 2020)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from rota.core.errors import RotaError
from rota.core.model.job import WHOLE, DeviceType
from rota.core.state.job_record import LiveJob
from rota.mechanisms.colocation.declare import colocation, label, number
from rota.mechanisms.colocation.groups import DeviceGroups
from rota.mechanisms.colocation.rule import DefaultColocationRule
from rota.mechanisms.declare import MOVES, SHARES, Knowledge, Traits


class LaneOrder(Enum):
    """Which job of a lane runs the next iteration."""

    FIFO = "fifo"
    SRTF = "srtf"
    FAIR = "fair"
    PACK = "pack"


@dataclass(frozen=True, slots=True, kw_only=True)
class SalusParams:
    """`order` decides whose iterations run first in a lane: `fifo`, `srtf` or `fair`; with `pack` each job has its own
    lane.

    At most `most` jobs keep their memory on a device. With `migrate`, the last job of a group moves to devices that
    become free. The label `persistent` is the fraction of a job's device memory that stays allocated between
    iterations; the option `persistent` is the default for jobs without it. The rest is ephemeral and shared by the jobs
    of a lane.
    """

    order: LaneOrder = LaneOrder.SRTF
    most: int = 4
    migrate: bool = False
    persistent: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.persistent <= 1:
            raise RotaError(f"persistent is {self.persistent:g}; it must be from 0 to 1")
        if not 1 <= self.most <= 100:
            raise RotaError(f"most is {self.most}; it must be from 1 to 100")


class Salus(DefaultColocationRule):
    """One lane for each device: every job keeps its persistent memory there, and one at a time runs an iteration.

    So the persistent memory of all jobs and the largest ephemeral memory of one fit on the device.
    """

    def __init__(self, params: SalusParams, knowledge: Knowledge) -> None:
        self._params = params
        self.migrates = params.migrate
        self._speed = knowledge.speed
        self.time_sliced = params.order is not LaneOrder.PACK

    def order(self, live: LiveJob, now_s: float) -> tuple[float, ...]:
        """Shortest remaining time first, or first in first out."""
        return (live.left_s(now_s),) if self._params.order is LaneOrder.SRTF else (live.seq,)

    def admit(
        self, live: LiveJob, hosts: Sequence[LiveJob], kind: DeviceType, now_s: float
    ) -> tuple[float, ...] | None:
        """Return the size of the group; the inventory checks memory."""
        if len(hosts) >= self._params.most:
            return None
        if not self.time_sliced and any(not self._speed.beside(live.job, host.job, kind) > 0 for host in hosts):
            return None
        return (len(hosts),)

    def fractions(self, jobs: Sequence[LiveJob], now_s: float, room: int, groups: DeviceGroups) -> Sequence[int]:
        """Give nearly all of the time to the job whose iterations run first, a thousandth to each other job of the
        lane."""
        if self._params.order in (LaneOrder.FAIR, LaneOrder.PACK):
            return [WHOLE // len(jobs)] * len(jobs)
        first = min(range(len(jobs)), key=lambda at: (*self.order(jobs[at], now_s), jobs[at].seq))
        return [WHOLE - len(jobs) + 1 if at == first else 1 for at in range(len(jobs))]

    def memory_fractions(self, jobs: Sequence[LiveJob], room: int | None) -> Sequence[int]:
        """Keep the persistent memory of every job, and all memory of the one with the largest ephemeral part."""
        if not self.time_sliced:
            return [WHOLE] * len(jobs)
        kept = [self._persistent(live) for live in jobs]
        needs = [live.job.roles[0].device_memory_bytes for live in jobs]
        ephemeral = [need * (WHOLE - part) for need, part in zip(needs, kept, strict=True)]
        kept[ephemeral.index(max(ephemeral))] = WHOLE
        return kept

    def _persistent(self, live: LiveJob) -> int:
        """Return the thousandths of its memory that a job keeps on the device between iterations."""
        labelled = label(live.job, "persistent")
        part = self._params.persistent if labelled is None else number(live.job, "persistent", 1.0)
        return max(math.ceil(min(max(part, 0.0), 1.0) * WHOLE), 1)


salus = colocation(
    "salus",
    Salus,
    cites="Yu and Chowdhury, MLSys 2020",
    summary="Jobs keep their memory on a shared device and switch between iterations, by default shortest first.",
    params=SalusParams,
    differs=(
        "a device has one lane, in which one job computes at a time, or with `order=pack` one for each job; the "
        "memory of jobs without the label `persistent` is persistent by default."
    ),
    traits=Traits(
        prior_knowledge="memory; duration (srtf)",
        scheduling_input="arrival order or remaining time",
        dimensions="time and space",
        preemption="between iterations",
        starvation="possible (fifo, srtf)",
        placement="consolidated, time-sliced",
        intrusiveness="runtime",
    ),
    emits=lambda params: SHARES | MOVES if params.migrate else SHARES,
)
