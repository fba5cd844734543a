"""What the local driver orders for a job in each phase: by decision, and again after a restart of the manager."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from builders import Script, cluster, job, node, on
from rota.core.engine.draft import Draft
from rota.core.engine.engine import Engine
from rota.core.engine.protocols import Capabilities
from rota.core.messages.decisions import Cause
from rota.core.messages.events import Event, JobArrived, JobCancelled, Started, Suspended
from rota.core.model.job import JobId
from rota.core.model.placement import Placement
from rota.core.state.job_record import LiveJob
from rota.core.state.phases import Phase
from rota.core.state.state import State
from rota.drivers.local.driver import LocalDriver
from rota.drivers.local.launch_order import LaunchOrder
from rota.live.loop.record import Record
from rota.placement import style
from rota.tenancy import allocator

A = JobId("a")
HERE, THERE = on("n1", 1), on("n2", 1)


class Suspending(Script):
    """A script that looks after suspended jobs."""

    capabilities = Capabilities(suspends=True)


class Orders:
    """Records what the driver orders, each with the devices that it is about."""

    def __init__(self) -> None:
        self.made: list[tuple[object, ...]] = []

    def start(self, order: LaunchOrder) -> None:
        self.made.append(("start", order.placement))

    def find(self, order: LaunchOrder, stopping: Cause | None = None) -> None:
        self.made.append(("find", order.placement))

    def find_held(self, order: LaunchOrder) -> None:
        self.made.append(("find held", order.job.id))

    def resize(self, order: LaunchOrder, before: Placement) -> None:
        self.made.append(("resize", order.placement, before))

    def share(self, job_id: JobId, placement: Placement) -> None:
        self.made.append(("share", placement))

    def suspend(self, job_id: JobId) -> None:
        self.made.append(("suspend",))

    def resume(self, job_id: JobId) -> None:
        self.made.append(("resume",))

    def stop(self, job_id: JobId, cause: Cause) -> None:
        self.made.append(("stop", cause))

    def settle(self) -> None:
        pass

    def close(self) -> None:
        pass


class Rig:
    """A job on one of two nodes, under a policy that does what the test says."""

    def __init__(self) -> None:
        self.script, self.orders = Suspending(), Orders()
        self.engine = Engine(State(cluster(node("n1", 1), node("n2", 1))), self.script, allocator("none", style("any")))
        self.driver = LocalDriver(self.orders, self.engine.state, {A: Record('{"run": "true"}')})
        self.act(lambda draft: draft.assign(self.live, HERE), JobArrived(job("a", work=100.0)))

    @property
    def live(self) -> LiveJob:
        return self.engine.state.live(A)

    def act(self, step: Callable[[Draft], None] | None, *events: Event) -> None:
        now_s = self.engine.state.now_s + 1.0
        self.script.todo, self.script.wakeup_s = ([] if step is None else [step]), now_s
        self.driver.carry_out(self.engine.step(now_s, list(events)), now_s)

    def run(self) -> None:
        self.act(None, Started(A, 1.0, 1.0))

    def suspend(self) -> None:
        self.act(lambda draft: draft.suspend(self.live))

    def rest(self) -> None:
        self.suspend()
        self.act(None, Suspended(A, 1.0))

    def taken_up(self) -> list[tuple[object, ...]]:
        """What another driver on the same state orders first."""
        self.orders.made.clear()
        self.driver.take_up()
        return self.orders.made


def _starting(rig: Rig) -> None:
    """As it is after the first plan."""


def _running(rig: Rig) -> None:
    rig.run()


def _suspending(rig: Rig) -> None:
    rig.run()
    rig.suspend()


def _suspended(rig: Rig) -> None:
    rig.run()
    rig.rest()


def _resuming(rig: Rig) -> None:
    _suspended(rig)
    rig.act(lambda draft: draft.resume(rig.live))


def _moving(rig: Rig) -> None:
    _suspended(rig)
    rig.act(lambda draft: draft.move(rig.live, THERE))


def _moved_while_running(rig: Rig) -> None:
    rig.run()
    rig.act(lambda draft: draft.move(rig.live, THERE))


def _stopping(rig: Rig) -> None:
    rig.run()
    rig.act(None, JobCancelled(A))


def _stopping_suspended(rig: Rig) -> None:
    _suspended(rig)
    rig.act(None, JobCancelled(A))


@pytest.mark.parametrize(
    ("lead", "phase", "orders"),
    [
        (_starting, Phase.STARTING, [("start", HERE)]),
        (_running, Phase.RUNNING, [("find", HERE)]),
        (_suspending, Phase.SUSPENDING, [("find", HERE), ("suspend",)]),
        (_suspended, Phase.SUSPENDED, [("find", HERE)]),
        (_resuming, Phase.RESUMING, [("find", HERE), ("resume",)]),
        (_moving, Phase.MOVING, [("resize", THERE, HERE)]),
        (_moved_while_running, Phase.RESIZING, [("resize", THERE, HERE)]),
        (_stopping, Phase.STOPPING, [("find", HERE), ("stop", Cause.CANCELLED)]),
        (_stopping_suspended, Phase.STOPPING_SUSPENDED, [("find", HERE), ("stop", Cause.CANCELLED)]),
    ],
    ids=lambda value: value.label if isinstance(value, Phase) else "",
)
def test_after_a_restart_the_unanswered_order_is_repeated(
    lead: Callable[[Rig], None], phase: Phase, orders: list[tuple[object, ...]]
) -> None:
    rig = Rig()
    lead(rig)
    assert rig.live.phase is phase

    assert rig.taken_up() == orders


def test_suspended_job_that_is_moved_starts_on_its_new_devices() -> None:
    rig = Rig()
    _suspended(rig)
    rig.orders.made.clear()

    rig.act(lambda draft: draft.move(rig.live, THERE))

    assert rig.orders.made == [("resize", THERE, HERE)]
