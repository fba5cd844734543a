"""Real managers for tests: a process of `rota up` in folders of its own, with its client."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import forked
from forked import ROTA as ROTA
from rota.core.errors import RotaError, Unavailable
from rota.drivers.local.cgroup_search import find
from rota.drivers.local.task_runner import supervisor
from rota.sdk.client import Client

Json = dict[str, Any]
T = TypeVar("T")
FINAL = frozenset({"succeeded", "failed", "cancelled"})
TENANTS = "nlp,vision,robotics,past,green,one,two,other,others"
"""Tenants that every manager of a test knows unless it is given others."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.1
"""Between two questions of `eventually`."""
TRAIN = """
import time
import rota.sdk
run = rota.sdk.steps(range(10000))
print("task", run.rank, "of", run.tasks, "from", run.step > 0, "before", run.tasks_before, flush=True)
for batch in run:
    time.sleep(0.02)
    if run.should_save:
        run.saved()
"""


def eventually(what: Callable[[], T], *, within_s: float = 120.0, every_s: float | None = None) -> T:
    """The first true answer; fails if there is none in time.

    Unless told how often, it asks less and less often: questions cost the one who answers time, and others theirs.
    """
    deadline = time.monotonic() + within_s
    pause_s = FIRST_PAUSE_S if every_s is None else every_s
    while True:
        answer = what()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"still {answer!r} after {within_s} s")
        time.sleep(pause_s)
        if every_s is None:
            pause_s = min(pause_s * 1.2, LONGEST_PAUSE_S)


class Manager:
    """One manager, started and killed at will; its folders outlive it."""

    def __init__(self, folder: Path, *options: str, checks: bool = False) -> None:
        """With `checks` its nodes are checked as by default; without, as few processes as possible are started."""
        self.folder = folder
        self.options: Sequence[str] = options or ("--emulate", "gpu=8/4")
        if "--tenants" not in self.options:
            self.options = ("--tenants", TENANTS, *self.options)
        if "--min-run" not in self.options:
            self.options = ("--min-run", "0s", *self.options)
        if (
            os.geteuid() == 0
            and {"--require-token", "--trust-proxy", "--host"} & {*options}
            and not {"--run-as", "--accounts"} & {*options}
        ):
            self.options = (
                *self.options,
                "--run-as",
                "root",
            )  # tests that are about tokens, where root is all there is
            for above in (folder, *folder.parents):
                if not above.stat().st_mode & 0o001:  # the manager refuses folders that tasks can't pass through
                    above.chmod(above.stat().st_mode | 0o011)
        if not checks and "--config" not in self.options:
            settings = folder / "without-checks.yaml"
            settings.write_text("health: {checks: []}\ncontainers: {runtime: off}\n", encoding="utf-8")
            self.options = (*self.options, "--config", str(settings))
        self.env = {
            **os.environ,
            "XDG_DATA_HOME": str(folder / "data"),
            "XDG_STATE_HOME": str(folder / "state"),
            "HOME": str(folder),
        }
        for name in ("ROTA_SERVER", "ROTA_TOKEN"):
            self.env.pop(name, None)
        self.prelude = ""
        """Lines of Python that run in the manager before it begins."""
        self.home = folder / "data" / "rota"
        self.process: subprocess.Popen[bytes] | None = None
        self.client: Client
        self.token = ""
        self._log = folder / "up.log"

    def start_guarded(self) -> Manager:
        """Start one that asks for tokens for the first time: it writes its first token to a file."""
        with self._log.open("ab") as log:
            words = ["up", "--port", "0", *self.options]
            self.process = forked.popen(words, prelude=self.prelude, env=self.env, stdout=log, stderr=log)

        def told() -> str:
            assert self.process is not None
            said = self._log.read_text()
            assert self.process.poll() is None, said
            return said if "manages this machine" in said else ""

        said = eventually(told)
        self.token = (self.home / "first-token").read_text().strip()
        self.client = Client(said.split("machine at ")[1].split(";")[0], self.token)
        return self

    def must_be_alive(self) -> None:
        """Fail with the end of what it said if it has ended by itself."""
        assert self.process is not None
        status = self.process.poll()
        assert status is None, f"the manager ended with {status}: {self._log.read_text()[-4000:]}"

    def start(self, within_s: float = 180.0) -> Manager:
        """Start it and wait until it answers."""
        sign = self.folder / "state" / "rota" / "manager.json"
        sign.unlink(missing_ok=True)
        with self._log.open("ab") as log:
            self.process = forked.popen(
                ["up", "--port", "0", *self.options], prelude=self.prelude, env=self.env, stderr=log
            )

        def answers() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, self._log.read_text()
            if not sign.exists():
                return False
            self._close()
            self.client = Client(json.loads(sign.read_text())["url"])
            try:
                self.client.nodes()
            except Unavailable:
                return False
            return True

        try:
            eventually(answers, within_s=within_s)
        except AssertionError:
            self.kill()  # or it would outlive the test
            raise
        return self

    def _close(self) -> None:
        if hasattr(self, "client"):
            self.client.close()

    def kill(self) -> None:
        """As the out-of-memory killer does it."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """As an administrator does it."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=20)

    def rota(self, *args: str) -> subprocess.CompletedProcess[str]:
        """A command in its own process, as a shell would run it."""
        return forked.run(args, env=self.env, cwd=self.folder)

    def submit(self, run: str, **fields: Any) -> str:
        """Submit a shell command as a job."""
        return self.client.submit({"run": run, "workdir": str(self.folder), **fields})[0]

    def train(self) -> str:
        """Submit an elastic job of one to four tasks that saves its step and says of what size it is."""
        script = self.folder / "train.py"
        script.write_text(TRAIN)
        asked = {"elastic": {"min": 1, "max": 4}, "resources": {"gpus": 1}, "checkpoint": {"grace": "10s"}}
        return self.client.submit({"run": [sys.executable, str(script)], **asked})[0]

    def state(self, job_id: str) -> str:
        """Where a job stands."""
        return str(self.client.job(job_id)["state"])

    def wait(self, job_id: str, *states: str, within_s: float = 120.0) -> Json:
        """The job, once it is in one of these states, or ended if none is given."""
        wanted = frozenset(states) or FINAL

        def arrived() -> Json | None:
            job = self.client.job(job_id)
            if job["state"] in FINAL - wanted:
                raise AssertionError(f"job {job_id} {job['state']}: {job['message']}")
            return job if job["state"] in wanted else None

        found = eventually(arrived, within_s=within_s)
        assert found is not None
        return found

    def sweep_end(self, sweep_id: str, within_s: float = 90.0) -> Json:
        """The sweep, once it has ended."""

        def found() -> Json | None:
            got: Json = self.client.sweep(sweep_id)
            return got if got["state"] != "running" else None

        got = eventually(found, within_s=within_s)
        assert got is not None
        return got

    def said(self, job_id: str, task: int = 0) -> str:
        """What a task said."""
        return b"".join(self.client.logs(job_id, task=task)).decode()

    def supervisors(self) -> list[int]:
        """Processes that supervise a task of this manager."""
        return [pid for pid in _processes() if self._supervises(pid)]

    def kill_on(self, node: str) -> bool:
        """Kill the supervisors of tasks on a node; return whether there was one."""
        mark = f"ROTA_NODE={node}\0".encode()  # n1 is not n10
        victims = [
            pid for pid in self.supervisors() if any(mark in _read(child, "environ") for child in _children(pid))
        ]
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(victims)

    def task_processes(self) -> list[int]:
        """Processes that belong to tasks or supervisors of this manager."""
        mark = b"ROTA_RUN_DIR=" + str(self.home).encode()
        return [pid for pid in _processes() if self._supervises(pid) or mark in _read(pid, "environ")]

    def _supervises(self, pid: int) -> bool:
        try:
            works_in = os.readlink(f"/proc/{pid}/cwd")
        except OSError:
            return False
        return str(self.home) in works_in and supervisor.__name__.encode() in _read(pid, "cmdline")

    def calm_down(self) -> None:
        """Let no job be left."""
        self._cancel_all()
        eventually(lambda: not list(self.client.jobs()) and not self.task_processes())

    def _cancel_all(self) -> None:
        try:
            unfinished = list(self.client.jobs())
        except (RotaError, Unavailable):  # as with a database that a test damaged
            return
        for job in unfinished:
            try:
                self.client.act(job["id"], "cancel")
            except (RotaError, Unavailable):
                continue

    def clean_up(self) -> None:
        """End what still runs."""
        if self.process is not None and self.process.poll() is None:
            self._cancel_all()
            self.kill()
        self._close()
        for pid in self.task_processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        find(self.home).sweep([])


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


def _read(pid: int, what: str) -> bytes:
    """A file of a process; empty if the process has ended or belongs to another user."""
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except OSError:
        return b""


def _children(pid: int) -> list[int]:
    return [int(each) for each in _read(pid, f"task/{pid}/children").split()]
