"""Where commands find the manager of this machine, and its data."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rota.sdk import place


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "run"
    folder.mkdir(mode=0o755)
    monkeypatch.setattr(place, "MACHINE_FOLDER", folder)
    monkeypatch.setattr(place, "_is_roots", lambda path: path.exists())
    return folder


def sign(folder: Path, data: object, pid: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manager.json").write_text(json.dumps({"url": "http://x:1", "pid": pid, "data": data}))


def test_data_of_a_service_is_where_the_service_says(machine: Path, tmp_path: Path) -> None:
    sign(machine, "/var/lib/rota")

    assert place.managers_data_folder() == Path("/var/lib/rota")


def test_data_of_an_own_manager_that_runs_comes_first(machine: Path, tmp_path: Path) -> None:
    sign(machine, "/var/lib/rota")
    sign(tmp_path / "state/rota", "/home/ada/data", os.getpid())

    assert place.managers_data_folder() == Path("/home/ada/data")


@pytest.mark.parametrize("data", [None, "missing"])
def test_without_a_manager_data_is_in_the_users_own_folder(machine: Path, tmp_path: Path, data: object) -> None:
    if data is None:
        sign(machine, None)  # as an older version wrote it

    assert place.managers_data_folder() == tmp_path / "data/rota"
