"""A trial at a rung: its report returns when it is decided what follows, and at once where nothing is to decide."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import rota.sdk.stops
from rota.sdk.reports import TrialReports
from rota.sdk.stops import RUNG_FILE, rungs_of_trial
from rota.sdk.training import steps


@pytest.fixture
def pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The end at which a supervisor would hear the trial."""
    os.mkfifo(tmp_path / "tell")
    end = os.open(tmp_path / "tell", os.O_RDWR | os.O_NONBLOCK)
    monkeypatch.setenv("ROTA_TELL", str(tmp_path / "tell"))
    monkeypatch.setattr(rota.sdk.stops, "WAIT_S", 60.0)
    yield end
    os.close(end)


@pytest.fixture
def handler() -> Iterator[list[int]]:
    """What a script's own handler of the stop signal has seen."""
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    yield seen
    signal.signal(signal.SIGTERM, before)


def heard(pipe: int) -> bytes:
    try:
        return os.read(pipe, 1000)
    except BlockingIOError:
        return b""


def when_heard(pipe: int, act: object) -> threading.Thread:
    """Act as soon as the trial has said where it is."""

    def listen() -> None:
        while not heard(pipe):
            time.sleep(0.005)
        assert callable(act)
        act()

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    return thread


def decide(folder: Path, rung: int, *, goes_on: bool) -> None:
    (folder / RUNG_FILE).write_text(json.dumps({"rung": rung, "step": rung, "goes_on": goes_on}))


def test_report_at_a_rung_returns_when_the_trial_goes_on(tmp_path: Path, pipe: int) -> None:
    trial = TrialReports(tmp_path / "reports.jsonl", (1, 4), (1, 4))
    written: list[str] = []

    def go_on() -> None:
        written.extend((tmp_path / "reports.jsonl").read_text().splitlines())
        decide(tmp_path, 1, goes_on=True)

    listening = when_heard(pipe, go_on)
    trial.add(1, {"loss": 2.0})
    listening.join()

    assert [json.loads(line)["step"] for line in written] == [1], "it was reported before it was asked about"
    trial.add(2, {"loss": 1.0})
    trial.add(3, {"loss": 1.0})
    assert heard(pipe) == b"", "nothing is to be decided between rungs"


def test_stop_ends_the_wait_and_reaches_the_script(tmp_path: Path, pipe: int, handler: list[int]) -> None:
    mine = signal.getsignal(signal.SIGTERM)
    listening = when_heard(pipe, lambda: os.kill(os.getpid(), signal.SIGTERM))

    TrialReports(tmp_path / "reports.jsonl", (4,), (4,)).add(5, {"loss": 2.0})

    listening.join()
    assert handler == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is mine


def test_decision_against_it_is_followed_by_the_stop(tmp_path: Path, pipe: int, handler: list[int]) -> None:
    def against() -> None:
        decide(tmp_path, 4, goes_on=False)
        os.kill(os.getpid(), signal.SIGTERM)

    listening = when_heard(pipe, against)
    TrialReports(tmp_path / "reports.jsonl", (4,), (4,)).add(4, {"loss": 2.0})

    listening.join()
    assert handler == [signal.SIGTERM]


def test_nothing_is_waited_for_that_is_decided_or_being_stopped(tmp_path: Path, pipe: int) -> None:
    decide(tmp_path, 4, goes_on=True)

    trial = TrialReports(tmp_path / "reports.jsonl", (4, 16), (4, 16))
    trial.add(4, {"loss": 2.0})
    trial.add(16, {"loss": 2.0}, lambda: True)

    assert heard(pipe) == b""


def test_manager_that_can_not_decide_does_not_keep_a_trial(
    tmp_path: Path, pipe: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rota.sdk.stops, "WAIT_S", 0.05)

    TrialReports(tmp_path / "reports.jsonl", (4,), (4,)).add(4, {"loss": 2.0})

    assert heard(pipe) == b"rung:4\n"


def test_trial_that_is_judged_by_its_output_does_not_wait_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_RUNGS", "4,16")
    assert rungs_of_trial() == (4, 16)
    monkeypatch.setenv("ROTA_RUNG_PATTERN", "loss {value}")
    assert rungs_of_trial() == ()


def test_loop_saves_at_the_rung_itself(tmp_path: Path, pipe: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RUN_DIR", str(tmp_path)), ("TRIAL", "3"), ("MARKS", "3"), ("RUNGS", "3")):
        monkeypatch.setenv(f"ROTA_{name}", value)
    monkeypatch.delenv("RANK", raising=False)
    listening = when_heard(pipe, lambda: os.kill(os.getpid(), signal.SIGTERM))
    done = []

    run = steps(lambda first: range(first, 100), steps=100)
    for step in run:
        done.append(step)
        run.report(loss=1.0)
        if run.should_save:
            run.saved()

    listening.join()
    assert done == [0, 1, 2]
    assert json.loads((tmp_path / "saved.json").read_text())["step"] == 3
