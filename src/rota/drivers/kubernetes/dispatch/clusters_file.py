"""The file of `rota k8s dispatch`: the hub, the clusters behind it, and what moving data between sites takes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from rota.core.errors import RotaError, did_you_mean
from rota.files.document import read_document
from rota.files.durations import Seconds
from rota.files.shape import FileModel, checked

Name = Annotated[str, Field(min_length=1)]


class ClusterEntry(FileModel):
    """One cluster. `server` is the address of its Rota, which forecasts starts; without it only capacity counts."""

    context: Name | None = None
    kubeconfig: Name | None = None
    server: Name | None = None
    token_file: Name | None = None
    site: Name | None = None
    """The place of its storage."""


class DispatchFile(FileModel):
    """All of the file."""

    hub: ClusterEntry
    clusters: dict[Name, ClusterEntry]
    bandwidth: dict[Name, dict[Name, Annotated[float, Field(gt=0)]]] = {}
    """Gigabytes per second from one site to another."""
    usual_bandwidth: Annotated[float, Field(gt=0)] = 1.0
    lost_after: Annotated[Seconds, Field(gt=0)] = 60.0
    every: Annotated[Seconds, Field(gt=0)] = 2.0


def read_dispatch_file(path: Path) -> DispatchFile:
    """Read and check the file; an error names the field. Paths in it are relative to it."""
    found = checked(DispatchFile, read_document(path), path)
    if not found.clusters:
        raise RotaError(f"{path}: clusters is empty; name the clusters that jobs are sent to")
    sites = {entry.site for entry in found.clusters.values() if entry.site is not None}
    for site, others in found.bandwidth.items():
        for name in (site, *others):
            if name not in sites:
                raise RotaError(
                    f"{path}: bandwidth names site {name!r}, where no cluster is; {did_you_mean(name, sites)}"
                )
    folder = path.absolute().parent

    def settled(entry: ClusterEntry) -> ClusterEntry:
        files = {name: getattr(entry, name) for name in ("kubeconfig", "token_file")}
        return entry.model_copy(update={name: str(folder / text) for name, text in files.items() if text is not None})

    clusters = {name: settled(entry) for name, entry in found.clusters.items()}
    return found.model_copy(update={"hub": settled(found.hub), "clusters": clusters})
