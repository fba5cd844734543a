"""`rota get`: list and fetch the files that a job wrote."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from rota.cli.jobs.show import AnyJobArgument
from rota.cli.manager.connect import ServerOption, client_for
from rota.cli.render import Column, OutputFormat, OutputOption, emit
from rota.cli.terminal import echo
from rota.core.errors import RotaError
from rota.core.neutral_text import neutral

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def _size(count: float) -> str:
    for unit in UNITS[:-1]:
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} {UNITS[-1]}"


COLUMNS = (
    Column(key="path"),
    Column(key="bytes", title="size", right=True, show=_size),
    Column(key="modified", show=lambda at: datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%d %H:%M")),
)


def get(
    job: AnyJobArgument,
    path: Annotated[
        str | None, typer.Argument(help="A file or a folder of the job; . is all of it.", metavar="PATH")
    ] = None,
    to: Annotated[Path | None, typer.Option("--to", help="Where to write it; the present folder by default.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.")] = False,
    server: ServerOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> int:
    """List the files that a job wrote to $ROTA_RUN_DIR, or fetch a file or a folder of them.

    Examples:

      rota get 17

      rota get 17 model.pt

      rota get 17 checkpoints --to /data/run-17

      rota get 17 . --to run-17
    """
    from rota.sdk.client import Client

    client = client_for(server)
    if not isinstance(client, Client):
        raise RotaError(
            "rota get: pods and Slurm's jobs keep their files themselves; use kubectl cp, or the file system"
        )
    found = client.files(job, path or "")
    _note(found)
    if path is None:
        emit(found["files"], COLUMNS, output, nothing="no files; a job writes them to $ROTA_RUN_DIR")
        return 0
    if not found["files"]:
        raise RotaError(f"job {job} has no files in {path}")
    _fetch(client, job, path, found["files"], to, force=force)
    return 0


def _note(found: dict[str, Any]) -> None:
    if found["truncated"]:
        echo(f"note: only the first {len(found['files'])} files; name a folder to see what is in it", err=True)
    if found["left_out"]:
        echo(f"note: {found['left_out']} links and special files are left out", err=True)


def _fetch(client: Any, job: str, path: str, files: list[dict[str, Any]], to: Path | None, *, force: bool) -> None:
    """Write files below the place that was named: one file under its own name, a folder with what is below it."""
    wanted = "/".join(part for part in path.split("/") if part not in ("", "."))
    is_file = len(files) == 1 and files[0]["path"] == wanted
    above = wanted.rpartition("/")[0] if is_file or to is None else wanted
    folder = to or Path()
    total = 0
    for file in files:
        below = file["path"].removeprefix(f"{above}/" if above else "")
        if below.startswith("/") or ".." in below.split("/"):
            raise RotaError(f"the manager named {below!r}, which leads out of {folder}; nothing of it was written")
        target = to if is_file and to is not None and not to.is_dir() else folder / below
        total += client.get_file(job, file["path"], target, replace=force)
        echo(neutral(str(target)))
    if len(files) > 1:
        echo(f"{len(files)} files, {_size(total)}", err=True)
