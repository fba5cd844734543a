"""Salus: jobs keep their memory on the device and switch between iterations (Yu and Chowdhury, MLSys 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from rota.core.errors import RotaError
from rota.core.live import LiveJob
from rota.core.model import WHOLE, DeviceType
from rota.mechanisms.declare import Knowledge, Traits
from rota.mechanisms.declare_sharing import sharing
from rota.mechanisms.joining import PlainRule


class Order(Enum):
    """Whose iteration comes next in a lane."""

    FIFO = "fifo"
    SRTF = "srtf"
    FAIR = "fair"
    PACK = "pack"


@dataclass(frozen=True, slots=True, kw_only=True)
class SalusParams:
    """`order` is whose iterations come first: `fifo`, `srtf`, `fair`; with `pack` each has a lane of its own.

    At most `most` jobs keep their memory on a device. With `migrate`, who came last moves to devices that become free.
    """

    order: Order = Order.SRTF
    most: int = 4
    migrate: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.most <= 100:
            raise RotaError(f"most is {self.most}; it must be from 1 to 100")


class Salus(PlainRule):
    """One lane a device: all who are in it keep their memory there, one at a time computes."""

    def __init__(self, params: SalusParams, knowledge: Knowledge) -> None:
        self._params = params
        self._speed = knowledge.speed
        self.turns = params.order is not Order.PACK
        self.spreads = params.migrate

    def order(self, live: LiveJob, now_s: float) -> tuple[float, ...]:
        """Who comes first, or who needs least."""
        return (live.left_s(now_s),) if self._params.order is Order.SRTF else (live.seq,)

    def joins(self, live: LiveJob, hosts: Sequence[LiveJob], kind: DeviceType) -> tuple[float, ...] | None:
        """Where fewest are; that the memory of all fits is the accounts' concern."""
        if len(hosts) >= self._params.most:
            return None
        if not self.turns and any(not self._speed.beside(live.job, host.job, kind) > 0 for host in hosts):
            return None
        return (len(hosts),)

    def parts(self, jobs: Sequence[LiveJob], now_s: float) -> Sequence[int]:
        """Nearly all of the time for the one whose iterations go first, a thousandth for others in the lane."""
        if self._params.order in (Order.FAIR, Order.PACK):
            return [WHOLE // len(jobs)] * len(jobs)
        first = min(range(len(jobs)), key=lambda at: (*self.order(jobs[at], now_s), jobs[at].seq))
        return [WHOLE - len(jobs) + 1 if at == first else 1 for at in range(len(jobs))]


salus = sharing(
    "salus",
    Salus,
    cites="Yu and Chowdhury, MLSys 2020",
    summary="Jobs keep their memory on a device together and switch between iterations, by default the shortest first.",
    params=SalusParams,
    traits=Traits(
        prior_knowledge="memory; duration (srtf)",
        scheduling_input="arrival order or time left",
        dimensions="time and space",
        preemption="between iterations",
        starvation="possible (fifo, srtf)",
        placement="consolidated, in turn",
        intrusiveness="runtime",
    ),
)
