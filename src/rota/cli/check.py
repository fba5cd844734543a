"""`rota check`: read a cluster or job file and say what is wrong with it before anything depends on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rota.cli.render import Column, OutputFormat, OutputOption, emit

COLUMNS = (Column(key="file"), Column(key="finding"))


def check(
    files: Annotated[
        list[Path], typer.Argument(help="Cluster files, HiveD files or OpenPAI job files.", metavar="FILE...")
    ],
    output: OutputOption = OutputFormat.TABLE,
) -> int:
    """Read files and say what is wrong or odd, with the path of each field.

    Examples:

      rota check hived.yaml

      rota check services-configuration.yaml job.yaml -o json

    Exits 0 if nothing was found, 1 if something was, 2 if a file can't be read at all.
    """
    rows: list[dict[str, object]] = [
        {"file": str(path), "finding": finding} for path in files for finding in _findings(path)
    ]
    if rows or output is not OutputFormat.TABLE:
        emit(rows, COLUMNS, output)
    if not rows:
        typer.echo("nothing found", err=True)
    return 1 if rows else 0


def _findings(path: Path) -> list[str]:
    from rota.files.cluster_file import cluster_from_document
    from rota.files.document import read_document
    from rota.files.hived import is_hived, plan_from
    from rota.files.openpai import is_openpai, jobs_from
    from rota.tenancy.audit import audit_tenants
    from rota.tenancy.cells.audit import audit

    document = read_document(path)
    if is_openpai(document):
        jobs_from(document, path)
        return []
    if is_hived(document):
        return audit(plan_from(document, path))
    return audit_tenants(cluster_from_document(document, path))
