"""How far the data sets of a job are that is being made ready, for people."""

from __future__ import annotations

from pathlib import Path

from rota.core.model.job import JobId
from rota.store.run_folder import attempt_folder, matching, read_json

_BEGIN, _END = "preparing-", ".json"
MIB = 1 << 20


def progress_file(folder: Path, name: str) -> Path:
    """Return where the fetch of a data set for an attempt notes how far it is."""
    return folder / f"{_BEGIN}{name}{_END}"


def preparing(home: Path, job_id: JobId, attempt: int) -> str:
    """Return what a job waits for that has its devices and does not run yet; nothing if that is not known."""
    folder = attempt_folder(home, job_id, max(attempt, 1))
    said = []
    for file in matching(folder, f"{_BEGIN}*{_END}"):
        name, found = file.name[len(_BEGIN) : -len(_END)], read_json(file) or {}
        if found.get("phase") == "fetching":
            done, total = (round(int(found[key]) / MIB) for key in ("done", "total"))
            said.append(f"data set {name} is being fetched: {done} of {total} MiB")
        else:
            said.append(f"data set {name} is being looked at")
    return "; ".join(said)
