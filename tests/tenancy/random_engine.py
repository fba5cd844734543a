"""Random histories of a whole engine with tenants: jobs, faults, new guarantees, nodes that come and go.

Both tenancies; orders are answered late. After every step the accounts of the engine and of the tenants are recounted.
In the end everything heals, and every job that was admitted and still fits into the cluster must run to its end.
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace

from builders import World
from rota.core.errors import RotaError
from rota.core.messages.decisions import Decision, Start, Stop
from rota.core.messages.events import (
    End,
    Event,
    Interrupted,
    JobEnded,
    NodeBack,
    NodeDrained,
    NodeLost,
    NodeUndrained,
    Started,
    Stopped,
    TimerFired,
)
from rota.core.messages.reasons import Reason
from rota.core.model.cells import CellEntry, CellPlan
from rota.core.model.cluster import Cluster
from rota.core.model.job import OPPORTUNISTIC, Job, JobId, JobState, NodeId, Role, TenantId
from rota.core.model.tenants import ANY_TYPE, Share, TenantPlan
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.files.hived import cluster_from
from rota.live.loop.cluster_config import ClusterConfig
from rota.placement import style
from rota.tenancy import allocator
from rota.tenancy.cells.allocator import CellAllocator
from rota.tenancy.cells.check import check_cells
from tenancy.random_plans import changed_cells, random_plan, random_tenants

POLICIES = (
    "fifo:backfill=true",
    "easy",
    "easy:reserve=0,window_s=60",
    "priority",
    "srtf",
    "fair-share:half_life_s=20",
    "drf",
)
TENANTS = ("t0", "t1", "t2")


def random_shares(rng: random.Random, devices: int) -> TenantPlan:
    """Shares of three tenants, no more together than there is, one of them part of another, some with limits."""
    shares: dict[TenantId, Share] = {}
    left = devices
    for at, name in enumerate(TENANTS):
        guaranteed = rng.randint(0, min(left, 4))
        left -= guaranteed
        limit = {ANY_TYPE: guaranteed + rng.randint(0, 4)} if rng.random() < 0.3 else {}
        is_inside = at == 1 and shares[TenantId("t0")].guaranteed[ANY_TYPE] >= guaranteed
        parent = TenantId("t0") if is_inside and rng.random() < 0.5 else None
        per_user = rng.randint(1, 4) if rng.random() < 0.2 else None
        shares[TenantId(name)] = Share(
            guaranteed={ANY_TYPE: guaranteed},
            limit=limit,
            parent=parent,
            per_user=per_user,
            weight=rng.choice((1.0, 2.0)),
        )
    return TenantPlan(shares=shares, half_life_s=30.0, min_run_s=rng.choice((0.0, 0.0, 5.0)))


class History:
    """One engine and what happens to it."""

    def __init__(self, rng: random.Random, tenancy: str) -> None:
        self.rng = rng
        self.tenancy = tenancy
        plan = random_plan(rng)
        self.plan: CellPlan = plan
        self.gone: list[CellEntry] = []
        """Top cells that have left and may come back."""
        first = self._cluster(plan)
        self.present = ClusterConfig(first, first, tenancy, has_fixed_nodes=False)
        self.world = World(of=first, tenancy=tenancy, policy=rng.choice(POLICIES))
        self.world.engine.step(0.0, [TimerFired()])
        self.orders: list[Decision] = []
        self.down: set[NodeId] = set()
        self.jobs = 0

    def _cluster(self, plan: CellPlan) -> Cluster:
        nodes = cluster_from(plan).nodes
        if self.tenancy == "cells":
            return Cluster(nodes=nodes, cells=plan)
        return Cluster(nodes=nodes, tenants=random_shares(self.rng, sum(node.devices for node in nodes)))

    def step(self) -> None:
        """Something happens."""
        self.world.pass_s(self.rng.choice((0.0, 1.0, 3.0)))
        chance = self.rng.random()
        if chance < 0.35:
            self._submit()
        elif chance < 0.6:
            self._answer()
        elif chance < 0.75:
            self._end()
        elif chance < 0.9:
            self._fault()
        else:
            self._change()
        if self.world.engine.wakeup_s <= self.world.now_s:
            self._take(TimerFired())
        self._recount()

    def end(self) -> None:
        """Everything heals; every job that can still run does."""
        for name in sorted(self.down):
            self._take(NodeBack(name))
        for accounts in self.world.state.inventory.nodes:
            if accounts.drained and not accounts.removed:
                self._take(NodeUndrained(accounts.node.id))
        for _ in range(20 * self.jobs + 20):
            self._answer(everyone=True)
            self.world.pass_s(6.0)
            self._take(TimerFired())
            self._end(everyone=True)
            if not self.orders and all(live.state.is_final for live in self.world.state.jobs.values()):
                break
        self._recount()
        cluster = self.present.cluster
        alone = allocator(self.tenancy, style("consolidate"), cluster)
        for live in self.world.state.jobs.values():
            if not live.state.is_final:
                twin = LiveJob(live.job, 0, 0.0, 1.0)
                twin.demoted = live.demoted
                answer = alone.offer(twin, Inventory(cluster), 1e300)
                assert isinstance(answer, Reason), f"job {live.job.id} is lost: {self.world.why(live.job.id)}"

    def _recount(self) -> None:
        ledger = self.world.state.ledger
        if isinstance(ledger, CellAllocator):
            check_cells(ledger.accounts)

    def _take(self, *events: Event) -> None:
        self.orders += self.world.step(*events)

    def _submit(self) -> None:
        rng = self.rng
        priority = rng.choice((OPPORTUNISTIC, 0, 0, 3))
        role = Role(count=rng.choice((1, 1, 2, 3)), device_milli=1000 * rng.choice((1, 1, 2)))
        self.jobs += 1
        job = Job(
            id=JobId(f"j{self.jobs}"),
            roles=(role,),
            tenant=TenantId(rng.choice(TENANTS)),
            user=rng.choice(("", "ann", "bob")),
            priority=priority,
            work=1e6 * rng.randint(1, 30),
            labels=(("lazy_preemption", "true"),) if rng.random() < 0.3 else (),
        )
        if self.world.engine.refuse(job) is None:
            self.orders += self.world.submit(job=job)

    def _answer(self, *, everyone: bool = False) -> None:
        while self.orders:
            order = self.orders.pop(0)
            live = self.world.state.live(order.job_id)
            if isinstance(order, Start) and live.state is JobState.STARTING:
                self._take(Started(order.job_id, 1.0, self.world.now_s))
            elif isinstance(order, Stop) and live.stopping is not None:
                self._take(Stopped(order.job_id, live.work_done(self.world.now_s)))
            if not everyone and self.rng.random() < 0.3:
                return

    def _running(self) -> list[LiveJob]:
        return [
            live for live in self.world.state.jobs.values() if live.state is JobState.RUNNING and live.stopping is None
        ]

    def _end(self, *, everyone: bool = False) -> None:
        running = self._running()
        for live in running if everyone else self.rng.sample(running, min(1, len(running))):
            if live.state is JobState.RUNNING and live.stopping is None:
                self._take(JobEnded(live.job.id, End.SUCCEEDED, live.work_done(self.world.now_s)))

    def _fault(self) -> None:
        inventory = self.world.state.inventory
        index = self.rng.randrange(len(inventory.nodes))
        accounts = inventory.nodes[index]
        name = accounts.node.id
        if accounts.removed:
            return
        if self.rng.random() < 0.3:
            self._take(NodeUndrained(name) if accounts.drained else NodeDrained(name))
        elif name in self.down:
            self.down.discard(name)
            self._take(NodeBack(name))
        else:
            self.down.add(name)
            hit = [
                live
                for live in self.world.state.jobs.values()
                if live.state in (JobState.STARTING, JobState.RUNNING) and self._is_on(live, index)
            ]
            self._take(NodeLost(name), *(Interrupted(live.job.id, live.work) for live in hit))

    def _is_on(self, live: LiveJob, index: int) -> bool:
        _, leaving = self.world.state.vacating.get(live.job.id, (live, ()))
        return any(slot.node == index for slot in ((live.placement or ()) if live.stopping is None else leaving))

    def _change(self) -> None:
        """New promises, and half of the time other hardware; refused where a manager would refuse it."""
        plan = changed_cells(self.rng, self.plan, self.gone) if self.rng.random() < 0.5 else self.plan
        plan = replace(plan, tenants=random_tenants(self.rng, plan))
        inventory = self.world.state.inventory
        try:
            after = self._cluster(plan)
            events = self.present.way_to(after, self.world.state)
        except RotaError:
            return
        self._take(*events)
        self.present.became(after, self.world.state)
        self.plan = plan
        self.down = {
            name
            for name in self.down
            if not inventory.nodes[inventory.by_name[name]].removed and not inventory.nodes[inventory.by_name[name]].up
        }


def history(rng: random.Random, tenancy: str, steps: int = 100) -> None:
    """A whole history."""
    course = History(rng, tenancy)
    for _ in range(steps):
        course.step()
    course.end()


if __name__ == "__main__":
    first, last = (int(word) for word in sys.argv[1:])
    for seed in range(first, last):
        for tenancy in ("cells", "quota"):
            try:
                history(random.Random(seed), tenancy)
            except BaseException:
                print(f"seed {seed} {tenancy}")
                raise
    print(f"{last - first} histories of 100 steps under each tenancy, no internal error")
