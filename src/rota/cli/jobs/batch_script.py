"""Batch scripts of Slurm given to `rota submit`: read as a job, with notes about what has no effect."""

from __future__ import annotations

import re
import shutil
import sys
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rota.cli.terminal import echo
from rota.core.errors import RotaError

if TYPE_CHECKING:
    from rota.files.sbatch.script import BatchScript

Json = dict[str, Any]
_SPAN = re.compile(r"(\d{1,18})(?:-(\d{1,18})(?::(\d{1,18}))?)?", re.ASCII)
MOST_MEMBERS = 10_000
"""Members of an array that are sent at all; a manager takes 1,000 at once unless its settings say otherwise."""
MOST_INPUT = 4 << 20
"""Characters of a script that comes from the input."""


def batch_script_of(what: list[str]) -> BatchScript | None:
    """Return the batch script that the first word names, with the other words as its arguments; None if it is none.

    It comes from the input where that is `-`, or where nothing is named and the input is no terminal, as with `sbatch`.
    """
    script = _of_input(what[1:]) if what[:1] in ([], ["-"]) else _of_file(what)
    for note in () if script is None else script.notes:
        echo(f"note: {note}", err=True)
    return script


def _of_input(arguments: list[str]) -> BatchScript | None:
    from rota.files.sbatch.script import batch_script

    text = ""
    with suppress(OSError):  # closed, or not to be read
        text = "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read(MOST_INPUT)
    return batch_script(text, Path("sbatch"), arguments) if text.strip() else None


def _of_file(what: list[str]) -> BatchScript | None:
    path = Path(what[0])
    if path.suffix in (".yaml", ".yml", ".json") or not path.is_file():
        return None
    from rota.files.sbatch.script import is_batch_script, is_plain_script, read_batch_script

    if is_batch_script(path):
        return read_batch_script(path, what[1:])
    is_command = "/" in what[0] or shutil.which(what[0]) is not None
    return read_batch_script(path, what[1:]) if not is_command and is_plain_script(path) else None


def numbered(jobs: list[Json], array: str, script: BatchScript | None) -> list[Json]:
    """Return the jobs of an array; those of a batch script find Slurm's variables about it."""
    numbers, limit = members(array)
    jobs = jobs if limit is None else [{**job, "array_limit": limit} for job in jobs]
    if script is None:
        return [{**job, "array": number} for job in jobs for number in numbers]
    about = {"COUNT": len(numbers), "MIN": min(numbers), "MAX": max(numbers)}
    own = {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in about.items()}
    own["SLURM_ARRAY_JOB_ID"] = uuid.uuid4().hex[:8]  # the same in all of the array; its first job has no id yet
    return [{**job, "array": number, "env": {**(job.get("env") or {}), **own}} for job in jobs for number in numbers]


def members(text: str) -> tuple[list[int], int | None]:
    """The numbers in `0-9`, `1,3,5-7` or `0-15:4`, and how many may run at once if it ends as in `0-9%4`."""
    found: dict[int, None] = {}
    spans, percent, most = text.partition("%")
    if percent and not (re.fullmatch(r"[0-9]{1,9}", most.strip(), re.ASCII) and int(most)):
        raise RotaError(f"--array is {text[:60]!r}; after % goes how many jobs may run at once, as in 0-9%4")
    for part in spans.split(","):
        span = _SPAN.fullmatch(part.strip())
        first, last = (int(span[1]), int(span[2] or span[1])) if span else (1, 0)
        step = int((span and span[3]) or 1)
        if first > last or not step:
            raise RotaError(f"--array is {text[:60]!r}; write it like 0-9, 1,3,5-7, 0-15:4 or 0-9%4")
        numbers = range(first, last + 1, step)
        count = len(found) + len(numbers)
        if count > MOST_MEMBERS:
            raise RotaError(
                f"--array is {text[:60]!r}, which is {count} jobs; a manager takes 1000 at once unless its "
                f"limits.jobs_at_once is another number, and never more than {MOST_MEMBERS}; submit them in parts"
            )
        found.update(dict.fromkeys(numbers))
    return list(found), int(most) if percent else None


def how_sent(
    script: BatchScript | None, array: str | None, env_from_shell: str, *, held: bool, wait: bool
) -> dict[str, Any]:
    """Return the options of a submission: those that are given, and those of the script."""
    if script is None:
        return {"array": array, "env_from_shell": env_from_shell, "held": held, "wait": wait}
    passed = env_from_shell if env_from_shell != "default" else script.env_from_shell or env_from_shell
    return {
        "array": array if array is not None else script.array,
        "env_from_shell": passed,
        "held": held or script.held,
        "wait": wait or script.wait,
    }
