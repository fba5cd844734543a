"""A task that is told to stop when its loop is over, or too late for a checkpoint, ends and says that it is done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TERM = -signal.SIGTERM
LATE = """
import os, signal, sys
import rota.sdk
run = rota.sdk.steps({source}, {options})
for step in run:
    if run.should_save:
        run.saved()
    if step == 4:
        os.kill(os.getpid(), signal.SIGTERM)
print(run.stop_asked, run.step)
"""
AFTER = """
import os, signal, sys
import rota.sdk
{before}
for step in rota.sdk.steps({source}, {options}):
    pass
os.kill(os.getpid(), signal.SIGTERM)
{after}
print("ended")
"""
SECOND = """
run = rota.sdk.steps(range(100), steps=100)
for step in run:
    if run.should_save:
        run.saved()
print(run.step)
"""
OWN = "signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))"


class Task:
    """A script in a job's folder, and what it tells its supervisor."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        os.mkfifo(folder / "tell")
        self._end = os.open(folder / "tell", os.O_RDWR | os.O_NONBLOCK)

    def run(self, script: str, **given: str) -> tuple[int, str, list[bytes]]:
        """Its exit status, its output, and its words."""
        env = {"ROTA_RUN_DIR": str(self.folder), "ROTA_TELL": str(self.folder / "tell")}
        source = {"source": "range(5)", "options": "", "before": "", "after": "", **given}
        done = subprocess.run(
            [sys.executable, "-c", script.format(**source)],
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        try:
            words = os.read(self._end, 1000).split()
        except BlockingIOError:
            words = []
        return done.returncode, done.stdout.strip() or done.stderr, words

    def close(self) -> None:
        os.close(self._end)


@pytest.fixture
def task(tmp_path: Path) -> Iterator[Task]:
    made = Task(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("source", "options"), [("range(5)", ""), ("iter(range(5))", "steps=5"), ("lambda first: range(first, 5)", "")]
)
def test_stop_after_the_last_look_is_told_to_be_too_late(task: Task, source: str, options: str) -> None:
    assert task.run(LATE, source=source, options=options) == (0, "True 5", [b"done"])
    assert task.run(AFTER, source=source, options=options) == (0, "ended", [b"done"])


def test_loop_that_may_have_been_cut_short_counts_as_stopped(task: Task) -> None:
    """Its source may have ended for the very reason that the job is to stop."""
    assert task.run(LATE, source="iter(range(5))") == (0, "True 5", [])
    assert task.run(LATE, options="steps=6") == (0, "True 5", [])
    assert task.run(AFTER, source="iter(range(5))")[0] == TERM


def test_handler_of_the_script_is_left_alone(task: Task) -> None:
    assert task.run(AFTER, before=OWN)[0] == 7
    assert task.run(AFTER, after=OWN) == (0, "ended", [b"done"])


def test_next_loop_takes_it_back_and_saves(task: Task) -> None:
    code, output, words = task.run(AFTER, after=SECOND)

    assert (code, output.split(), words) == (0, ["1", "ended"], [b"done", b"more"])


def test_saving_on_time_is_a_stop(task: Task, tmp_path: Path) -> None:
    script = LATE.replace("step == 4", "step == 2")

    assert task.run(script, options="steps=5") == (0, "True 4", [])
    assert (tmp_path / "saved.json").exists()
