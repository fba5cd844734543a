"""The kill test: whatever is killed, and whenever, every accepted job comes to its right end exactly once.

Short here; in full with `make chaos`, which sets ROTA_CHAOS=full.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import signal
import sqlite3
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from managers import FINAL, Manager, eventually
from rota.core.errors import Unavailable
from rota.sdk.client import Client

Json = dict[str, Any]
pytestmark = pytest.mark.slow
FULL = os.environ.get("ROTA_CHAOS") == "full"
DISK_BYTES = 256 << 20
AHEAD = 2
"""By how many acts jobs may be ahead of the killing, so that they pass through during all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much happens."""

    jobs: int
    server_kills: int
    task_kills: int
    seed: int = 7

    @property
    def acts(self) -> int:
        """How often something is killed, or the disk is full."""
        return self.server_kills + 2 * self.task_kills + 1


@dataclass(slots=True)
class Course:
    """What was submitted and accepted so far, by key."""

    plan: Plan
    expected: dict[str, Json] = field(default_factory=dict)
    accepted: dict[str, str] = field(default_factory=dict)
    acts_done: int = 0
    seeks_victim: bool = False

    @property
    def is_over(self) -> bool:
        """Whether all that was to be killed has been."""
        return self.acts_done == self.plan.acts

    def is_ahead(self, number: int) -> bool:
        """Whether a job would come so early that the last acts would find nothing left to disturb."""
        if self.is_over or self.seeks_victim:
            return False
        return number * self.plan.acts > (self.acts_done + AHEAD) * self.plan.jobs


def make_job(number: int, rng: random.Random, folder: Path) -> tuple[Json, Json]:
    """A short job, and how it must end."""
    code = 3 if number % 10 == 9 else 0
    workers = rng.choice((1, 1, 1, 2, 3, 4))
    seconds = rng.uniform(0.02, 0.6)
    line = '"$ROTA_JOB_ID $ROTA_ATTEMPT $ROTA_RANK"'
    job = {
        "run": f"echo {line} >> {folder}/started; sleep {seconds:.3f}; exit {code}",
        "name": f"job-{number}",
        "workers": workers,
        "resources": {"gpus": rng.choice((0.5, 1, 1, 2))},
    }
    return job, {"state": "failed" if code else "succeeded", "exit_code": code, "workers": workers}


def submit_all(manager: Manager, course: Course) -> None:
    """Submit jobs while things are killed, each until it is accepted; a key makes it safe to try that often."""
    rng = random.Random(course.plan.seed)
    client: Client | None = None
    for number in count():
        while course.is_ahead(number):
            time.sleep(0.02)
        if number >= course.plan.jobs and course.is_over:
            break
        job, expected = make_job(number, rng, manager.folder)
        key = f"key-{number}"
        course.expected[key] = expected
        while key not in course.accepted:
            try:
                if client is None:
                    client = Client(find(manager), timeout_s=10.0)
                course.accepted[key] = client.submit(job, key=key)[0]
            except Unavailable:
                if client is not None:
                    client.close()
                client = None
                time.sleep(0.05)
        time.sleep(rng.uniform(0.0, 0.05))
    if client is not None:
        client.close()


def find(manager: Manager) -> str:
    """The manager's address; it changes with every start."""
    try:
        return str(json.loads((manager.folder / "state" / "rota" / "manager.json").read_text())["url"])
    except (OSError, ValueError):
        raise Unavailable("it is just being started") from None


def some_process(manager: Manager, rng: random.Random, role: str) -> int | None:
    """A task or a supervisor that runs now."""
    states = list((manager.home / "runs").glob("*/*/*/state.json"))
    rng.shuffle(states)
    for path in states:
        try:
            state = json.loads(path.read_text())
        except (OSError, ValueError):
            continue
        if state.get("phase") == "running" and Path(f"/proc/{state[role]}").exists():
            return int(state[role])
    return None


def kill_some(manager: Manager, rng: random.Random, role: str) -> bool:
    """Kill a task or a supervisor that runs; whether there was one."""
    victim = some_process(manager, rng, role)
    if victim is None:
        return False
    try:
        os.kill(victim, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def kill_around(manager: Manager, course: Course) -> Counter[str]:
    """Kill the server, supervisors and tasks at random moments, and fill the disk once."""
    plan = course.plan
    rng = random.Random(plan.seed + 1)
    acts = ["server"] * plan.server_kills + ["supervisor", "pid"] * plan.task_kills + ["disk"]
    rng.shuffle(acts)
    done: Counter[str] = Counter()
    for act in acts:
        time.sleep(rng.uniform(0.0, 0.4))
        if act == "server":
            manager.kill()
            manager.start()
        elif act == "disk":
            fill_disk_for_a_while(manager, course)
        else:
            course.seeks_victim = True
            eventually(partial(kill_some, manager, rng, act))
            course.seeks_victim = False
        done[act] += 1
        course.acts_done += 1
    return done


def fill_disk_for_a_while(manager: Manager, course: Course) -> None:
    """No file of the manager's can grow for a moment: what does not fit into those that are there is refused."""
    with full_disk(manager):
        assert not accepts_large_ones(manager, course)
    eventually(partial(accepts_large_ones, manager, course))


def accepts_large_ones(manager: Manager, course: Course) -> bool:
    """Whether jobs of a megabyte and a half each are all accepted; some may be though others are not."""
    large = {"name": "large", "env": {f"PAD_{number}": "x" * 30_000 for number in range(30)}}
    for number in range(10):
        job, expected = make_job(number, random.Random(number), manager.folder)
        key = f"large-{number}"
        course.expected[key] = expected
        try:
            course.accepted[key] = Client(manager.client.url, timeout_s=10.0).submit(job | large, key=key)[0]
        except Unavailable:
            return False
    return True


@contextmanager
def full_disk(manager: Manager) -> Iterator[None]:
    """Fill the file system of the manager's folder, to the last byte; where it has none of its own, only pretend."""
    if not os.path.ismount(manager.folder / "data"):
        with no_growth(manager):
            yield
        return
    ballast = manager.folder / "data" / "ballast"
    try:
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        yield
    finally:
        ballast.unlink()


@contextmanager
def no_growth(manager: Manager) -> Iterator[None]:
    """To the server the disk is full; tasks and their supervisors do not notice."""
    assert manager.process is not None
    pid = manager.process.pid
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def plan() -> Plan:
    return Plan(jobs=300, server_kills=50, task_kills=20) if FULL else Plan(jobs=40, server_kills=5, task_kills=4)


@pytest.fixture
def chaos(tmp_path: Path) -> Iterator[Manager]:
    """A manager whose folder is a small file system of its own, if we may mount one."""
    data = tmp_path / "data"
    data.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "rota-test", str(data)]
    mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    made = Manager(tmp_path, "--emulate", "gpu=8/4", checks=True).start()
    yield made
    made.clean_up()
    if mounted:
        subprocess.run(["umount", "--lazy", str(data)], check=True)


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_every_accepted_job_ends_right_and_once(chaos: Manager, plan: Plan) -> None:
    course = Course(plan=plan)
    submitter = threading.Thread(target=submit_all, args=(chaos, course), daemon=True)
    submitter.start()

    done = kill_around(chaos, course)
    submitter.join(timeout=300)
    assert not submitter.is_alive()
    wait_for_all(chaos)

    kills = plan.task_kills
    assert len(course.accepted) >= plan.jobs
    assert done == {"server": plan.server_kills, "supervisor": kills, "pid": kills, "disk": 1}
    jobs = list(chaos.client.jobs(all=True))
    check_jobs(course, jobs)
    check_runs(chaos, course, jobs)
    check_journal(chaos)
    eventually(lambda: chaos.task_processes() == [], within_s=120)


def wait_for_all(manager: Manager) -> None:
    """Until no job waits or runs; what is left, and why, is said if there is."""
    try:
        eventually(lambda: not list(manager.client.jobs()), within_s=120, every_s=0.2)
    except AssertionError:
        left = [manager.client.job(job["id"]) for job in manager.client.jobs()]
        raise AssertionError(f"left after 120 s: {left}, on {manager.client.nodes()}") from None


def check_jobs(course: Course, jobs: list[Json]) -> None:
    """Every accepted job is there once, with the right end."""
    assert sorted(job["id"] for job in jobs) == sorted(course.accepted.values())
    by_id = {job["id"]: job for job in jobs}
    wrong = []
    for key, job_id in course.accepted.items():
        job, expected = by_id[job_id], course.expected[key]
        assert job["state"] in FINAL
        if (job["state"], job["exit_code"]) != (expected["state"], expected["exit_code"]):
            wrong.append((job_id, job["state"], job["exit_code"], job["message"], expected))
    assert wrong == []


def check_runs(manager: Manager, course: Course, jobs: list[Json]) -> None:
    """No task was started twice in one attempt, and exactly one attempt of a job succeeded as a whole."""
    lines = Counter((manager.folder / "started").read_text().splitlines())
    assert [line for line, times in lines.items() if times > 1] == []
    for job in jobs:
        if job["state"] != "succeeded":
            continue
        whole = 0
        for attempt in (manager.home / "runs" / job["id"]).iterdir():
            codes = [json.loads(path.read_text())["exit_code"] for path in attempt.glob("*/exit.json")]
            whole += codes == [0] * job["tasks"]
        assert whole == 1, (job["id"], whole)


def check_journal(manager: Manager) -> None:
    """Steps are numbered without a gap."""
    database = sqlite3.connect(manager.home / "rota.db")
    numbers = [row[0] for row in database.execute("SELECT n FROM steps ORDER BY n")]
    inner = [json.loads(row[0])["n"] for row in database.execute("SELECT body FROM steps ORDER BY n")]
    database.close()
    assert numbers == inner == list(range(len(numbers)))
