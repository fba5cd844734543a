"""AntMan: opportunistic jobs on the devices of guaranteed ones, held back so that these keep their speed.

Xiao et al., OSDI 2020.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rota.core.errors import RotaError
from rota.core.live import LiveJob
from rota.core.model import OPPORTUNISTIC, WHOLE, DeviceType
from rota.mechanisms.declare import Knowledge, Traits
from rota.mechanisms.declare_sharing import sharing
from rota.mechanisms.guests import is_settled
from rota.mechanisms.joining import PlainRule
from rota.perf.utilisation import measured

_PROBE = 10
"""Thousandths with which an opportunistic job begins, to see what it does to the other."""
_HALF = WHOLE // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class AntManParams:
    """A guaranteed job keeps at least the part `guard` of its speed alone; it is joined if it is busy below `busy`."""

    guard: float = 0.95
    busy: float = 0.8

    def __post_init__(self) -> None:
        if not 0.05 <= self.guard <= 0.98 or not 0 < self.busy <= 1:
            raise RotaError(
                f"guard is {self.guard:g} and busy {self.busy:g}; guard must be 0.05 to 0.98, busy a part of 1"
            )


class AntMan(PlainRule):
    """Guaranteed jobs first; opportunistic ones (priority -1) on what is free, else beside the idlest of the others."""

    def __init__(self, params: AntManParams, knowledge: Knowledge) -> None:
        self._params = params
        self._speed = knowledge.speed
        self._alone: dict[int, float] = {}
        """The speed of guaranteed jobs by themselves, as seen."""
        self._parts: dict[int, int] = {}
        """What opportunistic jobs beside a guaranteed one may have."""

    def order(self, live: LiveJob, now_s: float) -> tuple[float, ...]:
        """Guaranteed jobs first, then who came first."""
        return (not _is_guaranteed(live), live.seq)

    def joins(self, live: LiveJob, hosts: Sequence[LiveJob], kind: DeviceType) -> tuple[float, ...] | None:
        """One guaranteed and one opportunistic job, the idlest first; a guaranteed one may come second."""
        (host, *others) = hosts
        if others or _is_guaranteed(live) is _is_guaranteed(host):
            return None
        guaranteed = host if _is_guaranteed(host) else live
        busy = measured(guaranteed.job, self._speed, kind)
        self._alone.setdefault(guaranteed.seq, self._speed.on_type(guaranteed.job, kind))
        both = (self._speed.beside(live.job, host.job, kind), self._speed.beside(host.job, live.job, kind))
        return (busy,) if busy < self._params.busy and min(both) > 0 else None

    def parts(self, jobs: Sequence[LiveJob], now_s: float) -> Sequence[int]:
        """As much for the opportunistic job as the other can bear, at most half."""
        if len(jobs) == 1:
            return [WHOLE]
        lesser = next((live for live in jobs if not _is_guaranteed(live)), jobs[-1])
        part = self._parts.get(lesser.seq, _PROBE)
        return [part if live is lesser else WHOLE - part for live in jobs]

    def saw(self, live: LiveJob, mates: Sequence[LiveJob], now_s: float) -> None:
        """Correct the part of the opportunistic job by what the guaranteed one loses."""
        if not mates:
            self._alone[live.seq] = live.rate
            self._parts.pop(live.seq, None)
            return
        mate = mates[0]
        if not _is_guaranteed(live) or not is_settled(mate) or mate.placement is None:
            return
        alone = self._alone.get(live.seq, live.nominal_rate)
        loss, allowed = 1.0 - live.rate / alone if alone > 0 else 0.0, 1.0 - self._params.guard
        part = mate.placement[0].milli
        bearable = _HALF if loss * _HALF <= allowed * part else int(part * allowed / loss)
        if bearable > part or loss > allowed + 1e-9:
            self._parts[mate.seq] = min(max(bearable, 1), _HALF)

    def left(self, live: LiveJob) -> None:
        """Forget it."""
        self._alone.pop(live.seq, None)
        self._parts.pop(live.seq, None)

    def yields(self, live: LiveJob, holders: Sequence[LiveJob]) -> Sequence[LiveJob]:
        """Opportunistic jobs make room for a guaranteed one that can't run beside any, the youngest first."""
        if not _is_guaranteed(live):
            return ()
        return sorted((each for each in holders if not _is_guaranteed(each)), key=lambda each: -each.seq)

    @property
    def memory(self) -> Any:
        """Speeds seen, and parts."""
        return {"alone": list(self._alone.items()), "parts": list(self._parts.items())}

    def recall(self, memory: Any, jobs: dict[int, LiveJob]) -> None:
        """Take them up."""
        self._alone, self._parts = dict(memory["alone"]), dict(memory["parts"])


def _is_guaranteed(live: LiveJob) -> bool:
    return live.job.priority > OPPORTUNISTIC


antman = sharing(
    "antman",
    AntMan,
    cites="Xiao et al., OSDI 2020",
    summary="Opportunistic jobs (priority -1) run beside guaranteed ones, held back so that these keep their speed.",
    params=AntManParams,
    traits=Traits(
        prior_knowledge="utilisation",
        scheduling_input="class of the job, observed speed",
        priority="guaranteed before opportunistic",
        preemption="of opportunistic jobs",
        starvation="possible for opportunistic jobs",
        placement="consolidated, packed",
        intrusiveness="framework",
    ),
)
