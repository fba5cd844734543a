"""What is read of the folders of jobs, while they change and whatever tasks put there."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rota.core.model.job import JobId
from rota.drivers.local.gpu.job_energy import energy_of, warnings_of
from rota.store.run_folder import gpu_usage, matching, stop_causes, write_json

JOB = JobId("1")


@contextmanager
def coming_and_going(*folders: Path) -> Iterator[None]:
    """Folders that another thread makes and removes all the time."""
    over = threading.Event()

    def come_and_go() -> None:
        while not over.is_set():
            for folder in folders:
                (folder / "tmp").mkdir(parents=True, exist_ok=True)
            for folder in folders:
                shutil.rmtree(folder, ignore_errors=True)

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_folders_that_are_removed_meanwhile_are_left_out(tmp_path: Path) -> None:
    job = tmp_path / "runs" / JOB
    (job / "1" / "0").mkdir(parents=True)
    write_json(job / "1" / "0" / "energy.json", {"joules": 3.0, "alone": True})
    found = [0, 0]

    with coming_and_going(*(job / name for name in ("private-1", "2", "3", "4"))):
        for _ in range(2000):
            energy = energy_of(tmp_path, JOB)
            assert energy is not None
            assert energy.joules == 3.0
            found[0] += len(matching(job, "*"))
            found[1] += len(matching(job, "*/*/energy.json"))
            assert warnings_of(tmp_path, JOB) == [] == [*stop_causes(tmp_path, JOB, 2), *gpu_usage(tmp_path, JOB, 2)]

    assert found[0] > 2000, "no other folder was ever there"
    assert found[1] == 2000


def test_what_tasks_write_to_their_own_folders_is_not_taken_for_their_supervisors_word(tmp_path: Path) -> None:
    job = tmp_path / "runs" / JOB
    for own in ("shared/0", "private-1/tmp", "data/set"):
        (job / own).mkdir(parents=True)
        write_json(job / own / "energy.json", {"joules": -1e30, "alone": True})
        os.mkfifo(job / own / "a-warning.json")  # to open it would hold the reader for ever

    assert energy_of(tmp_path, JOB) is None
    assert warnings_of(tmp_path, JOB) == []
