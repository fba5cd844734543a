"""PostgreSQL away: it is said, bridged, and nothing is lost."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from e2e.machine_probes import ROUNDS, ended, log_of, pid_of, ready, refusal
from managers import Manager, eventually
from ports import free_port

POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
pytestmark = pytest.mark.slow


# -- PostgreSQL ----------------------------------------------------------------------------------


class Server:
    """A PostgreSQL server of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._binaries = POSTGRES[-1].parent
        self._as_user = ["setpriv", "--reuid", "nobody", "--clear-groups"] if os.geteuid() == 0 else []
        self.port = free_port()
        folder.mkdir(mode=0o777)
        folder.chmod(0o777)
        init = [str(self._binaries / "initdb"), "-A", "trust", "-U", "rota", str(folder / "db")]
        subprocess.run([*self._as_user, *init], check=True, capture_output=True)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        serve = [str(self._binaries / "postgres"), "-D", str(self._folder / "db"), "-p", str(self.port)]
        serve += ["-k", str(self._folder)]
        self._process = subprocess.Popen(
            [*self._as_user, *serve], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        eventually(self._answers)

    def _answers(self) -> bool:
        done = subprocess.run(
            [str(self._binaries / "pg_isready"), "-h", "127.0.0.1", "-p", str(self.port)], capture_output=True
        )
        return done.returncode == 0

    def kill(self) -> None:
        """Kill all of its processes."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def remove(self) -> None:
        """Leave nothing behind."""
        with contextlib.suppress(ProcessLookupError, AssertionError):
            self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


@pytest.fixture
def served() -> Iterator[Server]:
    if not POSTGRES:
        pytest.skip("there is no PostgreSQL here")
    made = Server(Path(f"/tmp/rota-pg-{os.getpid()}-{time.monotonic_ns()}"))
    made.start()
    yield made
    made.remove()


@pytest.mark.attack(
    "kills PostgreSQL under the manager", stopped_by="503 and 507 with the reason; changes are kept until then"
)
def test_postgresql_that_is_away_is_said_and_bridged(tmp_path: Path, served: Server) -> None:
    url = f"postgresql+psycopg://rota@127.0.0.1:{served.port}/postgres"
    manager = Manager(tmp_path, "--emulate", "gpu=4/4", "--database", url).start()
    try:
        for _ in range(ROUNDS):
            cancelled = manager.submit("echo $$; exec sleep 600")
            limited = manager.submit("echo $$; exec sleep 600", time_limit="5s")
            ends = manager.submit("echo $$; sleep 4; echo done")
            pids = [pid_of(manager, job) for job in (cancelled, limited, ends)]
            served.kill()
            assert "can't be" in refusal(manager) or "nothing can be stored now" in refusal(manager)
            eventually(lambda: ready(manager)[0] == 503)
            assert "connection" in refusal(manager).lower()
            manager.client.act(cancelled, "cancel")
            for pid in pids:
                eventually(partial(ended, pid))
            served.start()
            eventually(lambda: ready(manager)[0] == 200)
            assert manager.wait(cancelled, "cancelled")["state"] == "cancelled"
            assert manager.wait(limited, "failed")["message"] == "it reached its time limit"
            assert manager.wait(ends)["state"] == "succeeded"
            assert manager.wait(manager.submit("true"))["state"] == "succeeded"
        assert "Traceback" not in log_of(manager)
    finally:
        manager.clean_up()


@pytest.mark.attack(
    "kills PostgreSQL and then the manager, after a cancellation", stopped_by="the order to stop is in the run folder"
)
def test_cancellation_outlives_both_the_database_and_the_manager(tmp_path: Path, served: Server) -> None:
    url = f"postgresql+psycopg://rota@127.0.0.1:{served.port}/postgres"
    manager = Manager(tmp_path, "--emulate", "gpu=4/4", "--database", url).start()
    try:
        job = manager.submit("echo $$; exec sleep 600", max_restarts=3)
        pid = pid_of(manager, job)
        served.kill()
        eventually(lambda: ready(manager)[0] == 503)
        manager.client.act(job, "cancel")
        eventually(lambda: ended(pid))
        manager.kill()
        served.start()
        manager.start()
        assert manager.wait(job, "cancelled")["attempt"] == 1
    finally:
        manager.clean_up()
