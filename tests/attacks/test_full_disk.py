"""Jobs of one user that fill the disk together, each of them below its own limit."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from managers import Manager, eventually
from rota.core.model.job import JobId
from rota.live.health import disk_guard
from rota.live.health.disk_guard import DiskGuard
from rota.live.loop.control import Control
from rota.store.run_folder import attempt_folder, over_scratch

attack = pytest.mark.attack
ALWAYS_LOW = """
import shutil
from rota.live.health import disk_guard
disk_guard.LEFT_FREE = 2.0
disk_guard.LEAST = (1 << 20) / shutil.disk_usage("/").total
"""


@attack(
    "fills the disk by many jobs, each below its scratch limit",
    stopped_by="while the disk is nearly full, the largest job of the user with the most is ended",
)
def test_largest_job_of_the_user_with_the_most_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_guard, "LEAST", (1 << 16) / shutil.disk_usage(tmp_path).total)
    owners = {"1": ("eve", 150), "2": ("eve", 200), "3": ("ada", 300), "4": ("eve", 50), "5": ("bob", 0)}
    for job_id, (_, kib) in owners.items():
        folder = attempt_folder(tmp_path, JobId(job_id), 1)
        folder.mkdir(parents=True)
        (folder / "written").write_bytes(b"x" * (kib << 10))
    guard = DiskGuard(cast(Control, SimpleNamespace()), tmp_path)
    running = {JobId(job_id): (owner, 1) for job_id, (owner, _) in owners.items()}

    ended = []
    while (found := guard.end_largest(running)) is not None:
        assert over_scratch(attempt_folder(tmp_path, found, 1)).exists()
        ended.append(found)
        del running[found]

    assert ended == ["2", "3", "1"]  # 4 and 5 hold too little to fill a disk


def test_disk_with_space_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guard = DiskGuard(cast(Control, SimpleNamespace()), tmp_path)
    usage: dict[str, Any] = {"total": 100, "used": 90, "free": 6}
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(**usage))

    assert not guard.is_low()
    usage["free"] = 4
    assert guard.is_low()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    found = Manager(tmp_path, "--emulate", "gpu=4/4")
    found.prelude = ALWAYS_LOW
    yield found.start()
    found.clean_up()


def test_job_that_fills_the_disk_fails_and_others_go_on(manager: Manager) -> None:
    small = manager.submit("echo small; exec sleep 600")
    large = manager.submit('head -c 8388608 /dev/zero > "$ROTA_RUN_DIR/written"; exec sleep 600')

    eventually(lambda: manager.client.get(f"/jobs/{large}")["state"] == "failed")
    assert "out of scratch space" in manager.client.get(f"/jobs/{large}")["message"]
    assert manager.client.get(f"/jobs/{small}")["state"] == "running"
