"""The machine misbehaves: full disks, clock steps, PostgreSQL away, no descriptors, deleted folders."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from e2e.machine_probes import ROUNDS, ended, log_of, pid_of, ready, refusal
from e2e.test_kill import full_disk, no_growth
from managers import Manager, eventually
from rota.core.errors import Unavailable

pytestmark = pytest.mark.slow
DISK_BYTES = 64 << 20
FAKETIME = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))


# -- a full disk ---------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Manager]:
    """A manager whose folder is a small file system of its own."""
    data = tmp_path / "data"
    data.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "rota-test", str(data)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root can mount a small file system")
    made = Manager(tmp_path, "--emulate", "gpu=4/4", checks=True).start()
    yield made
    made.clean_up()
    subprocess.run(["umount", "--lazy", str(data)], check=True)


@pytest.mark.attack(
    "fills the disk of the manager to the last byte", stopped_by="507 by free space; a reserve stores ends and limits"
)
def test_full_disk_refuses_at_once_and_still_cancels_and_limits(small_disk: Manager) -> None:
    manager = small_disk
    for _ in range(ROUNDS):
        cancelled = manager.submit("echo $$; exec sleep 600", resources={"gpus": 1})
        limited = manager.submit("echo $$; exec sleep 600", resources={"gpus": 1}, time_limit="4s")
        pids = [pid_of(manager, job) for job in (cancelled, limited)]
        with full_disk(manager):
            assert "the disk of" in refusal(manager)
            assert ready(manager)[0] == 503
            manager.client.act(cancelled, "cancel")
            eventually(partial(ended, pids[0]))
            eventually(partial(ended, pids[1]))
            assert manager.wait(cancelled, "cancelled")["state"] == "cancelled"
            assert manager.wait(limited, "failed")["message"] == "it reached its time limit"
            assert refusal(manager)
        eventually(lambda: refusal(manager) == "")
        eventually(lambda: ready(manager)[0] == 200)
        assert manager.wait(manager.submit("echo again"))["state"] == "succeeded"
    assert "Traceback" not in log_of(manager)


@pytest.mark.attack(
    "keeps every file of the manager from growing", stopped_by="submissions that can't be stored are withdrawn: 507"
)
def test_submission_that_can_not_be_stored_is_withdrawn_and_cancellation_ends_the_process(manager: Manager) -> None:
    job = manager.submit("echo $$; exec sleep 600", resources={"gpus": 1})
    pid = pid_of(manager, job)
    before = {each["id"] for each in manager.client.jobs(all=True)}
    large = {f"PAD_{number}": "x" * 30_000 for number in range(30)}
    with no_growth(manager):
        refused: list[str] = []
        accepted = set()
        for number in range(12):
            try:
                accepted.add(manager.submit("true", env=large, name=f"large-{number}"))
            except Unavailable as error:
                refused.append(str(error))
        assert refused
        assert all("nothing can be stored now" in each for each in refused)
        manager.client.act(job, "cancel")
        eventually(lambda: ended(pid))
    eventually(lambda: refusal(manager) == "")
    assert manager.wait(job, "cancelled")["state"] == "cancelled"
    named = [each for each in manager.client.jobs(all=True) if each["name"].startswith("large-")]
    assert {each["id"] for each in named} == accepted
    assert before <= {each["id"] for each in manager.client.jobs(all=True)}
    assert "Traceback" not in log_of(manager)


# -- the clock -----------------------------------------------------------------------------------


class Dated(Manager):
    """A manager whose wall clock can be set."""

    def __init__(self, folder: Path, *options: str) -> None:
        super().__init__(folder, *options)
        self._date = folder / "date"
        self.env |= {
            "LD_PRELOAD": str(FAKETIME[-1]),
            "FAKETIME_TIMESTAMP_FILE": str(self._date),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        self.set_date(0)

    def set_date(self, by_s: int) -> None:
        """Set the wall clock to so many seconds beside the true one."""
        draft = self.folder / "date.draft"
        draft.write_text(f"{by_s:+d}\n")
        draft.replace(self._date)


@pytest.mark.skipif(not FAKETIME, reason="there is no libfaketime here (Debian: faketime)")
@pytest.mark.parametrize(
    "by_s",
    [
        pytest.param(
            3600,
            id="forward",
            marks=pytest.mark.attack("sets the clock an hour ahead", stopped_by="the time since boot"),
        ),
        pytest.param(
            -3600, id="back", marks=pytest.mark.attack("sets the clock an hour back", stopped_by="the time since boot")
        ),
    ],
)
def test_step_of_the_clock_changes_no_limit_and_no_retry(tmp_path: Path, by_s: int) -> None:
    manager = Dated(tmp_path, "--emulate", "gpu=4/4")
    manager.start()
    try:
        long = manager.submit("echo $$; sleep 5", time_limit="10m")
        short = manager.submit("echo $$; exec sleep 600", time_limit="8s")
        flag = tmp_path / "flag"
        retried = manager.submit(f"test -e {flag} && exit 0; touch {flag}; kill -9 $$", max_restarts=3)
        pid, begun_s = pid_of(manager, short), time.monotonic()
        manager.set_date(by_s)
        shown = datetime.fromisoformat(manager.client.job(manager.submit("true"))["submitted"])
        off_s = (shown - datetime.now(UTC)).total_seconds()
        assert abs(off_s - by_s) < 60.0
        manager.kill()
        manager.start()
        eventually(lambda: ended(pid))
        assert time.monotonic() > begun_s + 4.0, "the limit of eight seconds was not reached at once"
        assert manager.wait(short, "failed")["message"] == "it reached its time limit"
        assert manager.wait(long)["state"] == "succeeded"
        assert manager.wait(retried)["state"] == "succeeded"
    finally:
        manager.clean_up()


@pytest.mark.skipif(not FAKETIME, reason="there is no libfaketime here (Debian: faketime)")
@pytest.mark.attack("steps the clock while jobs run by leases", stopped_by="leases count the time since boot")
def test_step_of_the_clock_ends_no_lease_early_and_none_late(tmp_path: Path) -> None:
    policy = "gavel/max_min_fairness:round_s=2"
    manager = Dated(tmp_path, "--emulate", "gpu=1/1", "--policy", policy)
    manager.start()
    try:
        jobs = [manager.submit(f"sleep 600; echo {n}", resources={"gpus": 1}) for n in range(2)]
        eventually(lambda: any(manager.state(job) == "running" for job in jobs))
        turns: list[str] = []

        def has_changed(times: int) -> bool:
            runs = [job for job in jobs if manager.state(job) == "running"]
            if runs and (not turns or turns[-1] != runs[0]):
                turns.append(runs[0])
            return len(turns) >= times

        eventually(lambda: has_changed(2), within_s=120)
        for by_s in (3600, -3600):
            manager.set_date(by_s)
            turns.clear()
            begun_s = time.monotonic()
            eventually(lambda: has_changed(3), within_s=40)
            assert time.monotonic() - begun_s > 1.0, "leases of two seconds did not end at once"
    finally:
        manager.clean_up()


# -- descriptors ---------------------------------------------------------------------------------


@pytest.mark.attack(
    "uses up the manager's descriptors", stopped_by="what fails is tried again; nothing is lost or repeated"
)
def test_manager_without_descriptors_loses_nothing(manager: Manager) -> None:
    assert manager.process is not None
    pid = manager.process.pid
    for _ in range(ROUNDS):
        running = [manager.submit("echo $$; sleep 2", name=f"runs-{n}") for n in range(4)]
        limited = manager.submit("echo $$; exec sleep 600", time_limit="4s")
        task = pid_of(manager, limited)
        waiting = manager.submit("true", depends_on=running)
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        used = max(int(name) for name in os.listdir(f"/proc/{pid}/fd")) + 1
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used, hard))
        try:
            eventually(partial(ended, task), within_s=60)
        finally:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
        for job in (*running, waiting):
            assert manager.wait(job, within_s=60)["state"] == "succeeded"
        assert manager.wait(limited, "failed")["message"] == "it reached its time limit"
        assert manager.process.poll() is None
    assert "Traceback" not in log_of(manager)


# -- deleted folders -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "restarts",
    [
        pytest.param(
            False,
            id="same manager",
            marks=pytest.mark.attack("deletes the run folder of its task", stopped_by="its supervisor gets a signal"),
        ),
        pytest.param(
            True,
            id="restarted manager",
            marks=pytest.mark.attack(
                "deletes the run folder of its task, and the manager restarts",
                stopped_by="processes are found by their token",
            ),
        ),
    ],
)
def test_cancel_ends_the_process_of_a_deleted_folder(manager: Manager, restarts: bool) -> None:
    job = manager.submit("echo $$; trap '' TERM; exec sleep 600", checkpoint={"grace": "1s"})
    pid = pid_of(manager, job)
    shutil.rmtree(manager.home / "runs" / job)
    if restarts:
        manager.kill()
        manager.start()
    with contextlib.suppress(Unavailable):
        manager.client.act(job, "cancel")
    eventually(lambda: ended(pid))
    assert manager.wait(job, "cancelled")["state"] == "cancelled"
    eventually(lambda: not manager.task_processes())
    assert "Traceback" not in log_of(manager)


@pytest.mark.attack(
    "deletes all run folders while the manager is down",
    stopped_by="processes are found by their token before a new attempt",
)
def test_deleted_folders_start_no_task_beside_the_old_one(manager: Manager) -> None:
    started = manager.folder / "alone"
    lock = f"exec 9>{started}; flock -n 9 || {{ echo twice >> {started}.twice; exit 1; }}; sleep 3"
    job = manager.submit(f"echo $$; {lock}", max_restarts=0)
    pid = pid_of(manager, job)
    manager.kill()
    shutil.rmtree(manager.home / "runs")
    manager.start()
    eventually(lambda: ended(pid))
    assert manager.wait(job)["state"] == "succeeded"
    assert not Path(f"{started}.twice").exists()
