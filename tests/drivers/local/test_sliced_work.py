"""Work in slices: turns, waits, and starts of many tasks that are interrupted."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from local_drivers import Bench, until, with_driver
from rota.core.messages.decisions import Cause
from rota.core.messages.events import End, JobEnded, Started, Stopped
from rota.drivers.local import sliced_work
from rota.drivers.local.sliced_work import LONGEST_START_S, SideThread, SlicedWork, StartSlots, Steps
from rota.store.run_folder import read_json


@dataclass(frozen=True, slots=True, eq=False)
class Timer:
    """What is to be done later."""

    turns: Turns
    wait_s: float
    what: Callable[[], None]

    def cancel(self) -> None:
        self.turns.due.remove(self)


class Turns:
    """A loop that the test turns by hand."""

    def __init__(self) -> None:
        self.due: list[Timer] = []
        self.work = SlicedWork(self._later)
        self.seen: list[str] = []

    def _later(self, wait_s: float, what: Callable[[], None]) -> Timer:
        self.due.append(Timer(self, wait_s, what))
        return self.due[-1]

    def turn(self) -> list[float]:
        due, self.due = self.due, []
        for timer in due:
            timer.what()
        return [timer.wait_s for timer in due]

    def steps(self, name: str, count: int, *, waits_s: float = 0.0) -> Steps[None]:
        for number in range(count):
            self.seen.append(f"{name}{number}")
            yield waits_s


@pytest.fixture
def long_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sliced_work, "SLICE_S", 60.0)


@pytest.fixture
def one_step_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sliced_work, "SLICE_S", 0.0)


@pytest.mark.usefixtures("long_slices")
def test_short_work_is_done_at_once() -> None:
    turns = Turns()
    turns.work.add(turns.steps("a", 3))
    assert turns.seen == ["a0", "a1", "a2"]
    assert not turns.due


@pytest.mark.usefixtures("one_step_a_slice")
def test_long_work_leaves_the_loop_after_a_slice_and_the_next_piece_does_not_wait_for_its_end() -> None:
    turns = Turns()
    turns.work.add(turns.steps("a", 4))
    assert turns.seen == ["a0"]
    turns.work.add(turns.steps("b", 1))
    turns.turn()
    turns.turn()
    assert turns.seen == ["a0", "a1", "b0"]


@pytest.mark.usefixtures("long_slices")
def test_step_that_has_to_wait_holds_up_no_other_piece() -> None:
    turns = Turns()
    turns.work.add(turns.steps("a", 2, waits_s=5.0))
    turns.work.add(turns.steps("b", 2))
    assert turns.seen == ["a0", "b0", "b1"]
    assert turns.turn() == [5.0]
    assert turns.seen[-1] == "a1"


@pytest.mark.usefixtures("one_step_a_slice")
def test_closed_work_takes_no_further_step() -> None:
    turns = Turns()
    turns.work.add(turns.steps("a", 3))
    turns.work.close()
    turns.work.add(turns.steps("b", 1))
    assert turns.turn() == []
    assert turns.seen == ["a0"]


def test_step_that_waits_in_the_kernel_holds_up_neither_the_loop_nor_another_piece() -> None:
    held = threading.Event()
    seen: list[object] = []

    async def course() -> None:
        work = SlicedWork(asyncio.get_running_loop().call_later)
        side = SideThread(waits=True)

        def slow() -> Steps[None]:
            seen.append((yield from side.call(held.wait, 30)))
            with pytest.raises(OSError, match="no such"):
                yield from side.call(_fail)
            yield from side.run(iter([0.001, 0.0]))
            seen.append("slow")

        def quick() -> Steps[None]:
            yield 0.0
            seen.append("quick")

        work.add(slow())
        work.add(quick())
        await until(lambda: seen == ["quick"])
        held.set()
        await until(lambda: seen == ["quick", True, "slow"])
        side.close()

    asyncio.run(course())


def _fail() -> None:
    raise OSError("no such cgroup")


def test_where_nothing_waits_calls_are_made_at_once() -> None:
    turns, seen = Turns(), []

    async def course() -> None:
        side = SideThread(waits=False)

        def work() -> Steps[None]:
            seen.append((yield from side.call(len, "abc")))
            yield from side.run(iter([0.0]))
            seen.append(0)

        turns.work.add(work())

    asyncio.run(course())
    turns.turn()
    assert seen == [3, 0]


def test_only_a_few_tasks_start_at_a_time_and_one_that_hangs_does_not_count_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slots = StartSlots(2)
    starting = {"a": True, "b": True}
    with slots.taken(lambda: starting["a"]):
        assert not slots.is_full
    with slots.taken(lambda: False):
        assert slots.is_full, "one that is made ready counts, though it has not begun to start"
    assert not slots.is_full
    with slots.taken(lambda: starting["b"]):
        pass
    assert slots.is_full
    starting["a"] = False
    assert not slots.is_full
    with slots.taken(lambda: True):
        pass
    assert slots.is_full
    later_s = time.monotonic() + LONGEST_START_S + 1.0
    monkeypatch.setattr(time, "monotonic", lambda: later_s)
    assert not slots.is_full


@pytest.fixture
def one_task_a_slice(one_step_a_slice: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sliced_work, "REST_S", 0.05)


@pytest.mark.slow
@pytest.mark.usefixtures("one_task_a_slice")
def test_gang_that_is_stopped_while_it_starts_starts_no_further_task(tmp_path: Path) -> None:
    async def course(bench: Bench) -> None:
        order = bench.order("touch $ROTA_RUN_DIR/ran", workers=4)
        bench.driver.start(order)
        assert (bench.folder(0) / "task.json").exists()
        bench.driver.stop(order.job.id, Cause.CANCELLED)
        await until(lambda: bench.events(Stopped))
        assert not (bench.folder(3) / "task.json").exists()
        assert read_json(bench.folder(3) / "claim") == {"supervisor": 0, "supervisor_start": -1}
        assert not bench.events(Started)
        assert not list(bench.home.glob("runs/*/shared/ran"))

    with_driver(tmp_path, course)


@pytest.mark.slow
@pytest.mark.usefixtures("one_task_a_slice")
def test_start_that_was_cut_short_continues_and_starts_each_task_once(tmp_path: Path) -> None:
    async def course(bench: Bench) -> None:
        order = bench.order("echo x >> $ROTA_RUN_DIR/ran-$ROTA_RANK", workers=4)
        bench.driver.start(order)
        bench.close()  # the manager is gone after the first of four tasks
        assert not (bench.folder(1) / "task.json").exists()
        again = Bench(bench.home)
        again.driver.start(order)
        await until(lambda: again.events(JobEnded))
        again.close()
        assert [event.end for event in again.events(JobEnded) if isinstance(event, JobEnded)] == [End.SUCCEEDED]
        ran = {path.name: path.read_text() for path in bench.home.glob("runs/*/shared/ran-*")}
        assert ran == {f"ran-{rank}": "x\n" for rank in range(4)}

    with_driver(tmp_path, course)
