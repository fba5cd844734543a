"""The live loop by itself: a real engine and database, and a driver that only notes what it is told."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from builders import cluster, job, node
from loops import running
from rota.core.codec.values import decode_job
from rota.core.engine.draft import Draft
from rota.core.engine.driver import ExitDetail
from rota.core.engine.engine import Engine
from rota.core.engine.protocols import Allocator, Policy
from rota.core.messages.decisions import Cause
from rota.core.messages.events import End, Event, JobArrived, JobEnded, Lapsed, NodeOccupied, Started
from rota.core.messages.reasons import ReasonCode
from rota.core.model.job import JobId, JobState, NodeId
from rota.core.model.placement import Placement
from rota.core.state.state import State
from rota.drivers.local.launch_order import LaunchOrder
from rota.live.estimates.oom_retry import MOST_RAISES
from rota.live.intake.submission_limits import MOST_EVENTS, portions
from rota.live.loop import control as control_module
from rota.live.loop.control import Control
from rota.live.loop.entry import LoopEntry, StepRecorder
from rota.live.loop.record import Record
from rota.placement import style
from rota.policies import find_policy
from rota.store.database import open_database
from rota.store.jobs import Query
from rota.store.records import Records
from rota.tenancy import allocator


class Notes:
    """A driver whose jobs run as soon as they are told to."""

    def __init__(self) -> None:
        self.control: Control
        self.started: list[JobId] = []

    def start(self, order: LaunchOrder) -> None:
        self.started.append(order.job.id)
        self.control.answered(Started(order.job.id, 1.0, 0.0), ExitDetail())

    def find(self, order: LaunchOrder, stopping: Cause | None = None) -> None: ...

    def resize(self, order: LaunchOrder, before: Placement) -> None: ...

    def share(self, job_id: JobId, placement: Placement) -> None: ...

    def suspend(self, job_id: JobId) -> None: ...

    def resume(self, job_id: JobId) -> None: ...

    def stop(self, job_id: JobId, cause: Cause) -> None: ...

    def find_held(self, order: LaunchOrder) -> None: ...

    def settle(self) -> None: ...

    def close(self) -> None: ...


class Ponder:
    """A policy each of whose plans waits until it may go on."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.begun, self.may_go_on = threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def plan(self, draft: Draft) -> None:
        self.begun.set()
        assert self.may_go_on.wait(timeout=20)
        self._policy.plan(draft)


def with_loop(
    tmp_path: Path, course: Callable[[Control, Notes], Awaitable[None]], policy: Policy, *, slow: bool
) -> None:
    """Run a course of events against a loop on one device."""

    async def main() -> None:
        records = Records(open_database(tmp_path / "rota.db"))
        alloc = _alloc()
        recorder = StepRecorder()
        engine = Engine(State(cluster(node("n1", 1))), policy, alloc, journal=recorder)
        control = Control(engine, recorder, records, {}, 0, plans_slowly=slow)
        driver = Notes()
        with contextlib.closing(records):
            async with running(control, driver, within_s=20.0):
                await course(control, driver)

    asyncio.run(main())


def _alloc() -> Allocator:
    return allocator("none", style("any"), cluster(node("n1", 1)))


def _rebuilt() -> tuple[Policy, Allocator]:
    alloc = _alloc()
    return find_policy("fifo")[0].build("", alloc), alloc


def arrivals(*names: str) -> LoopEntry:
    entry = LoopEntry([JobArrived(job(name)) for name in names])
    entry.records = {JobId(name): Record(json.dumps({"run": "true"})) for name in names}
    return entry


def test_loop_hears_others_while_a_plan_is_made(tmp_path: Path) -> None:
    policy, _ = _rebuilt()
    ponder = Ponder(policy)

    async def course(control: Control, driver: Notes) -> None:
        ponder.may_go_on.set()
        await control.apply(arrivals("1", "2"))
        ponder.may_go_on.clear()
        ponder.begun.clear()
        third = asyncio.ensure_future(control.apply(arrivals("3")))
        while not ponder.begun.is_set():
            await asyncio.sleep(0.001)

        waits = control.explain(JobId("2"))

        assert waits is not None
        assert waits.code is ReasonCode.DEVICES_BUSY
        assert not third.done()
        ponder.may_go_on.set()
        await third

    with_loop(tmp_path, course, cast(Policy, ponder), slow=True)


def test_end_of_a_lease_that_comes_after_its_job_ended_is_no_news(tmp_path: Path) -> None:
    policy, _ = _rebuilt()
    ponder = Ponder(policy)
    ponder.may_go_on.set()

    async def course(control: Control, driver: Notes) -> None:
        await control.apply(arrivals("1"))
        while control.state.jobs[JobId("1")].state is not JobState.RUNNING:
            await asyncio.sleep(0.001)
        ponder.may_go_on.clear()
        ponder.begun.clear()
        ended: Event = JobEnded(JobId("1"), End.SUCCEEDED, 1.0)
        control.answered(ended, ExitDetail(exit_code=0))
        while not ponder.begun.is_set():
            await asyncio.sleep(0.001)
        late = asyncio.ensure_future(control.apply(LoopEntry([Lapsed(JobId("1"), 1.0)])))
        await asyncio.sleep(0)
        ponder.may_go_on.set()
        await late
        await control.apply(arrivals("2"))
        assert JobId("1") not in control.state.jobs

    with_loop(tmp_path, course, cast(Policy, ponder), slow=True)


def test_facts_are_not_divided_among_steps() -> None:
    """A plan between two facts of one moment would use devices that the second says are taken."""
    facts: list[Event] = [NodeOccupied(NodeId(f"n{number}"), 8, 0, 0) for number in range(3 * MOST_EVENTS)]
    jobs: list[Event] = [JobArrived(job(str(number))) for number in range(2 * MOST_EVENTS)]

    assert [len(part) for part in portions(facts)] == [len(facts)]
    assert [len(part) for part in portions(facts + jobs)] == [len(facts), MOST_EVENTS, MOST_EVENTS]
    assert [len(part) for part in portions(jobs + facts)] == [MOST_EVENTS, MOST_EVENTS + len(facts)]


@pytest.mark.slow
def test_long_list_is_one_transaction_of_many_steps_with_pauses_in_between(tmp_path: Path) -> None:
    policy, _ = _rebuilt()
    names = [str(number) for number in range(3 * MOST_EVENTS + 1)]

    async def course(control: Control, driver: Notes) -> None:
        seen: list[tuple[int, int]] = []

        async def look() -> None:
            while True:
                seen.append((len(control.state.jobs), len(control.storage._records.page(Query(limit=1000)))))
                await asyncio.sleep(0)

        looking = asyncio.ensure_future(look())
        await control.apply(arrivals(*names))
        looking.cancel()

        inside = {jobs for jobs, _ in seen}
        assert {MOST_EVENTS, 2 * MOST_EVENTS, 3 * MOST_EVENTS} <= inside
        assert {stored for _, stored in seen} <= {0, len(names)}
        numbers = [json.loads(body)["n"] for body in control.storage._records.steps()]
        assert numbers[:4] == [0, 1, 2, 3]

    with_loop(tmp_path, course, policy, slow=False)


def test_job_that_ran_out_of_what_was_chosen_is_kept_with_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_module, "pause_s", lambda failures: 0.0)
    policy, _ = _rebuilt()
    spec = {
        "run": "true",
        "resources": {"gpus": 1, "memory": "1Gi"},
        "estimated": {"memory": {"given": "1Gi", "trusted": True, "error": 0.1}},
    }

    async def course(control: Control, driver: Notes) -> None:
        entry = LoopEntry([JobArrived(job("1", memory_bytes=1 << 30))])
        entry.records = {JobId("1"): Record(json.dumps(spec))}
        await control.apply(entry)
        await control.apply(LoopEntry([]))  # only now has the first entry been carried out
        for _ in range(MOST_RAISES):
            control.answered(JobEnded(JobId("1"), End.FAILED, 0.0), ExitDetail(failure="out-of-memory", exit_code=137))
            await control.apply(LoopEntry([]))
            await control.apply(LoopEntry([]))

        assert driver.started == [JobId("1")] * (1 + MOST_RAISES)
        (row,) = control.storage._records.live_jobs()
        assert decode_job(json.loads(row.job)).roles[0].memory_bytes == 1 << 30 + MOST_RAISES
        assert json.loads(row.spec)["estimated"]["memory"]["raised"] == MOST_RAISES
        control.answered(JobEnded(JobId("1"), End.FAILED, 0.0), ExitDetail(failure="out-of-memory", exit_code=137))
        await control.apply(LoopEntry([]))
        ended = control.storage._records.job("1")
        assert ended is not None
        assert (ended.state, ended.failure) == ("failed", "out-of-memory")
        assert "out of memory with 16.00 GiB, which Rota chose; that is raised at most 4 times" in ended.message

    with_loop(tmp_path, course, policy, slow=False)
