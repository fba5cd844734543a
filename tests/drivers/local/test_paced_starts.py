"""Many starts at once: spread over turns of the loop, and limited where no device limits them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rota.core.engine.driver import ExitDetail
from rota.core.messages.decisions import Cause
from rota.core.messages.events import End, Event, JobEnded, Stopped
from rota.core.model.job import Job, JobId, Role
from rota.core.model.placement import Placement, Slot
from rota.drivers.local.launch_order import LaunchOrder
from rota.drivers.local.paced_starts import TURN_S, PacedStarts
from rota.files.job import Launch


class Recorder:
    """Attempts that only note their orders, each of which takes a while."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.orders: list[tuple[str, str]] = []
        self._takes_s = takes_s

    def start(self, order: LaunchOrder) -> None:
        time.sleep(self._takes_s)
        self.orders.append(("start", order.job.id))

    def find(self, order: LaunchOrder, stopping: Cause | None = None) -> None:
        self.orders.append(("find", order.job.id))

    def find_held(self, order: LaunchOrder) -> None:
        self.orders.append(("find held", order.job.id))

    def resize(self, order: LaunchOrder, before: Placement) -> None:
        self.orders.append(("resize", order.job.id))

    def share(self, job_id: JobId, placement: Placement) -> None:
        self.orders.append(("share", job_id))

    def suspend(self, job_id: JobId) -> None:
        self.orders.append(("suspend", job_id))

    def resume(self, job_id: JobId) -> None:
        self.orders.append(("resume", job_id))

    def stop(self, job_id: JobId, cause: Cause) -> None:
        self.orders.append(("stop", job_id))

    def settle(self) -> None:
        self.orders.append(("settle", ""))

    def close(self) -> None:
        self.orders.append(("close", ""))


class Bench:
    """Paced starts with a loop that the test turns by hand."""

    def __init__(self, tmp_path: Path, *, most_tasks: int = 4, takes_s: float = 0.0) -> None:
        self.due: list[Callable[[], None]] = []
        self.events: list[Event] = []
        self.recorder = Recorder(takes_s)
        self.starts = PacedStarts(tmp_path, self._answer, self._later, most_tasks)
        self.starts.attach(self.recorder)

    def _answer(self, event: Event, detail: ExitDetail) -> None:
        self.events.append(event)

    def _later(self, delay_s: float, work: Callable[[], None]) -> None:
        self.due.append(work)

    def turn(self) -> None:
        due, self.due = self.due, []
        for work in due:
            work()

    def end(self, name: str) -> None:
        self.starts.answered(JobEnded(JobId(name), End.SUCCEEDED, 0.0), ExitDetail())

    @property
    def started(self) -> list[str]:
        return [name for what, name in self.recorder.orders if what == "start"]


def order(name: str, tasks: int = 1, gpus: int = 0, user: str = "") -> LaunchOrder:
    job = Job(id=JobId(name), user=user or name, roles=(Role(name="worker", count=tasks, device_milli=gpus * 1000),))
    placement = (Slot(0, (1 << gpus * tasks) - 1, tasks),)
    return LaunchOrder(
        job=job, launch=Launch(name=name, roles=()), placement=placement, attempt=1, failures=0, work_s=0.0
    )


def test_single_start_is_immediate(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    bench.starts.start(order("a"))

    assert bench.started == ["a"]


@pytest.mark.slow
def test_many_starts_are_spread_over_turns(tmp_path: Path) -> None:
    bench = Bench(tmp_path, most_tasks=100, takes_s=TURN_S / 2)
    for number in range(12):
        bench.starts.start(order(str(number)))
    at_once = len(bench.started)

    for _ in range(20):
        bench.turn()

    assert 1 <= at_once <= 4
    assert bench.started == [str(number) for number in range(12)]


def test_tasks_without_devices_are_limited_and_others_are_not(tmp_path: Path) -> None:
    bench = Bench(tmp_path, most_tasks=4)
    for name in ("a", "b", "c"):
        bench.starts.start(order(name, tasks=2))
    bench.starts.start(order("devices", tasks=4, gpus=1))
    bench.turn()

    assert bench.started == ["a", "b", "devices"]

    bench.end("a")
    bench.turn()

    assert bench.started == ["a", "b", "devices", "c"]


def test_one_user_leaves_room_for_others(tmp_path: Path) -> None:
    bench = Bench(tmp_path, most_tasks=4)
    for number in range(10):
        bench.starts.start(order(f"a{number}", user="ann"))
    bench.starts.start(order("b0", user="bob"))
    bench.turn()

    assert bench.started == ["a0", "a1", "a2", "b0"]


def test_job_larger_than_the_limit_starts_alone(tmp_path: Path) -> None:
    bench = Bench(tmp_path, most_tasks=4)
    bench.starts.start(order("small"))
    bench.starts.start(order("large", tasks=9))
    assert bench.started == ["small"]

    bench.end("small")
    bench.turn()

    assert bench.started == ["small", "large"]


def test_stop_of_a_start_that_waits_is_answered_without_a_process(tmp_path: Path) -> None:
    bench = Bench(tmp_path, most_tasks=1)
    bench.starts.start(order("a"))
    bench.starts.start(order("b"))

    bench.starts.stop(JobId("b"), Cause.CANCELLED)
    bench.turn()

    assert bench.events == [Stopped(JobId("b"), 0.0)]
    assert bench.recorder.orders == [("start", "a")]


def test_attempt_that_was_begun_is_found_at_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, most_tasks=1)
    begun = order("b")
    from rota.store.run_folder import attempt_folder

    attempt_folder(tmp_path, begun.job.id, 1).mkdir(parents=True)
    bench.starts.start(order("a"))

    bench.starts.start(begun)

    assert bench.started == ["a", "b"]


def test_order_for_a_start_that_waits_starts_it_first(tmp_path: Path) -> None:
    bench = Bench(tmp_path, most_tasks=1)
    bench.starts.start(order("a"))
    bench.starts.start(order("b"))

    bench.starts.suspend(JobId("b"))

    assert bench.recorder.orders == [("start", "a"), ("start", "b"), ("suspend", "b")]
