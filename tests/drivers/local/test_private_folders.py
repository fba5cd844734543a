"""What tasks leave in the machine's memory: swept by their own manager, or by any once theirs is gone for good."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from rota.core.model.job import JobId
from rota.drivers.local.confinement import private_folders
from rota.drivers.local.confinement.private_folders import ABANDONED_S, make_private, sweep_memory

JOB = JobId("1")


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "shm"
    folder.mkdir()
    monkeypatch.setattr(private_folders, "MEMORY", folder)
    return folder


def left_by(home: Path, attempt: int, *, age_s: float = 0.0) -> Path:
    """The folder in memory of an attempt."""
    before = set(private_folders.MEMORY.iterdir())
    (home / "runs" / JOB).mkdir(parents=True, exist_ok=True)
    make_private(home, JOB, attempt, ())
    (made,) = set(private_folders.MEMORY.iterdir()) - before
    os.utime(made, (time.time() - age_s,) * 2)
    return made


def test_manager_sweeps_its_own_but_not_what_is_known(tmp_path: Path, memory: Path) -> None:
    ended, running = left_by(tmp_path / "mine", 1), left_by(tmp_path / "mine", 2)

    sweep_memory(tmp_path / "mine", {(str(JOB), 2)})

    assert list(memory.iterdir()) == [running]
    assert not ended.exists()


def test_what_a_deleted_manager_left_goes_after_a_day(tmp_path: Path, memory: Path) -> None:
    old, fresh = left_by(tmp_path / "gone", 1, age_s=2 * ABANDONED_S), left_by(tmp_path / "gone", 2)
    other = left_by(tmp_path / "another", 3, age_s=2 * ABANDONED_S)
    (tmp_path / "gone").rename(tmp_path / "moved")

    sweep_memory(tmp_path / "mine", set())

    assert not old.exists()
    assert {*memory.iterdir()} == {fresh, other}
