"""Orders that are repeated or come too late: tasks start once, and the end of a job is answered once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from builders import Script, cluster, job, node, on
from local_drivers import Bench, until, with_driver
from rota.core.engine.draft import Draft
from rota.core.engine.engine import Engine
from rota.core.messages.decisions import Cause, Decision, Resize, Start, Stop
from rota.core.messages.events import Event, JobArrived, JobCancelled, JobEnded, Resized, Started, Stopped
from rota.core.model.job import JobId, JobState
from rota.core.model.placement import packed
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.drivers.kubernetes.api.client import Api
from rota.drivers.kubernetes.api.connection import Connection
from rota.drivers.kubernetes.driver import Known, KubernetesDriver
from rota.drivers.kubernetes.gangs.gang import Gang
from rota.drivers.kubernetes.settings import ClusterSettings
from rota.drivers.local.driver import LocalDriver
from rota.drivers.simulator.run import run
from rota.drivers.simulator.study import Setting, scheduler
from rota.drivers.simulator.world import World
from rota.live.loop.record import Record
from rota.placement import style
from rota.tenancy import allocator
from rota.traces.workload import Submission

NAME = JobId("1")
HERE = on("n1", 1)


class Rig:
    """An engine whose policy does what the test says, in front of a local driver with real tasks."""

    def __init__(self, bench: Bench, run: str) -> None:
        self.bench = bench
        self.script = Script()
        self.engine = Engine(State(cluster(node("n1", 4))), self.script, allocator("none", style("any")))
        record = Record(f'{{"run": "{run}", "checkpoint": {{"grace": 0.5}}}}')
        record.attempt = 1
        self.driver = LocalDriver(bench.driver, self.engine.state, {NAME: record})
        self.script.todo = [lambda draft: draft.assign(self.live, HERE)]
        self.start = self.engine.step(0.0, [JobArrived(job("1", work=100.0))])

    @property
    def live(self) -> LiveJob:
        return self.engine.state.live(NAME)

    def carry_out(self, decisions: Sequence[Decision]) -> list[Event]:
        """Let the driver carry decisions out; its first answers."""
        return self.driver.carry_out(decisions, self.engine.state.now_s)


@pytest.mark.slow
def test_start_that_is_repeated_starts_each_task_once(tmp_path: Path) -> None:
    async def course(bench: Bench) -> None:
        rig = Rig(bench, f"echo begun >> {bench.home}/begun; sleep 600")
        assert rig.start == [Start(NAME, HERE)]

        rig.carry_out(rig.start)
        rig.carry_out(rig.start)
        await until(lambda: bench.events(Started))
        begun = bench.home / "begun"
        await until(begun.exists)

        rig.carry_out([Stop(NAME, Cause.CANCELLED)])
        rig.carry_out([Stop(NAME, Cause.CANCELLED)])
        await until(lambda: bench.events(Stopped))
        assert begun.read_text() == "begun\n"
        assert [type(event) for event, _ in bench.answers] == [Started, Stopped]

    with_driver(tmp_path, course)


@pytest.mark.slow
def test_orders_for_a_local_job_that_has_ended_are_answered_by_its_end(tmp_path: Path) -> None:
    async def course(bench: Bench) -> None:
        rig = Rig(bench, "true")
        rig.driver.take_up()
        rig.carry_out(rig.start)
        await until(lambda: bench.events(JobEnded))

        rig.carry_out([Stop(NAME, Cause.PREEMPTED)])
        await asyncio.sleep(0.2)

        assert [type(event) for event, _ in bench.answers] == [Started, JobEnded]

    with_driver(tmp_path, course)


@pytest.mark.slow
def test_changed_fraction_is_answered_at_once_and_restarts_nothing(tmp_path: Path) -> None:
    async def course(bench: Bench) -> None:
        rig = Rig(bench, "sleep 600")
        rig.carry_out(rig.start)
        await until(lambda: bench.events(Started))
        rig.engine.step(1.0, [Started(NAME, 1.0, 1.0)])
        half = packed(HERE, 500)

        def share(draft: Draft) -> None:
            draft.share(rig.engine.state.live(NAME), half)

        rig.script.todo, rig.script.wakeup_s = [share], 1.0
        decisions = rig.engine.step(2.0, [])
        assert decisions == [Resize(NAME, half)]

        assert rig.carry_out(decisions) == [Resized(NAME, 1.0, 1.0, 2.0)]
        assert [type(event) for event, _ in bench.answers] == [Started]
        bench.driver.stop(NAME, Cause.CANCELLED)
        await until(lambda: bench.events(Stopped))

    with_driver(tmp_path, course)


def test_cancellation_at_the_moment_of_the_end_comes_too_late_in_a_simulation() -> None:
    setting = Setting(cluster=cluster(node("n1", 4)))
    policy, alloc, _ = scheduler("fifo", setting)
    engine = Engine(State(setting.cluster), policy, alloc)
    world = World(setting.cluster, setting.speed, setting.costs)
    submissions = [Submission(job=job("1", work=10.0), submit_s=0.0)]

    run(engine, world, submissions, faults=iter([(10.0, JobCancelled(NAME))]))

    assert engine.state.live(NAME).state is JobState.SUCCEEDED


class Sink:
    """Takes the events of a Kubernetes driver."""

    def __init__(self) -> None:
        self.state = State(cluster(node("n1", 4)))
        self.events: list[Event] = []
        self.is_settled = True

    def deliver(self, events: Sequence[Event], arriving: dict[JobId, Gang], why: dict[JobId, str]) -> None:
        self.events.extend(events)

    def refuse(self, job: object) -> str | None:
        return None

    def is_used(self, name: JobId) -> bool:
        return False


def test_stop_for_pods_that_are_gone_is_answered_by_nothing_more() -> None:
    async def main() -> None:
        api = Api(Connection(server="http://127.0.0.1:1"))
        driver, sink = KubernetesDriver(api, ClusterSettings()), Sink()
        sink.state.admit(job("1"), 1.0)
        driver.attach(sink, Known())
        driver.take_up()
        known = list(sink.events)

        for _ in range(2):
            assert driver.carry_out([Stop(NAME, Cause.CANCELLED)], 1.0) == []
            driver.ended(NAME, cancelled=True)

        assert sink.events == known
        await driver.close()
        await api.close()

    asyncio.run(main())
