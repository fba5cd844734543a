"""The folders in which tasks run: what the server writes there for the supervisors, and reads from them.

`runs/JOB/ATTEMPT/RANK/` belongs to one task of one attempt; see `supervisor.py` for the files in it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rota.core.model import JobId

Json = dict[str, Any]
_OUTPUT = "output-"


def attempt_folder(home: Path, job_id: JobId, attempt: int) -> Path:
    """Where one attempt of a job runs."""
    return home / "runs" / job_id / str(attempt)


def read_json(path: Path) -> Json | None:
    """A file's values; None if there is no such file."""
    try:
        value: Json = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    return value


def write_json(path: Path, value: Json) -> None:
    """Write a file whole, readable by its owner only."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with open(draft, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        json.dump(value, file)
    os.replace(draft, path)


def output_parts(folder: Path) -> list[tuple[int, Path]]:
    """The files of a task's output that are still there, each with where it begins."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.startswith(_OUTPUT))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [(int(name[len(_OUTPUT) : -4]), folder / name) for name in names]


def read_output(folder: Path, offset: int, most_bytes: int) -> tuple[int, bytes]:
    """Up to so many bytes of a task's output from an offset on, and where they begin: later if those are gone."""
    for begins, path in _from(output_parts(folder), offset):
        at = max(offset, begins)
        try:
            with path.open("rb") as file:
                file.seek(at - begins)
                said = file.read(most_bytes)
        except FileNotFoundError:
            continue
        if said:
            return at, said
    return offset, b""


def output_end(folder: Path) -> int:
    """How much a task has said so far."""
    for begins, path in reversed(output_parts(folder)):
        try:
            return begins + path.stat().st_size
        except FileNotFoundError:
            continue
    return 0


def tail(folder: Path, most_bytes: int = 4096) -> str:
    """The end of a task's output."""
    _, said = read_output(folder, max(output_end(folder) - most_bytes, 0), most_bytes)
    return said.decode("utf-8", errors="replace")


def _from(parts: list[tuple[int, Path]], offset: int) -> Iterator[tuple[int, Path]]:
    """The parts from the one on that holds an offset."""
    last = 0
    for index, (begins, _) in enumerate(parts):
        if begins <= offset:
            last = index
    yield from parts[last:]
