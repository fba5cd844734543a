"""Time slicing by a clock that the test sets: which job runs in each time slice, and what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from builders import on
from rota.core.model.job import JobId
from rota.core.model.placement import Placement
from rota.drivers.local.time_slicer import LAPSE_S, QUANTUM_S, TimeSlicer
from rota.store import clock


class SlicerBench:
    """A clock, jobs that run unless they are paused, and the time slicer's next call."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.orders: list[tuple[str, float | None]] = []
        self._ran_s: dict[JobId, float] = {}
        self._paused_until_s: dict[JobId, float] = {}
        self.loading: set[str] = set()
        self._due: list[Callable[[], None]] = []
        self.slicer = TimeSlicer(self, self._later)

    def time(self) -> float:
        return self.now_s

    def ran_s(self, job_id: JobId) -> float:
        return self._ran_s.setdefault(job_id, 0.0)

    def loads(self, job_id: JobId) -> bool:
        return job_id in self.loading

    def let_run(self, job_id: JobId, until_s: float | None) -> None:
        self.orders.append((job_id, until_s))
        self._paused_until_s[job_id] = -1.0 if until_s is None else until_s

    def _later(self, delay_s: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        self._due.append(call)
        return cast(asyncio.TimerHandle, call)

    def add(self, name: str, milli: int, *, in_turn: bool = True) -> None:
        self._ran_s.setdefault(JobId(name), 0.0)
        placement: Placement = tuple(slot._replace(in_turn=in_turn) for slot in on("n1", 1, milli=milli))
        self.slicer.add(JobId(name), placement)

    def slices(self, count: int) -> list[str]:
        """Let so many time slices pass; return which jobs ran in each."""
        found = []
        for _ in range(count):
            due, self._due = self._due, []
            for call in due:
                call()
            running = [name for name in self._ran_s if self._paused_until_s.get(name, -1.0) <= self.now_s]
            for name in running:
                self._ran_s[name] += QUANTUM_S
            self.now_s += QUANTUM_S
            found.append("+".join(running))
        return found


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> SlicerBench:
    made = SlicerBench()
    monkeypatch.setattr(clock, "now_s", made.time)
    return made


def test_the_job_furthest_behind_its_fraction_runs_next(bench: SlicerBench) -> None:
    """After a's first slice, b is behind. Of four slices, three are a's."""
    bench.add("a", 750)
    bench.add("b", 250)

    assert bench.slices(8) == ["a", "b", "a", "a", "a", "b", "a", "a"]


def test_time_that_the_fractions_leave_is_idle(bench: SlicerBench) -> None:
    bench.add("a", 500)

    ran = bench.slices(20)

    assert ran.count("a") == ran.count("") == 10


def test_a_pause_is_renewed_before_it_expires(bench: SlicerBench) -> None:
    """After its first slice, a has no further one for longer than two pauses last."""
    bench.add("a", 10)
    bench.add("b", 990)

    ran = bench.slices(90)

    assert 90 * QUANTUM_S > 2 * LAPSE_S
    assert (ran.count("a"), ran.count("b")) == (1, 89)


def test_only_changes_are_ordered(bench: SlicerBench) -> None:
    bench.add("a", 10)
    bench.add("b", 990)
    bench.slices(3)
    bench.orders.clear()

    bench.slices(5)

    assert bench.orders == []


def test_a_pause_is_not_ordered_again_in_idle_time(bench: SlicerBench) -> None:
    bench.add("a", 100)
    assert bench.slices(2) == ["a", ""]
    bench.orders.clear()

    assert bench.slices(5) == [""] * 5
    assert bench.orders == []


def test_a_job_that_is_alone_again_runs_on(bench: SlicerBench) -> None:
    bench.add("a", 500)
    bench.add("b", 500)
    assert bench.slices(1) == ["a"]

    bench.slicer.leave(JobId("b"))

    assert bench.orders[-1] == ("b", None)
    assert bench.slices(2)[0] == "a+b"


def test_time_before_a_fraction_changed_does_not_count(bench: SlicerBench) -> None:
    """a has had ten slices alone; as soon as b comes, they take turns."""
    bench.add("a", 999)
    bench.slices(10)

    bench.add("a", 500)
    bench.add("b", 500)

    assert bench.slices(4) == ["a", "b", "a", "b"]


def test_fractions_that_run_side_by_side_are_not_sliced(bench: SlicerBench) -> None:
    bench.add("a", 500, in_turn=False)
    bench.add("b", 500, in_turn=False)

    assert bench.slices(3) == ["a+b"] * 3
    assert bench.orders == []


def test_a_job_that_loads_runs_beside_the_others_and_takes_turns_from_when_it_has_loaded(bench: SlicerBench) -> None:
    """b has run for six slices by then, which count for nothing."""
    bench.loading = {"b"}
    bench.add("a", 750)
    bench.add("b", 250)
    assert bench.slices(8).count("b") == 2  # a takes three quarters of the time, as if it were alone
    assert all("b" in ran for ran in bench.slices(4))

    bench.loading.clear()

    assert bench.slices(8) == ["a", "b", "a", "a", "a", "b", "a", "a"]
