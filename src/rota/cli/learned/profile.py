"""`rota profile`: what a training command uses."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Annotated

import typer

from rota.cli.render import Column, OutputFormat, OutputOption, emit
from rota.cli.terminal import echo
from rota.core.errors import RotaError


def profile(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="What to run, after `--`.")],
    most: Annotated[str, typer.Option("--for", help="Stop it after this long.", metavar="TIME")] = "60s",
    append: Annotated[
        Path | None, typer.Option(help="Add a row to this table of runs (CSV), for `rota estimate`.", metavar="FILE")
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Run a training command for a while and print what it uses: GPU, CPU, memory, network, step time and phases.

    Examples:

      rota profile -- python train.py --batch 64

      rota profile --for 5m --append runs.csv -- python train.py --model resnet50 --batch 128
    """
    from rota.drivers.local.profile import profile as run
    from rota.estimate.flags import attributes_of
    from rota.files.quantities import parse_duration

    most_s = parse_duration(most)
    if not 0 < most_s < 86400:
        raise RotaError(f"--for is {most!r}; it must be above 0 and below a day")
    before = [] if append is None else _rows_so_far(append)
    used, code = run(command, most_s)
    row: dict[str, object] = {**attributes_of(command), **{name: round(value, 6) for name, value in used.items()}}
    if code is None:
        echo(f"note: the command was stopped after {most}; how long it takes in all is not known", err=True)
    if code:
        echo(f"note: the command ended with status {code}; the row is not kept", err=True)
    elif append is not None:
        _write(append, [*before, row])
    if output is OutputFormat.TABLE:
        from rota.estimate.observations import LABELS

        rows = [{"what": LABELS[name], "used": value} for name, value in used.items()]
        emit(rows, (Column(key="what"), Column(key="used", show=lambda value: f"{value:,.4g}", right=True)), output)
    else:
        emit([{**row, "exit_code": code}], (), output)
    if code:
        raise typer.Exit(1)


def _rows_so_far(path: Path) -> list[dict[str, object]]:
    """What a table of runs holds; whatever could not be added to is refused before anything is run."""
    from rota.estimate.observations import read_observations

    if path.suffix != ".csv":
        raise RotaError(f"--append is {str(path)!r}; a table of runs is a file that ends in .csv")
    if not os.access(path if path.exists() else path.parent, os.W_OK) or path.is_dir():
        raise RotaError(f"--append is {str(path)!r}, which can't be written")
    if not path.exists():
        return []
    read_observations(path)
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _write(path: Path, rows: list[dict[str, object]]) -> None:
    """Every row with the columns of all."""
    columns = dict.fromkeys(name for row in rows for name in row)
    draft = path.with_name(f".{path.name}.new")
    with draft.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    draft.replace(path)
