"""A sweep under kills at random moments: of the manager, of supervisors and of trials.

Every trial writes down each of its processes, steps and checkpoints. A step may be repeated only by a trial whose
process was really killed, and from its last checkpoint on; a trial never has two processes, and none after its end.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from managers import Manager, eventually

pytestmark = pytest.mark.slow
Json = dict[str, Any]
TRIALS, STEPS = 16, 64
TRAIN = """
import fcntl, os, sys, time
import rota.sdk
trial, folder, steps = os.environ["ROTA_TRIAL"], sys.argv[1], int(sys.argv[2])
log = open(f"{folder}/log-{trial}", "a", buffering=1)
try:
    fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    log.write(f"together {os.getpid()}\\n")
    raise
x = rota.sdk.params()["x"]
run = rota.sdk.steps(lambda first: range(first, steps), steps=steps)
log.write(f"begin {os.getpid()} {run.step}\\n")
for step in run:
    time.sleep(0.03)
    run.report(loss=x + 1 / (step + 1))
    log.write(f"step {os.getpid()} {step}\\n")
    if run.should_save:
        log.write(f"save {os.getpid()} {step + 1}\\n")
        run.saved()
log.write(f"{'stopped' if run.step < steps else 'end'} {os.getpid()} {run.step}\\n")
"""


@dataclass
class TrialLog:
    """What one trial wrote down."""

    lines: list[list[str]] = field(default_factory=list)

    def faults(self, killed: set[int]) -> list[str]:
        """Return what must not have happened, given the processes that were killed."""
        found: list[str] = []
        saved, done, last, has_ended = 0, 0, 0, False
        for word, pid_text, *rest in self.lines:
            pid, at = int(pid_text), int(rest[0]) if rest else 0
            if word == "together":
                found.append(f"process {pid} ran beside another")
            elif word == "begin":
                if has_ended:
                    found.append(f"process {pid} began after the end")
                if at != saved and not (last in killed and at < saved):
                    found.append(f"process {pid} began at {at}, and {saved} was saved")
                if at < done and last not in killed:
                    found.append(f"process {pid} repeats steps {at} to {done}, and {last} was not killed")
                done, last = at, pid
            elif word == "step":
                if at != done:
                    found.append(f"process {pid} did step {at} after {done} steps")
                done = at + 1
            elif word == "save":
                saved = at
            elif word == "end":
                has_ended = True
        return found


class Killer:
    """Kills what a test lets it, and remembers which trials' processes."""

    def __init__(self, manager: Manager, seed: int) -> None:
        self.manager = manager
        self.random = random.Random(seed)
        self.killed: set[int] = set()

    def _trials(self) -> list[int]:
        """Processes of trials."""
        return [pid for pid in self.manager.task_processes() if str(self.manager.folder / "trial.py") in _command(pid)]

    def kill_manager(self) -> None:
        self.manager.kill()
        self.manager.start()

    def kill_some(self, supervisors: bool) -> None:
        """Kill a trial, or its supervisor, with which it ends."""
        trials = self._trials()
        if not trials:
            return
        victim = self.random.choice(trials)
        self.killed.add(victim)
        with contextlib.suppress(OSError):
            os.kill(_supervisor_of(victim) if supervisors else victim, signal.SIGKILL)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def _supervisor_of(pid: int) -> int:
    """The parent of the recorder, which is the parent of the task."""
    for _ in range(2):
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    assert pid > 1
    return pid


@pytest.fixture
def manager(tmp_path: Path) -> Any:
    made = Manager(tmp_path, "--emulate", "gpu=8/8").start()
    yield made
    made.clean_up()


@pytest.mark.parametrize("rule", ["asha", "hyperband"])
@pytest.mark.parametrize("seed", range(8 if os.environ.get("ROTA_CHAOS") == "full" else 1))
def test_steps_are_repeated_only_where_a_process_was_killed(seed: int, rule: str, manager: Manager) -> None:
    script = manager.folder / "trial.py"
    script.write_text(TRAIN)
    killer = Killer(manager, seed)
    job = {
        "run": [sys.executable, str(script), str(manager.folder), str(STEPS)],
        "resources": {"gpus": 1},
        "checkpoint": {"grace": "60s"},
    }
    sweep_id = manager.client.start_sweep(
        {
            "name": "search",
            "parameters": {"x": {"uniform": [0.0, 1.0]}},
            "trials": TRIALS,
            "parallel": 8,
            "seed": seed,
            "max_failures": TRIALS,
            "early_stop": {"rule": rule, "min_steps": 4, "max_steps": STEPS, "factor": 2},
            "job": job,
        }
    )["id"]
    left = [*["manager"] * 5, *["supervisor"] * 3, *["trial"] * 2]
    killer.random.shuffle(left)
    at = sorted(killer.random.sample(range(20, TRIALS * 20), len(left)))

    def has_ended() -> bool:
        done = sum(path.read_text().count("step") for path in manager.folder.glob("log-*"))
        if left and done >= at[0]:
            at.pop(0)
            what = left.pop()
            killer.kill_manager() if what == "manager" else killer.kill_some(what == "supervisor")
        return bool(manager.client.sweep(sweep_id)["state"] != "running")

    eventually(has_ended, within_s=600.0)

    found = manager.client.sweep(sweep_id)
    names = sorted(job["name"] for job in manager.client.jobs(all=True))
    assert names == sorted(f"search-{number}" for number in range(TRIALS))
    eventually(lambda: not manager.task_processes())
    for number in range(TRIALS):
        path = manager.folder / f"log-{number}"
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        assert TrialLog(lines).faults(killer.killed) == [], (number, lines, killer.killed)
    states = Counter(run["state"] for run in found["runs"])
    assert states["failed"] <= 2, "only those fail that were killed themselves"
    assert found["state"] == "finished"
    assert states["completed"] >= 1
