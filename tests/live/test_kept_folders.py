"""The folders of ended jobs stay below a size."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rota.live.loop.kept_folders import KeptFolders
from rota.store.records import Records
from rota.store.run_folder import remove_folder

MIB = 1 << 20


class Ended:
    """The owners of ended jobs, oldest first, as the records have them."""

    def __init__(self, owners: dict[str, str]) -> None:
        self._owners = owners

    def owners_of_ended(self, ids: dict[str, int]) -> dict[str, str]:
        return {name: owner for name, owner in self._owners.items() if name in ids}


def _fill(home: Path, sizes: dict[str, int]) -> None:
    for name, size in sizes.items():
        folder = home / "runs" / name / "shared"
        folder.mkdir(parents=True)
        (folder / "data").write_bytes(b"x" * (size * MIB))


def _left(home: Path) -> list[str]:
    return sorted(path.name for path in (home / "runs").iterdir())


@pytest.mark.attack("fills the disk with folders of job after job", stopped_by="keep_size, by user")
def test_user_that_holds_the_most_loses_its_oldest_folders(tmp_path: Path) -> None:
    _fill(tmp_path, {"1": 1, "2": 3, "3": 3, "4": 3, "5": 1, "9": 5, "odd": 1})
    records = Ended({"1": "ada", "2": "eve", "3": "eve", "4": "eve", "5": "ada"})
    kept = KeptFolders(tmp_path, 10 * MIB, records, lambda name: name == "9")  # type: ignore[arg-type]

    gone = kept.trim()

    assert gone == ["2"], "ada's is older and stays; a running job and an unknown folder do too"
    assert _left(tmp_path) == ["1", "3", "4", "5", "9", "odd"]
    assert kept.trim() == []


def test_links_are_not_followed_and_no_limit_deletes_nothing(tmp_path: Path) -> None:
    _fill(tmp_path, {"1": 2})
    outside = tmp_path / "outside"
    outside.write_bytes(b"x" * (8 * MIB))
    (tmp_path / "runs" / "1" / "shared" / "link").symlink_to(outside)
    records = Ended({"1": "ada"})

    assert KeptFolders(tmp_path, 0, records, lambda name: False).trim() == []  # type: ignore[arg-type]
    assert KeptFolders(tmp_path, 4 * MIB, records, lambda name: False).trim() == []  # type: ignore[arg-type]
    assert KeptFolders(tmp_path, MIB, records, lambda name: False).trim() == ["1"]  # type: ignore[arg-type]
    assert outside.exists()


def test_folder_without_runs_is_no_error(tmp_path: Path) -> None:
    records: Records = Ended({})  # type: ignore[assignment]
    assert KeptFolders(tmp_path, 1, records, lambda name: False).trim() == []


@pytest.mark.attack("nests folders so deeply that they can't be deleted", stopped_by="deletion without recursion")
def test_deep_folders_are_deleted(tmp_path: Path) -> None:
    top = tmp_path / "runs" / "1"
    top.mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    (top / "link").symlink_to(outside)
    made = os.open(top, os.O_RDONLY)
    for _ in range(2000):
        os.mkdir("d", dir_fd=made)
        below = os.open("d", os.O_RDONLY, dir_fd=made)
        os.close(made)
        made = below
    os.close(made)

    remove_folder(top)

    assert not top.exists()
    assert outside.exists()
