"""The accounts agree with the journal, whatever preempts, shares, resizes and moves jobs, also across kills."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from accounts.journal_accounts import JournalAccounts, summed
from rota.core.engine.engine import Engine
from rota.core.messages.decisions import Decision, Move, Resize, Resume, Start, Stop, Suspend
from rota.core.messages.events import (
    End,
    Event,
    Interrupted,
    JobArrived,
    JobCancelled,
    JobEnded,
    JobRequeued,
    Moved,
    Resized,
    Resumed,
    Started,
    Stopped,
    Suspended,
    TimerFired,
)
from rota.core.messages.reasons import Reason
from rota.core.model.cluster import Cluster
from rota.core.model.job import Checkpoint, DeviceType, Elastic, Job, JobId, Role, TenantId
from rota.core.state.state import State
from rota.drivers.simulator.run import run
from rota.drivers.simulator.study import Setting, scheduler
from rota.drivers.simulator.world import World
from rota.live.accounts.ledger import UsageLedger
from rota.live.loop.dependents import Dependents
from rota.mechanisms.declare import Knowledge
from rota.placement import style
from rota.policies import find_policy
from rota.store import clock
from rota.store.accounts.usage import UsageRow
from rota.store.database import open_database
from rota.store.records import Records, WriteBatch
from rota.tenancy import allocator
from rota.traces.workload import Submission

CLUSTER = Cluster.uniform(("A100", 16, 4), ("V100", 16, 8))
TYPES = [str(node.device_type) for node in CLUSTER.nodes]


class Accounting:
    """A journal that keeps accounts as the loop does, and is sometimes killed and started again between two steps."""

    def __init__(self, rng: random.Random) -> None:
        self.engine: Engine
        self.counted = JournalAccounts(TYPES)
        self.rows: list[UsageRow] = []
        self.orders: Counter[str] = Counter()
        self._rng = rng
        self._ledger: UsageLedger | None = None
        self._dependents: Dependents | None = None

    def _begin(self) -> UsageLedger:
        """The ledger of a manager that starts before any job has arrived."""
        jobs, self.engine.state.jobs = self.engine.state.jobs, {}
        try:
            return UsageLedger(self.engine.state)
        finally:
            self.engine.state.jobs = jobs

    def append(
        self,
        now_s: float,
        events: Sequence[Event],
        decisions: Sequence[Decision],
        waits: Sequence[tuple[JobId, Reason]],
    ) -> None:
        state = self.engine.state
        if self._ledger is None or self._dependents is None:
            self._ledger, self._dependents = self._begin(), Dependents(state)
        self.counted.step(now_s, events, decisions)
        self.orders.update(type(each).__name__ for each in (*events, *decisions))
        for job_id in self._dependents.touched(events, decisions):
            live = state.jobs[job_id]
            self.rows += self._ledger.account(live, live.job.user, now_s)
        if self._rng.random() < 0.01:
            self._ledger = UsageLedger(state)  # killed and started again


def random_job(rng: random.Random, number: int) -> Job:
    """A job of any kind: of a fraction, elastic, of one type only, that saves or not."""
    kind = rng.random()
    if kind < 0.2:
        role, elastic = Role(count=1, device_milli=rng.choice((250, 500, 700))), None
    elif kind < 0.4:
        most = rng.choice((2, 4, 8))
        role, elastic = Role(count=most, device_milli=1000), Elastic(min_tasks=1, max_tasks=most)
    else:
        role, elastic = Role(count=rng.choice((1, 1, 2, 4)), device_milli=1000 * rng.choice((1, 1, 2))), None
    if rng.random() < 0.3:
        role = replace(role, device_types=(DeviceType(rng.choice(("A100", "V100"))),))
    return Job(
        id=JobId(f"j{number}"),
        roles=(role,),
        elastic=elastic,
        tenant=TenantId(f"t{rng.randrange(3)}"),
        user=f"u{rng.randrange(5)}",
        labels=(("project", f"p{rng.randrange(4)}"),) if rng.random() < 0.7 else (),
        checkpoint=Checkpoint() if rng.random() < 0.8 else None,
        preemptible=True,
        work=rng.expovariate(1 / 1500) + 1,
        priority=rng.choice((-1, 0, 0, 1, 5)),
    )


@pytest.fixture
def fixed_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "shown_s", lambda at_s: at_s)


def agree(accounting: Accounting, folder: Path) -> None:
    """Write the rows as the loop does, read them back, and compare them with the independent count."""
    records = Records(open_database(folder / "accounts.db"))
    try:
        for at in range(0, len(accounting.rows), 997):
            records.write(WriteBatch(usage=accounting.rows[at : at + 997]))()
        stored = {row[:5]: row.device_s for row in records.usage.between(0, 1e12)}
        ended = sum(row.jobs for row in records.usage.between(0, 1e12))
    finally:
        records.close()
    for places in ((0, 1, 2, 3, 4), (1, 2), (3,), (4,)):
        mine, theirs = summed(stored, *places), accounting.counted.by(*places)
        assert mine.keys() == theirs.keys()
        assert all(abs(mine[key] - theirs[key]) < 1.0 for key in mine), places
    assert ended == sum(live.state.is_final for live in accounting.engine.state.jobs.values())


POLICIES = {
    "srtf": ["Stop", "Resize"],
    "tiresias": ["Stop", "Resized"],
    "gandiva": ["Suspend", "Resize", "Resume", "Move"],
    "antman": ["Stop", "Resize"],
    "afs-l": ["Stop", "Resized"],
}


@pytest.mark.usefixtures("fixed_clock")
@pytest.mark.parametrize(
    "jobs", [pytest.param(250, marks=pytest.mark.slow), pytest.param(2000, marks=pytest.mark.long)]
)
@pytest.mark.parametrize("policy", POLICIES)
def test_accounts_agree_with_the_journal(policy: str, jobs: int, tmp_path: Path) -> None:
    rng = random.Random(policy)
    setting = Setting(cluster=CLUSTER)
    built, alloc, _ = scheduler(policy, setting)
    accounting = Accounting(rng)
    engine = accounting.engine = Engine(State(CLUSTER), built, alloc, journal=accounting)
    at_s, submissions = 0.0, []
    for number in range(jobs):
        at_s += rng.expovariate(1 / 90)
        submissions.append(Submission(job=random_job(rng, number), submit_s=at_s))

    run(engine, World(CLUSTER, setting.speed, setting.costs, overlaps=engine.overlaps), submissions)

    assert [what for what in POLICIES[policy] if what != "Move" and not accounting.orders[what]] == []
    agree(accounting, tmp_path)


class LateDriver:
    """Answers orders late; jobs end, break off, are cancelled and sent back to the queue at any moment."""

    def __init__(self, engine: Engine, rng: random.Random) -> None:
        self.engine, self.rng = engine, rng
        self.due: list[tuple[float, int, Event]] = []
        self.open: dict[JobId, Decision] = {}
        self._count = 0

    def later(self, at_s: float, event: Event) -> None:
        self._count += 1
        heapq.heappush(self.due, (at_s, self._count, event))

    def run(self) -> None:
        while self.due:
            now_s, _, event = heapq.heappop(self.due)
            if self._fits(event):
                self._carry_out(self.engine.step(now_s, [event]), now_s)

    def _fits(self, event: Event) -> bool:
        """Whether an event can happen still."""
        if isinstance(event, JobArrived | TimerFired):
            return True
        live = self.engine.state.jobs[event.job_id]  # type: ignore[union-attr]
        order = self.open.get(live.job.id)
        match event:
            case JobCancelled():
                return not live.state.is_final
            case JobRequeued():
                return live.run_since_s is not None and not live.is_leaving and order is None
            case JobEnded() | Interrupted():
                happens = live.run_since_s is not None and (order is None or isinstance(order, Stop))
                return happens and self.open.pop(live.job.id, None) is order
            case _:
                return isinstance(order, _ANSWERED[type(event)]) and self.open.pop(live.job.id) is order

    def _carry_out(self, decisions: Sequence[Decision], now_s: float) -> None:
        for order in decisions:
            live, at_s = self.engine.state.jobs[order.job_id], now_s + self.rng.expovariate(1 / 30)
            if isinstance(order, Resize) and order.job_id not in self.engine.state.vacating:
                continue  # another share of the same devices: nothing to answer
            self.open[order.job_id] = order
            work = live.work_done(now_s)
            match order:
                case Start():
                    self.later(at_s, Started(order.job_id, 1.0, at_s))
                    self.later(at_s + self.rng.expovariate(1 / 2000), JobEnded(order.job_id, End.SUCCEEDED, work))
                    for kind in (JobRequeued, JobCancelled):
                        if self.rng.random() < 0.1:
                            self.later(at_s + self.rng.expovariate(1 / 1500), kind(order.job_id))
                    if self.rng.random() < 0.1:
                        self.later(at_s + self.rng.expovariate(1 / 1500), Interrupted(order.job_id, work))
                case Stop():
                    self.later(at_s, Stopped(order.job_id, work))
                case Suspend():
                    self.later(at_s, Suspended(order.job_id, work))
                case Resume():
                    self.later(at_s, Resumed(order.job_id, 1.0, at_s))
                case Resize():
                    self.later(at_s, Resized(order.job_id, work, 1.0, at_s))
                case Move():
                    self.later(at_s, Moved(order.job_id, work, 1.0, at_s))
        if self.engine.wakeup_s < 1e12:
            self.later(max(self.engine.wakeup_s, now_s), TimerFired())


_ANSWERED = {Started: Start, Stopped: Stop, Suspended: Suspend, Resumed: Resume, Resized: Resize, Moved: Move}


@pytest.mark.slow
@pytest.mark.usefixtures("fixed_clock")
@pytest.mark.parametrize("policy", ["priority", "las", "fair-share"])
def test_accounts_agree_where_orders_are_answered_late(policy: str, tmp_path: Path) -> None:
    rng = random.Random(f"late {policy}")
    declared, options = find_policy(policy)
    alloc = allocator("none", style("consolidate"), CLUSTER)
    accounting = Accounting(rng)
    built = declared.build(options, alloc, Knowledge())
    engine = accounting.engine = Engine(State(CLUSTER), built, alloc, journal=accounting)
    driver = LateDriver(engine, rng)
    for number in range(300):
        driver.later(rng.uniform(0, 20_000), JobArrived(replace(random_job(rng, number), work=None)))

    driver.run()

    assert accounting.orders["Interrupted"] > 10
    assert accounting.orders["Stopped"] > 20
    agree(accounting, tmp_path)


def test_a_share_that_is_not_noted_is_found(tmp_path: Path) -> None:
    """The comparison itself can fail: half a second more of one job is not seen, two seconds are."""
    accounting = Accounting(random.Random(1))
    built, alloc, _ = scheduler("fifo", Setting(cluster=CLUSTER))
    engine = accounting.engine = Engine(State(CLUSTER), built, alloc, journal=accounting)
    asked = replace(random_job(random.Random(2), 1), elastic=None, roles=(Role(count=1, device_milli=1000),))
    run(
        engine,
        World(CLUSTER, Setting(cluster=CLUSTER).speed, Setting(cluster=CLUSTER).costs),
        [Submission(job=asked, submit_s=0.0)],
    )
    charged = next(row for row in accounting.rows if row.device_s)

    accounting.rows.append(charged._replace(device_s=2.0))

    with pytest.raises(AssertionError):
        agree(accounting, tmp_path)
