"""The folders that stand in for /tmp, /var/tmp and /dev/shm in the tasks of one attempt, shared among these tasks.

`runs/JOB/private-ATTEMPT` is root's, so that only a process of root can reach the folder in it, which is open to all as
/tmp is; a task reaches it because it is mounted over its /tmp. The one for /dev/shm lies in the machine's own /dev/shm.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Container, Sequence
from pathlib import Path

from rota.core.model.job import JobId
from rota.store import clock
from rota.store.run_folder import Json, read_json, remove_folder, write_json

COVERED = ("/tmp", "/var/tmp")  # these are covered, not used
MEMORY = Path("/dev/shm")
ABANDONED_S = 86400.0
_NAME = "rota-"
_OPEN = 0o1777


def private_folder(home: Path, job_id: JobId, attempt: int) -> Path:
    """Return the folder that holds the /tmp of an attempt."""
    return home / "runs" / job_id / f"private-{attempt}"


def make_private(home: Path, job_id: JobId, attempt: int, kept: Sequence[Path]) -> Json:
    """Make the folders of an attempt, once; return what a task has to mount.

    `kept` are folders that its tasks need at their own path, though that may be below a covered one.
    """
    folder = private_folder(home, job_id, attempt)
    folder.mkdir(mode=0o700, exist_ok=True)
    known = read_json(folder / "memory.json")
    if known is None:
        known = {"folder": _make_memory(home, job_id, attempt)}
        write_json(folder / "memory.json", known)
    tmp = _make_open(folder / "tmp")
    binds = [[str(tmp), path] for path in COVERED if os.path.isdir(path)]
    if known["folder"] is not None:
        binds.append([str(_make_open(Path(known["folder"]) / "shm")), str(MEMORY)])
    covered = [(path, Path(above)) for path in kept for above in COVERED if path.is_relative_to(above)]
    for path, above in covered:
        (tmp / path.relative_to(above)).mkdir(parents=True, exist_ok=True)
        for each in (path, *path.parents):  # root's own, so that a task can't put anything in their place
            if each.is_relative_to(above) and each != above:
                (tmp / each.relative_to(above)).chmod(0o755)
    return {"binds": binds, "kept": [str(path) for path, _ in covered]}


def remove_private(home: Path, job_id: JobId, attempt: int) -> None:
    """Remove the folders of an attempt that has ended."""
    folder = private_folder(home, job_id, attempt)
    with contextlib.suppress(OSError, ValueError):
        known = read_json(folder / "memory.json")
        if known is not None and known["folder"] is not None:
            remove_folder(Path(known["folder"]))
    remove_folder(folder)


def sweep_memory(home: Path, known: Container[tuple[str, int]]) -> None:
    """Remove what attempts of this manager left in memory, except those of `known`, by job and number.

    What a manager left whose data folder has been deleted is removed, too, after a day: no manager will find it again.
    """
    with contextlib.suppress(OSError):
        for folder in MEMORY.iterdir():
            found = folder.lstat()
            if not folder.name.startswith(_NAME) or not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                continue
            owner = read_json(folder / "owner.json")
            if owner is None:
                continue
            is_left = owner["home"] == str(home) and (owner["job"], owner["attempt"]) not in known
            is_old = clock.now_s() - found.st_mtime > ABANDONED_S
            if is_left or (is_old and not os.path.lexists(owner["home"])):
                remove_folder(folder)


def _make_memory(home: Path, job_id: JobId, attempt: int) -> str | None:
    """Make a folder in memory under a name that can't be foreseen, as every user may write there."""
    if not MEMORY.is_dir():
        return None
    made = tempfile.mkdtemp(prefix=_NAME, dir=MEMORY)
    write_json(Path(made) / "owner.json", {"home": str(home), "job": job_id, "attempt": attempt})
    return made


def _make_open(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    folder.chmod(_OPEN)
    return folder
