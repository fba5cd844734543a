"""Gandiva_fair (Chaudhary et al., EuroSys 2020): tickets for users, stride on every server, trading of generations.

Every user has the same share of each device type, by tickets, and its jobs are time-sliced on it in quanta. Users whose
jobs gain little from the newer types trade them to users whose jobs gain more. Servers are kept at equal load.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from rota.core.errors import RotaError
from rota.core.model.job import WHOLE, DeviceType
from rota.core.state.job_record import LiveJob
from rota.mechanisms.declare import Knowledge, Traits
from rota.mechanisms.ordering.owner import FairnessOwner
from rota.mechanisms.parameters import refuse_odd_weights
from rota.mechanisms.selection.declare import selection
from rota.mechanisms.selection.rule import DeviceRequest, Selection, SelectionContext
from rota.mechanisms.selection.stride import Passes, StrideEntry, balanced, next_quantum
from rota.mechanisms.selection.trading import max_min, trade
from rota.perf.speed.model import SpeedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class GandivaFairParams:
    """Jobs are time-sliced every `quantum_s`, and not more often than every two restarts, so that they make progress.

    `entities` have the given `tickets`, others 1; `trade` allows trading.
    """

    quantum_s: float = 60.0
    by: FairnessOwner = FairnessOwner.USER
    entities: tuple[str, ...] = ()
    tickets: tuple[float, ...] = ()
    trade: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.quantum_s < math.inf:
            raise RotaError(f"quantum_s is {self.quantum_s:g}; it must be above 0")
        refuse_odd_weights(self.entities, self.tickets, "tickets")


Shares = dict[DeviceType, dict[str, float]]
"""Devices of each type that each user is entitled to."""


class _Standing:
    """What depends only on the contending jobs and the devices: shares and, with one type, the type of each job."""

    __slots__ = ("key", "kinds", "shares")

    def __init__(self, key: tuple[list[int], list[int]], shares: Shares) -> None:
        self.key = key
        self.shares = shares
        self.kinds: dict[int, DeviceType] | None = None


class GandivaFair:
    """Passes, servers and types of all jobs; entitlements are computed again when a job came or left."""

    def __init__(self, params: GandivaFairParams, speed: SpeedModel, restart_s: float = 0.0) -> None:
        self._params = params
        self._quantum_s = max(params.quantum_s, 2 * restart_s)
        self._speed = speed
        self._weights = dict(zip(params.entities, params.tickets, strict=True))
        self._passes = Passes()
        self._homes: dict[int, int] = {}
        self._tickets: dict[int, float] = {}
        self._charged_s = 0.0
        self._next_s = 0.0
        self._standing: _Standing | None = None

    @property
    def memory(self) -> Any:
        """Passes, servers and tickets, the time up to which passes are charged, and the start of the next quantum."""
        return {
            "passes": self._passes.memory,
            "homes": list(self._homes.items()),
            "tickets": list(self._tickets.items()),
            "times_s": [self._charged_s, self._next_s],
        }

    def recall(self, memory: Any) -> None:
        """Continue the quantum."""
        self._passes = Passes(dict(memory["passes"]))
        self._homes, self._tickets = dict(memory["homes"]), dict(memory["tickets"])
        self._charged_s, self._next_s = memory["times_s"]
        self._standing = None

    def expired(self, context: SelectionContext) -> list[LiveJob]:
        """All holders, at the end of a quantum in which a job waited."""
        for live in context.holding:
            size = live.gpus * (context.now_s - self._charged_s)
            self._passes.charge(live.seq, size, self._tickets.get(live.seq, 1.0))
        self._charged_s = context.now_s
        return list(context.holding) if context.waiting and context.now_s >= self._next_s else []

    def wakeup_s(self, context: SelectionContext) -> float:
        """The end of the quantum, while a job waits."""
        return self._next_s if context.waiting else math.inf

    def placed(self, context: SelectionContext) -> None:
        """Quanta begin at whole multiples of their length."""
        quantum_s = self._quantum_s
        self._next_s = (math.floor(context.now_s / quantum_s) + 1) * quantum_s
        if self._next_s <= context.now_s:
            self._next_s = math.nextafter(context.now_s, math.inf)

    def select(self, context: SelectionContext) -> Selection:
        """By pool, the jobs with the smallest pass; then others that still fit."""
        jobs = context.in_order()
        kinds = self._settled_kinds(context, jobs)
        requests: list[DeviceRequest] = []
        for pool in context.inventory.pools:
            mine = [live for live in jobs if kinds.get(live.seq) == pool.device_type]
            requests += self._quantum(context, mine, pool.device_type)
        passes = self._passes.by_job
        rest = sorted(jobs, key=lambda live: (passes[live.seq], live.seq))
        return Selection(requests=requests, backfill=[DeviceRequest(live) for live in rest])

    def _settled_kinds(self, context: SelectionContext, jobs: Sequence[LiveJob]) -> dict[int, DeviceType]:
        """A type for every job; what depends only on the contending jobs is cached until one comes or leaves."""
        contending = context.contending()
        key = [live.seq for live in contending], [pool.usable for pool in context.inventory.pools]
        standing = self._standing
        if standing is None or standing.key != key:
            self._passes.set_jobs(key[0])
            standing = self._standing = _Standing(key, self.shares(context, contending))
        if standing.kinds is not None:
            return standing.kinds
        if len(standing.shares) == 1:
            standing.kinds = self._kinds(context, contending, standing.shares)
            return standing.kinds
        return self._kinds(context, jobs, standing.shares)

    def _quantum(self, context: SelectionContext, jobs: Sequence[LiveJob], kind: DeviceType) -> list[DeviceRequest]:
        """The jobs that run next on a type, with their servers."""
        account = context.inventory.nodes
        devices = {
            at: each.node.devices
            for at, each in enumerate(account)
            if each.usable and each.node.device_type == kind and each.node.devices
        }
        widest = max(devices.values(), default=0)
        sizes = {live.seq: -(-live.job.gpu_milli // WHOLE) for live in jobs}
        small = {live.seq: self._tickets[live.seq] for live in jobs if sizes[live.seq] <= widest}
        homes = {live.seq: self._home(live) for live in jobs if live.seq in small}
        idle = [live.seq for live in jobs if live.seq in small and not live.holds]
        placed = balanced(small, sizes, {seq: at for seq, at in homes.items() if at is not None}, devices, idle)
        self._homes = {seq: at for seq, at in self._homes.items() if seq not in sizes} | placed
        entries = [
            StrideEntry(
                live.seq,
                sizes[live.seq],
                placed.get(live.seq),
                self._passes.by_job[live.seq],
                self._tickets[live.seq],
            )
            for live in jobs
        ]
        by_seq = {live.seq: live for live in jobs}
        return [DeviceRequest(by_seq[entry.seq], kind, entry.server) for entry in next_quantum(entries, devices)]

    def _home(self, live: LiveJob) -> int | None:
        """The server of a job: where it runs, if that is one server, or where it was assigned."""
        nodes = {slot.node for slot in live.placement or ()}
        return nodes.pop() if len(nodes) == 1 else self._homes.get(live.seq)

    def owner(self, live: LiveJob) -> str:
        """The user whose tickets a job uses."""
        return str(live.job.tenant) if self._params.by is FairnessOwner.TENANT or not live.job.user else live.job.user

    def shares(self, context: SelectionContext, jobs: Sequence[LiveJob]) -> Shares:
        """Each user's entitlement by type: by tickets, limited by its demand, then after trading."""
        left: dict[str, float] = {}
        for live in jobs:
            left[self.owner(live)] = left.get(self.owner(live), 0.0) + live.job.gpus
        weights = {owner: self._weights.get(owner, 1.0) for owner in left}
        pools = {pool.device_type: pool.usable for pool in context.inventory.pools if pool.usable}
        kinds = sorted(pools, key=lambda kind: (-self._mean_speed(jobs, kind), kind))
        shares: Shares = {}
        for kind in kinds:
            shares[kind] = max_min(pools[kind], weights, left)
            left = {owner: left[owner] - part for owner, part in shares[kind].items()}
        if self._params.trade:
            for fast, slow in pairwise(kinds):
                trade(shares[fast], shares[slow], self._speedups(jobs, fast, slow), left)
        return shares

    def _speedups(self, jobs: Sequence[LiveJob], fast: DeviceType, slow: DeviceType) -> dict[str, float]:
        """The mean speedup of each user's jobs on one type over another."""
        ratios: dict[str, list[float]] = {}
        for live in jobs:
            one, other = self._speed.on_type(live.job, fast), self._speed.on_type(live.job, slow)
            if one > 0 and other > 0:
                ratios.setdefault(self.owner(live), []).append(one / other)
        return {owner: sum(values) / len(values) for owner, values in sorted(ratios.items())}

    def _mean_speed(self, jobs: Sequence[LiveJob], kind: DeviceType) -> float:
        """The mean speed of the jobs on a type, relative to the best type of each."""
        speeds = [self._speed.on_type(live.job, kind) / (live.nominal_rate or 1.0) for live in jobs]
        return round(sum(speeds) / max(len(speeds), 1), 9)

    def _kinds(self, context: SelectionContext, jobs: Sequence[LiveJob], shares: Shares) -> dict[int, DeviceType]:
        """A type for every job, and its tickets there.

        Running jobs stay; others, the largest first, go where their user has most left of its share.
        """
        used: dict[tuple[str, DeviceType], float] = {}
        found: dict[int, DeviceType] = {}
        for live in sorted(jobs, key=lambda live: (not live.holds, -live.job.gpus, live.seq)):
            owner = self.owner(live)
            able = [kind for kind in shares if self._speed.on_type(live.job, kind) > 0 and context.can_run(live, kind)]
            if live.placement:
                here = context.inventory.nodes[live.placement[0].node].node.device_type
                able = [here] if here in able else able
            if not able:
                self._tickets[live.seq] = 1.0
                continue
            fullest = {
                kind: (used.get((owner, kind), 0.0) + live.gpus) / max(shares[kind][owner], 1e-9) for kind in able
            }
            kind = min(able, key=lambda kind: (max(fullest[kind], 1.0), -self._speed.on_type(live.job, kind), kind))
            used[owner, kind] = used.get((owner, kind), 0.0) + live.gpus
            found[live.seq] = kind
        self._tickets |= self._divided(jobs, found, shares)
        self._tickets = {live.seq: self._tickets[live.seq] for live in jobs}
        return found

    def _divided(self, jobs: Sequence[LiveJob], kinds: dict[int, DeviceType], shares: Shares) -> dict[int, float]:
        """A user's share of a type, divided equally among its jobs there, none getting more than it can use."""
        sizes: dict[tuple[str, DeviceType], dict[str, float]] = {}
        for live in jobs:
            if live.seq in kinds:
                sizes.setdefault((self.owner(live), kinds[live.seq]), {})[str(live.seq)] = live.job.gpus
        tickets: dict[int, float] = {}
        for (owner, kind), demand in sizes.items():
            parts = max_min(shares[kind].get(owner, 0.0), dict.fromkeys(demand, 1.0), demand)
            tickets |= {int(seq): max(part, 1e-6) for seq, part in parts.items()}
        return tickets


def _rule(values: GandivaFairParams, knowledge: Knowledge) -> GandivaFair:
    return GandivaFair(values, knowledge.speed, knowledge.restart_s)


gandiva_fair = selection(
    "gandiva-fair",
    _rule,
    cites="Chaudhary et al., EuroSys 2020",
    summary="Users have shares of every device type by tickets, and trade them where both gain.",
    traits=Traits(
        prior_knowledge="speed by type",
        scheduling_input="tickets, device time received",
        dimensions="time and space",
        priority="least pass on each server",
        preemption="at the end of quanta",
        starvation="no",
        placement="consolidated; servers at equal load",
        intrusiveness="checkpoint",
    ),
    params=GandivaFairParams,
    divides_owners=True,
    differs=(
        "speedups are those of the speed model, not profiled, and the price of a trade is the "
        "next-highest speedup. Jobs are stopped and started between quanta, so that every change costs "
        "what a restart costs."
    ),
)
