"""Running jobs follow a failure rate that changes: the manager writes it, the SDK reads it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from builders import on
from rota.core.model.job import JobId, JobState
from rota.health.failure_rate import FailureRate
from rota.live.health.told_intervals import FILE, SEEN, ToldIntervals
from rota.sdk.save_interval import KEPT, LOOK_S, SaveInterval
from rota.store.run_folder import shared_folder

JOB = JobId("1")


class Watched:
    """A job on two nodes that a manager watches, and its training loop."""

    def __init__(self, home: Path, *, saves: bool = True) -> None:
        self.rate = FailureRate(6.5)
        self.folder = shared_folder(home, JOB)
        self.folder.mkdir(parents=True)
        self.live = SimpleNamespace(
            job=SimpleNamespace(id=JOB), state=JobState.RUNNING, held=(*on("n1", 1), *on("n2", 1))
        )
        self.record = SimpleNamespace(attempt=1, file=SimpleNamespace(checkpoint={} if saves else None))
        control: Any = SimpleNamespace(state=SimpleNamespace(jobs={JOB: self.live}), kept={JOB: self.record})
        self.manager = ToldIntervals(control, self.rate, home)
        self.manager.look()

    def fail(self, nodes: int) -> None:
        for _ in range(nodes):
            self.rate.failed()
        self.manager.look()

    def loop(self, monkeypatch: pytest.MonkeyPatch, save_every_s: float | None = None) -> SaveInterval:
        for name, value in self.rate.variables(2).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("ROTA_RUN_DIR", str(self.folder))
        return SaveInterval(save_every_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr("rota.sdk.save_interval.time.monotonic", lambda: now[0])
    return now


def test_job_saves_twice_as_often_when_nodes_fail_four_times_as_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    job = Watched(tmp_path)
    loop = job.loop(monkeypatch)
    loop.write_s = 30.0  # as was assumed
    first_s = loop.interval_s
    assert first_s is not None
    assert not loop.is_due(first_s / 2 + 1)

    job.fail(3)

    assert not loop.is_due(first_s / 2 + 1)
    clock[0] += LOOK_S
    assert loop.is_due(first_s / 2 + 1)
    assert loop.interval_s == pytest.approx(first_s / 2, rel=0.01)
    loop.write_s = 120.0  # four times as long as was assumed
    assert loop.interval_s == pytest.approx(first_s, rel=0.01)


def test_interval_of_the_script_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    job = Watched(tmp_path)
    loop = job.loop(monkeypatch, 30.0)
    job.fail(3)

    assert loop.is_due(30.0)
    assert loop.interval_s == 30.0


@pytest.mark.parametrize("text", ["", "{", "[]", '{"every_s": 5}', '{"every_s": -1, "mttf_s": 9}', '{"every_s": "x"}'])
def test_file_that_makes_no_sense_changes_nothing(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    job = Watched(tmp_path)
    loop = job.loop(monkeypatch)
    before_s = loop.interval_s
    (job.folder / FILE).write_text(text)

    assert not loop.is_due(1.0)
    assert loop.interval_s == before_s


def test_small_changes_and_jobs_that_do_not_save_are_left_alone(tmp_path: Path) -> None:
    calm, careless = Watched(tmp_path / "a"), Watched(tmp_path / "b", saves=False)
    calm.rate.watched(1, 86_400.0)
    calm.manager.look()
    careless.fail(3)

    assert not (calm.folder / FILE).exists()
    assert not (careless.folder / FILE).exists()


def test_small_changes_add_up(tmp_path: Path) -> None:
    job = Watched(tmp_path)
    for _ in range(3):
        job.rate.watched(1, 6 * 86_400.0)  # each makes failures rarer by 4%
        job.manager.look()

    assert (job.folder / FILE).exists()


def test_folder_that_was_replaced_does_not_end_the_watch(tmp_path: Path) -> None:
    job = Watched(tmp_path)
    job.folder.rmdir()
    job.folder.symlink_to(tmp_path)

    job.fail(3)

    assert not (tmp_path / FILE).exists()


def test_next_attempt_knows_how_long_checkpoints_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    job = Watched(tmp_path)
    loop = job.loop(monkeypatch)
    assumed_s = loop.interval_s
    loop.is_due(1e9)
    clock[0] += 2.0
    loop.saved()

    again = job.loop(monkeypatch).interval_s

    assert again == loop.interval_s
    assert again == pytest.approx((assumed_s or 0.0) * (2.0 / 30.0) ** 0.5, rel=1e-3)
    (job.folder / KEPT).write_text('{"write_s": "never"}')
    assert job.loop(monkeypatch).interval_s == assumed_s


def test_failures_that_were_seen_are_kept_over_a_restart(tmp_path: Path) -> None:
    job = Watched(tmp_path)
    job.rate.watched(8, 30 * 86_400.0)
    job.fail(3)
    job.manager.save()
    control: Any = SimpleNamespace()

    again = FailureRate(6.5)
    ToldIntervals(control, again, tmp_path)
    assert again.per_1000_node_days == job.rate.per_1000_node_days

    (tmp_path / SEEN).write_text('{"failures": -1, "node_days": 2}')
    fresh = FailureRate(6.5)
    ToldIntervals(control, fresh, tmp_path)
    assert fresh.per_1000_node_days == 6.5


def test_first_interval_is_never_longer_than_the_time_between_failures() -> None:
    assert FailureRate(1000 * 86_400 / 8.0).interval_s(1) == pytest.approx(8.0)
    assert FailureRate(6.5).interval_s(1) == pytest.approx((2 * 30 * 86_400 * 1000 / 6.5) ** 0.5)
