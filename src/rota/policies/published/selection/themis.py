"""Themis (Mahajan et al., NSDI 2020): finish-time fairness by auctions of leased devices.

rho is the time that a job takes in the shared cluster over the time in a 1/n share of its own. When devices are free
or their lease is over, the jobs with the worst rho bid for them; what winners may not keep goes to others at random.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any

from rota.core.errors import RotaError
from rota.core.model.job import WHOLE
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.core.state.node_accounts import Pool
from rota.mechanisms.declare import Knowledge, Traits
from rota.mechanisms.job_length import UNKNOWN_WORK_S
from rota.mechanisms.rng_state import rng_state, set_rng_state
from rota.mechanisms.selection.auction import auction
from rota.mechanisms.selection.declare import selection
from rota.mechanisms.selection.rule import DeviceRequest, Selection, SelectionContext
from rota.perf.speed.model import SpeedModel

_ONE_NODE, _ONE_RACK, _FAR = 1.0, 1.1, 1.3
"""The assumed slowdown of a job across machines and across racks, before it is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThemisParams:
    """`filter` is f: only the worst 1 - f of the jobs bid. Devices are leased for `lease_s` seconds."""

    filter: float = 0.8
    lease_s: float = 600.0

    def __post_init__(self) -> None:
        if not 0 <= self.filter < 1:
            raise RotaError(f"filter is {self.filter:g}; it must be 0 or more and below 1")
        if not 0 < self.lease_s < math.inf:
            raise RotaError(f"lease_s is {self.lease_s:g}; it must be a finite number above 0")


class Contention:
    """The mean number of jobs in the cluster during the life of each job."""

    def __init__(self) -> None:
        self._at_s = 0.0
        self._jobs = 0
        self._area = 0.0
        self._from: dict[int, tuple[float, float]] = {}
        """By job: when it arrived, and the integral at that time."""

    def see(self, context: SelectionContext) -> None:
        """Record the number of jobs from now on."""
        self._area += (context.now_s - self._at_s) * self._jobs
        self._at_s = context.now_s
        present = context.contending()
        self._jobs = len(present)
        known = self._from
        self._from = {live.seq: known.get(live.seq, (context.now_s, self._area)) for live in present}

    def mean(self, live: LiveJob) -> float:
        """The mean number of jobs during a job's life, itself included."""
        since_s, area = self._from[live.seq]
        passed_s = self._at_s - since_s
        return max((self._area - area) / passed_s if passed_s > 0 else self._jobs, 1.0)

    @property
    def memory(self) -> Any:
        """The sums so far."""
        return [self._at_s, self._jobs, self._area, [[seq, *kept] for seq, kept in self._from.items()]]

    def recall(self, memory: Any) -> None:
        """Restore the sums."""
        self._at_s, self._jobs, self._area, kept = memory
        self._from = {seq: (since_s, area) for seq, since_s, area in kept}


class Themis:
    """Auctions among the jobs with the worst finish-time fairness."""

    def __init__(self, params: ThemisParams, speed: SpeedModel, rng: random.Random) -> None:
        self._params = params
        self._speed = speed
        self._rng = rng
        self._contention = Contention()
        self._until_s: dict[int, float] = {}
        """The end of each holder's lease."""
        self._renewed: list[LiveJob] = []

    @property
    def memory(self) -> Any:
        """Leases, the number of jobs over time, and the random state."""
        return {
            "leases": list(self._until_s.items()),
            "contention": self._contention.memory,
            "chance": rng_state(self._rng),
        }

    def recall(self, memory: Any) -> None:
        """Restore the leases."""
        self._until_s = dict(memory["leases"])
        self._contention.recall(memory["contention"])
        set_rng_state(self._rng, memory["chance"])

    def expired(self, context: SelectionContext) -> list[LiveJob]:
        """The holders whose lease is over, if a job waits."""
        self._renewed = []
        if context.waiting:
            self._renewed = [live for live in context.holding if self._lease_end_s(live) <= context.now_s]
        return self._renewed

    def _lease_end_s(self, live: LiveJob) -> float:
        return self._until_s.get(live.seq, live.since_s + self._params.lease_s)

    def wakeup_s(self, context: SelectionContext) -> float:
        """The end of the next lease, while a job waits."""
        if not context.waiting:
            return math.inf
        ends_s = [self._lease_end_s(live) for live in context.holding]
        return min((end_s for end_s in ends_s if end_s > context.now_s), default=math.inf)

    def placed(self, context: SelectionContext) -> None:
        """Grant a lease to each job that got devices, or kept them beyond its lease."""
        until_s = context.now_s + self._params.lease_s
        over = {live.seq for live in self._renewed}
        self._until_s = {
            live.seq: until_s if live.seq in over else self._until_s.get(live.seq, until_s) for live in context.holding
        }

    def select(self, context: SelectionContext) -> Selection:
        """The jobs with the worst rho bid, type by type; the rest goes to the others, in random order."""
        self._contention.see(context)
        candidates = [*self._renewed, *(live for live in context.waiting if live.placement is None)]
        candidates.sort(key=lambda live: (-self.rho(live, context.now_s), live.seq))
        if not candidates or not (context.inventory.free or any(pool.partial for pool in context.inventory.pools)):
            return Selection(backfill=[DeviceRequest(live) for live in candidates])
        bidders = candidates[: max(math.ceil((1 - self._params.filter) * len(candidates) - 1e-9), 1)]
        requests: list[DeviceRequest] = []
        for pool in sorted(context.inventory.pools, key=lambda pool: (-pool.usable, pool.device_type)):
            won = {request.live for request in requests}
            requests += self._auction(context, pool, [live for live in bidders if live not in won])
        others = candidates[len(bidders) :]
        self._rng.shuffle(others)
        return Selection(requests=requests, backfill=[DeviceRequest(live) for live in [*others, *bidders]])

    def _auction(self, context: SelectionContext, pool: Pool, bidders: list[LiveJob]) -> list[DeviceRequest]:
        """The winners of a type's free devices; a gang keeps all or nothing, with the probability of its fraction."""
        rooms = {live: self._speed.on_type(live.job, pool.device_type) for live in bidders}
        able = [live for live in bidders if rooms[live] > 0 and devices_of(live) <= pool.free]
        sizes = [devices_of(live) for live in able]
        gains = [self._gain(live, context, pool, rooms[live]) for live in able]
        awards = auction(pool.free, sizes, gains)
        return [
            DeviceRequest(able[award.bidder], pool.device_type)
            for award in awards
            if award.keeps >= 1.0 or self._rng.random() < award.keeps
        ]

    def rho(self, live: LiveJob, now_s: float) -> float:
        """Finish-time fairness if the job ran from now on, consolidated and at its best speed."""
        rest_s, total_s = _lengths(live, now_s)
        return (now_s - live.submitted_s + rest_s) / (self._contention.mean(live) * total_s)

    def _gain(self, live: LiveJob, context: SelectionContext, pool: Pool, speed: float) -> float:
        """log(rho without / rho with): without, the job waits for another lease."""
        rest_s, _ = _lengths(live, context.now_s)
        age_s = context.now_s - live.submitted_s
        slow = live.nominal_rate / speed * slowdown(context.inventory, pool, devices_of(live))
        return math.log((age_s + self._params.lease_s + rest_s) / max(age_s + rest_s * slow, 1e-9))


def _lengths(live: LiveJob, now_s: float) -> tuple[float, float]:
    """The remaining and the total run time of a job; an hour remains where the length is unknown."""
    rest_s = live.left_s(now_s)
    if rest_s == math.inf:
        rest_s = UNKNOWN_WORK_S
    return rest_s, max(rest_s + live.work_done(now_s) / (live.nominal_rate or 1.0), 1e-9)


def devices_of(live: LiveJob) -> int:
    """Whole devices that a job requests."""
    return -(-live.job.gpu_milli // WHOLE)


def slowdown(inventory: Inventory, pool: Pool, devices: int) -> float:
    """S: the slowdown of a job of this many devices on the free ones of a type, by how far it would be spread."""
    most = next((free for free in range(len(pool.by_free) - 1, -1, -1) if pool.by_free[free]), 0)
    if devices <= most:
        return _ONE_NODE
    for nodes in inventory.racks.values():
        if sum(free * (pool.by_free[free] & nodes).bit_count() for free in range(1, len(pool.by_free))) >= devices:
            return _ONE_RACK
    return _FAR


def _rule(values: ThemisParams, knowledge: Knowledge) -> Themis:
    return Themis(values, knowledge.speed, random.Random(knowledge.seed))


themis = selection(
    "themis",
    _rule,
    draws=True,
    cites="Mahajan et al., NSDI 2020",
    summary="Devices are leased; the jobs with the worst finish-time fairness bid for what is free.",
    traits=Traits(
        prior_knowledge="length",
        scheduling_input="finish-time fairness",
        dimensions="time and space",
        priority="auction among the jobs with the worst fairness",
        preemption="at the end of leases",
        starvation="no",
        placement="consolidated",
        intrusiveness="checkpoint",
    ),
    params=ThemisParams,
    differs=(
        "each job bids for itself, with the length that its user states. Gangs are indivisible: a winner that "
        "may keep a fraction of its award keeps all of it with that probability."
    ),
)
