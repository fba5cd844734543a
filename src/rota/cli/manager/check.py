"""`rota check`: report what is wrong with a cluster or job file before anything depends on it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota.cli.extras import need
from rota.cli.render import Column, OutputFormat, OutputOption, emit
from rota.cli.terminal import echo
from rota.core.errors import RotaError

if TYPE_CHECKING:
    from rota.files.up_file import UpFile

COLUMNS = (Column(key="file"), Column(key="finding"))


def check(
    files: Annotated[
        list[Path],
        typer.Argument(help="Cluster, HiveD, job and sweep files, settings, Kubernetes manifests.", metavar="FILE..."),
    ],
    output: OutputOption = OutputFormat.TABLE,
) -> int:
    """Read files and report what is wrong or odd, with the path of each field.

    Examples:

      rota check hived.yaml

      rota check services-configuration.yaml job.yaml -o json

      rota check rota.yaml

      rota check deployment.yaml queues.yaml

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
    from rota.sweeps.file import is_sweep_file, sweep_file
    from rota.tenancy.audit import audit_tenants
    from rota.tenancy.cells.audit import audit

    objects = _kubernetes_objects(path)
    if objects:
        return _mistakes(objects)
    document = read_document(path)
    if is_openpai(document):
        jobs_from(document, path)
        return []
    if is_sweep_file(document):
        sweep_file(document, path)
        return []
    if is_up_file(document):
        return _checked_settings(checked(UpFile, settings_from(document, path), path), path)
    if is_job_file(document):
        read_job_file(path)
        return []
    if is_hived(document):
        return audit(plan_from(document, path))
    return audit_tenants(cluster_from_document(document, path))


_DOCUMENT = re.compile(r"^---.*$", re.MULTILINE)
_OBJECT = re.compile(r"^apiVersion:", re.MULTILINE)


def _kubernetes_objects(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a Kubernetes manifest; none if the file is something else."""
    from rota.files.yaml_input import parse_yaml

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return []
    if not _OBJECT.search(text):
        return []
    found = [parse_yaml(part, str(path)) for part in _DOCUMENT.split(text)]
    return [each for each in found if isinstance(each, dict) and "apiVersion" in each and "kind" in each]


def _mistakes(objects: list[dict[str, Any]]) -> list[str]:
    """Return what the admission webhook would refuse or warn of, in its words, with the object's name before them."""
    need("kubernetes")
    from rota.api.serve_cluster import check_settings
    from rota.drivers.kubernetes.admission.mistakes import mistakes_in, warnings_in
    from rota.drivers.kubernetes.settings import ClusterSettings

    settings = ClusterSettings()
    found = []
    for value in objects:
        meta = value.get("metadata")
        name = f"{value['kind']} {meta.get('name', '') if isinstance(meta, dict) else ''}".strip()
        lines = [*mistakes_in(value, settings, check_settings), *warnings_in(value, settings)]
        found += [f"{name}: {each}" for each in lines]
    return found


def _checked_settings(settings: UpFile, path: Path) -> list[str]:
    from rota.cli.manager.up import verify

    try:
        verify(settings)
    except RotaError as error:
        raise RotaError(f"{path}: {error}") from error
    return []
