"""`rota doctor`: what this machine offers, and what is missing for what."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.render import Column, OutputFormat, OutputOption, emit
from rota.cli.terminal import echo

COLUMNS = (
    Column(key="what"),
    Column(key="standing", title=""),
    Column(key="found"),
    Column(key="needed_for", title="for"),
    Column(key="way_out", title="way out"),
)


def doctor(
    port: Annotated[int, typer.Option(help="The port on which a manager would listen.", metavar="PORT")] = 7650,
    output: OutputOption = OutputFormat.TABLE,
) -> int:
    """Check this machine: what a manager and its jobs find here, and what is missing for what.

    Exits with 1 only where something is missing that every manager needs.

    Examples:

      rota doctor

      rota doctor -o json
    """
    from rota.cli.manager.machine_report import Standing, machine_report
    from rota.sdk.place import data_folder

    findings = list(machine_report(data_folder(), port))
    rows = [
        {
            "what": each.what,
            "standing": each.standing.value,
            "found": each.found,
            "needed_for": each.needed_for,
            "way_out": each.way_out,
        }
        for each in findings
    ]
    emit(rows, COLUMNS, output)
    bad = [each.what for each in findings if each.standing is Standing.BAD]
    missing = [each.what for each in findings if each.standing is Standing.MISSING]
    if output is OutputFormat.TABLE:
        echo(_verdict(bad, missing), err=True)
    return 1 if bad else 0


def _verdict(bad: list[str], missing: list[str]) -> str:
    if bad:
        return f"Rota can't run here: {', '.join(bad)}"
    if missing:
        return f"Rota runs here; optional parts are missing: {', '.join(missing)}"
    return "Rota runs here, with everything it can use"
