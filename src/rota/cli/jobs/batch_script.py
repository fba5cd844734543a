"""Batch scripts of Slurm given to `rota submit`: read as a job, with notes about what has no effect."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rota.cli.terminal import echo

if TYPE_CHECKING:
    from rota.files.sbatch.script import BatchScript

Json = dict[str, Any]


def batch_script_of(what: list[str]) -> BatchScript | None:
    """Return the batch script that the first word names, with the other words as its arguments; None if it is none."""
    path = Path(what[0] if what else "")
    if path.suffix in (".yaml", ".yml", ".json") or not path.is_file():
        return None
    from rota.files.sbatch.script import is_batch_script, read_batch_script

    if not is_batch_script(path):
        return None
    script = read_batch_script(path, what[1:])
    for note in script.notes:
        echo(f"note: {note}", err=True)
    return script


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
