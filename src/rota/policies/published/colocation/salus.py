"""Salus: jobs keep their memory on the device and switch between iterations (Yu and Chowdhury, MLSys 2020)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from rota.core.errors import RotaError
from rota.core.model.job import WHOLE, DeviceType
from rota.core.state.job_record import LiveJob
from rota.mechanisms.colocation.declare import label, number, sharing
from rota.mechanisms.colocation.groups import DeviceGroups
from rota.mechanisms.colocation.rule import DefaultColocationRule
from rota.mechanisms.declare import MOVES, SHARES, Knowledge, Traits


class LaneOrder(Enum):
    """Whose iteration comes next in a lane."""

    FIFO = "fifo"
    SRTF = "srtf"
    FAIR = "fair"
    PACK = "pack"


@dataclass(frozen=True, slots=True, kw_only=True)
class SalusParams:
    """`order` is whose iterations come first: `fifo`, `srtf`, `fair`; with `pack` each has a lane of its own.

    At most `most` jobs keep their memory on a device. With `migrate`, who came last moves to devices that become free.
    Of the device memory that a job asks for, the part that its label `persistent` says is there all the time, or
    `persistent` of those without it; the rest only while an iteration runs, so that jobs in a lane share it.
    """

    order: LaneOrder = LaneOrder.SRTF
    most: int = 4
    migrate: bool = False
    persistent: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.persistent <= 1:
            raise RotaError(f"persistent is {self.persistent:g}; it must be a part of 1")
        if not 1 <= self.most <= 100:
            raise RotaError(f"most is {self.most}; it must be from 1 to 100")


class Salus(DefaultColocationRule):
    """One lane a device: who is in it keeps its persistent memory there, one at a time computes with all of its own.

    So the persistent memory of all and the most that one of them needs beside it fit on the device.
    """

    def __init__(self, params: SalusParams, knowledge: Knowledge) -> None:
        self._params = params
        self.migrates = params.migrate
        self._speed = knowledge.speed
        self.turns = params.order is not LaneOrder.PACK

    def order(self, live: LiveJob, now_s: float) -> tuple[float, ...]:
        """Who comes first, or who needs least."""
        return (live.left_s(now_s),) if self._params.order is LaneOrder.SRTF else (live.seq,)

    def joins(
        self, live: LiveJob, hosts: Sequence[LiveJob], kind: DeviceType, now_s: float
    ) -> tuple[float, ...] | None:
        """Where fewest are; that the memory of all fits is the accounts' concern."""
        if len(hosts) >= self._params.most:
            return None
        if not self.turns and any(not self._speed.beside(live.job, host.job, kind) > 0 for host in hosts):
            return None
        return (len(hosts),)

    def parts(self, jobs: Sequence[LiveJob], now_s: float, room: int, guests: DeviceGroups) -> Sequence[int]:
        """Nearly all of the time for the one whose iterations go first, a thousandth for others in the lane."""
        if self._params.order in (LaneOrder.FAIR, LaneOrder.PACK):
            return [WHOLE // len(jobs)] * len(jobs)
        first = min(range(len(jobs)), key=lambda at: (*self.order(jobs[at], now_s), jobs[at].seq))
        return [WHOLE - len(jobs) + 1 if at == first else 1 for at in range(len(jobs))]

    def memory_parts(self, jobs: Sequence[LiveJob], room: int | None) -> Sequence[int]:
        """What is persistent of each, and all of the one that needs most beside it: that is the size of the lane."""
        if not self.turns:
            return [WHOLE] * len(jobs)
        parts = [self._persistent(live) for live in jobs]
        needs = [live.job.roles[0].device_memory_bytes for live in jobs]
        beside = [need * (WHOLE - part) for need, part in zip(needs, parts, strict=True)]
        parts[beside.index(max(beside))] = WHOLE
        return parts

    def _persistent(self, live: LiveJob) -> int:
        """Thousandths of its memory that a job keeps on the device between its iterations."""
        said = label(live.job, "persistent")
        part = self._params.persistent if said is None else number(live.job, "persistent", 1.0)
        return max(math.ceil(min(max(part, 0.0), 1.0) * WHOLE), 1)


salus = sharing(
    "salus",
    Salus,
    cites="Yu and Chowdhury, MLSys 2020",
    summary="Jobs keep their memory on a device together and switch between iterations, by default the shortest first.",
    params=SalusParams,
    differs=(
        "a device has one lane, in which jobs compute one at a time, or with `order=pack` one for each job; jobs that "
        "do not say how much of their memory is persistent keep all of it."
    ),
    traits=Traits(
        prior_knowledge="memory; duration (srtf)",
        scheduling_input="arrival order or time left",
        dimensions="time and space",
        preemption="between iterations",
        starvation="possible (fifo, srtf)",
        placement="consolidated, in turn",
        intrusiveness="runtime",
    ),
    emits=lambda params: SHARES | MOVES if params.migrate else SHARES,
)
