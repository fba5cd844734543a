"""Databases that the machine damaged: nothing is accepted, and one line says what is wrong and how to restore it."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from managers import Manager, eventually
from rota.core.errors import Unavailable

pytestmark = pytest.mark.slow
PAGE_BYTES = 4096


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a manager that ran jobs and was killed, with its last changes in the write-ahead log."""
    folder = tmp_path_factory.mktemp("used")
    manager = Manager(folder, "--emulate", "gpu=2/2").start()
    for number in range(6):
        job = manager.submit("true", name=f"job-{number}", env={"PAD": "x" * 2000})
        manager.wait(job)
        if number == 2:
            with closing(sqlite3.connect(manager.home / "rota.db")) as database:
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    manager.kill()
    manager.clean_up()
    snapshot = folder.with_name("snapshot")
    with closing(sqlite3.connect(manager.home / "rota.db")) as database:  # the last one to close takes the log away
        database.execute("UPDATE jobs SET message = 'late'")
        database.commit()
        shutil.copytree(folder, snapshot, ignore=shutil.ignore_patterns("notify", "tell"))
    assert (snapshot / manager.home.relative_to(folder) / "rota.db-wal").stat().st_size > 0
    return snapshot


def settle(home: Path) -> Path:
    """Move the write-ahead log into the database, so that all of it is in one file."""
    with closing(sqlite3.connect(home / "rota.db")) as database:
        database.execute("PRAGMA journal_mode=DELETE")
    return home / "rota.db"


def truncate(home: Path) -> None:
    path = settle(home)
    os.truncate(path, path.stat().st_size // 2)


def empty(home: Path) -> None:
    os.truncate(settle(home), 0)


def remove(home: Path) -> None:
    settle(home).unlink()


def replace_by_text(home: Path) -> None:
    settle(home).write_text("This is a note, not a database.\n" * 400)


def replace_by_folder(home: Path) -> None:
    settle(home).unlink()
    (home / "rota.db").mkdir()


def lose_log(home: Path) -> None:
    (home / "rota.db-wal").unlink()
    (home / "rota.db-shm").unlink(missing_ok=True)


def lose_all_but_log(home: Path) -> None:
    shutil.rmtree(home / "runs")
    (home / "rota.db").unlink()


def corrupt_pages(home: Path) -> None:
    path = settle(home)
    with path.open("r+b") as file:
        for page in range(2, path.stat().st_size // PAGE_BYTES):
            file.seek(page * PAGE_BYTES)
            file.write(os.urandom(64))


CASES: dict[str, tuple[Callable[[Path], None], str]] = {
    "truncates it to half": (truncate, "is damaged: "),
    "truncates it to nothing": (empty, "is empty, but jobs were run from"),
    "deletes it": (remove, "is missing, but jobs were run from"),
    "replaces it by a text": (replace_by_text, "is damaged: file is not a database"),
    "replaces it by a folder": (replace_by_folder, "can't be opened"),
    "deletes its write-ahead log": (lose_log, "has lost its last changes (is rota.db-wal missing?)"),
    "deletes all but its write-ahead log": (lose_all_but_log, "is missing, but jobs were run from"),
    "overwrites its pages": (corrupt_pages, "is damaged: "),
}


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        pytest.param(
            *case, id=name, marks=pytest.mark.attack(f"{name} (the database)", stopped_by="a check at the start")
        )
        for name, case in CASES.items()
    ],
)
def test_damaged_database_is_refused_in_one_line(
    tmp_path: Path, used: Path, damage: Callable[[Path], None], said: str
) -> None:
    shutil.copytree(used, tmp_path / "copy", ignore=shutil.ignore_patterns("notify", "tell"))
    manager = Manager(tmp_path / "copy")
    damage(manager.home)

    told = manager.rota("up", "--port", "0", "--emulate", "gpu=2/2")

    assert told.returncode == 2, told.stderr
    assert told.stderr.count("\n") == 1
    assert said in told.stderr
    assert "Traceback" not in told.stderr
    if damage is not replace_by_folder:
        assert "put" in told.stderr, "it says how to restore it"


def test_backup_in_place_of_a_damaged_database_works(tmp_path: Path, used: Path) -> None:
    shutil.copytree(used, tmp_path / "copy", ignore=shutil.ignore_patterns("notify", "tell"))
    manager = Manager(tmp_path / "copy", "--emulate", "gpu=2/2")
    assert manager.rota("backup", str(tmp_path / "good.db")).returncode == 0
    corrupt_pages(manager.home)
    assert manager.rota("up", "--port", "0").returncode == 2

    shutil.copy(tmp_path / "good.db", manager.home / "rota.db")
    for name in ("rota.db-wal", "rota.db-shm"):
        (manager.home / name).unlink(missing_ok=True)
    manager.start()
    try:
        assert len(list(manager.client.jobs(all=True))) == 6
        assert manager.submit("true") == "7"
    finally:
        manager.clean_up()


@pytest.mark.attack(
    "overwrites the pages of the database while the manager runs", stopped_by="it is not written again; 503 and 507"
)
def test_pages_that_are_corrupted_while_it_runs_stop_acceptance_but_not_cancellation(tmp_path: Path) -> None:
    manager = Manager(tmp_path, "--emulate", "gpu=2/2").start()
    try:
        job = manager.submit("sleep 600")
        manager.wait(job, "running")
        with closing(sqlite3.connect(manager.home / "rota.db")) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        corrupt = bytes(PAGE_BYTES)
        path = manager.home / "rota.db"
        with path.open("r+b") as file:
            for page in range(1, path.stat().st_size // PAGE_BYTES):
                file.seek(page * PAGE_BYTES)
                file.write(corrupt)

        def is_refused() -> bool:
            try:
                manager.submit("true")
            except Unavailable as error:
                return "damaged" in str(error)
            return False

        eventually(is_refused)
        manager.client.act(job, "cancel")
        eventually(lambda: not manager.task_processes())
        assert "Traceback" not in (tmp_path / "up.log").read_text()
    finally:
        manager.clean_up()


@pytest.mark.attack("deletes the database's file while the manager runs", stopped_by="the file's identity is watched")
def test_file_that_is_removed_while_it_runs_stops_acceptance(tmp_path: Path) -> None:
    manager = Manager(tmp_path, "--emulate", "gpu=2/2").start()
    try:
        manager.wait(manager.submit("true"))
        (manager.home / "rota.db").rename(tmp_path / "elsewhere.db")

        def is_refused() -> bool:
            try:
                manager.submit("true")
            except Unavailable as error:
                return "was removed or replaced while it was in use" in str(error)
            return False

        eventually(is_refused)
    finally:
        manager.clean_up()
