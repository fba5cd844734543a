"""`rota check`: report what is wrong with a cluster or job file before anything depends on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rota.cli.render import Column, OutputFormat, OutputOption, emit
from rota.cli.terminal import echo
from rota.core.errors import RotaError

if TYPE_CHECKING:
    from rota.files.up_file import UpFile

COLUMNS = (Column(key="file"), Column(key="finding"))


def check(
    files: Annotated[
        list[Path], typer.Argument(help="Cluster files, HiveD files, job files, settings.", metavar="FILE...")
    ],
    output: OutputOption = OutputFormat.TABLE,
) -> int:
    """Read files and report what is wrong or odd, with the path of each field.

    Examples:

      rota check hived.yaml

      rota check services-configuration.yaml job.yaml -o json

      rota check rota.yaml

    Exits 0 if nothing was found, 1 if something was, 2 if a file can't be read at all.
    """
    rows: list[dict[str, object]] = [
        {"file": str(path), "finding": finding} for path in files for finding in _findings(path)
    ]
    if rows or output is not OutputFormat.TABLE:
        emit(rows, COLUMNS, output)
    if not rows:
        echo("nothing found", err=True)
    return 1 if rows else 0


def _findings(path: Path) -> list[str]:
    from rota.files.cluster_file import cluster_from_document
    from rota.files.document import read_document
    from rota.files.hived import is_hived, plan_from
    from rota.files.job import is_job_file, read_job_file
    from rota.files.openpai import is_openpai, jobs_from
    from rota.files.shape import checked
    from rota.files.up_file import UpFile, is_up_file, settings_from
    from rota.tenancy.audit import audit_tenants
    from rota.tenancy.cells.audit import audit

    document = read_document(path)
    if is_openpai(document):
        jobs_from(document, path)
        return []
    if is_up_file(document):
        return _checked_settings(checked(UpFile, settings_from(document, path), path), path)
    if is_job_file(document):
        read_job_file(path)
        return []
    if is_hived(document):
        return audit(plan_from(document, path))
    return audit_tenants(cluster_from_document(document, path))


def _checked_settings(settings: UpFile, path: Path) -> list[str]:
    from rota.cli.manager.up import verify

    try:
        verify(settings)
    except RotaError as error:
        raise RotaError(f"{path}: {error}") from error
    return []
