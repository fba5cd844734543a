"""Olympian: jobs are time-sliced on a device by their accumulated cost (Hu et al., Middleware 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from rota.core.errors import RotaError
from rota.core.model.job import WHOLE, DeviceType
from rota.core.state.job_record import LiveJob
from rota.mechanisms.colocation.declare import colocation, number
from rota.mechanisms.colocation.groups import DeviceGroups
from rota.mechanisms.colocation.rule import DefaultColocationRule
from rota.mechanisms.declare import MOVES, SHARES, Knowledge, Traits


class Turns(Enum):
    """How the cost of jobs on one device is balanced."""

    FAIR = "fair"
    WEIGHTED = "weighted"


@dataclass(frozen=True, slots=True, kw_only=True)
class OlympianParams:
    """At most `most` jobs share devices. The token passes on when its holder has accumulated as much cost as the
    others.

    With `migrate`, the last job of a group moves to devices that become free. With `turns=weighted`, cost is balanced
    in proportion to the label `weight`. The published quantum is 1.2 ms, far below the resolution of this scheduler:
    time slices are modelled as a fraction of the device.
    """

    most: int = 4
    migrate: bool = False
    turns: Turns = Turns.FAIR

    def __post_init__(self) -> None:
        if not 1 <= self.most <= WHOLE:
            raise RotaError(f"most is {self.most}; it must be from 1 to {WHOLE}")


class Olympian(DefaultColocationRule):
    """First in first out; a job that finds no free devices is time-sliced with the smallest group."""

    time_sliced = True

    def __init__(self, params: OlympianParams, knowledge: Knowledge) -> None:
        self._params = params
        self.migrates = params.migrate

    def admit(
        self, live: LiveJob, hosts: Sequence[LiveJob], kind: DeviceType, now_s: float
    ) -> tuple[float, ...] | None:
        """Return the size of the group; the inventory checks memory."""
        return (len(hosts),) if len(hosts) < self._params.most else None

    def fractions(self, jobs: Sequence[LiveJob], now_s: float, room: int, groups: DeviceGroups) -> Sequence[int]:
        """Return fractions of time in proportion to weights, all equal by default."""
        weights = [self._weight(live) for live in jobs]
        return [max(int(WHOLE * weight / sum(weights)), 1) for weight in weights]

    def _weight(self, live: LiveJob) -> float:
        weight = number(live.job, "weight", 1.0) if self._params.turns is Turns.WEIGHTED else 1.0
        return min(max(weight, 0.001), 1000.0)


olympian = colocation(
    "olympian",
    Olympian,
    cites="Hu et al., Middleware 2018",
    summary="First in first out; jobs without free devices are time-sliced at equal accumulated cost.",
    params=OlympianParams,
    traits=Traits(
        scheduling_input="accumulated cost",
        dimensions="time and space",
        preemption="between operators",
        starvation="no",
        placement="consolidated, time-sliced",
        intrusiveness="runtime",
    ),
    emits=lambda params: SHARES | MOVES if params.migrate else SHARES,
)
