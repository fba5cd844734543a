"""Requests to a manager that only observes: questions are answered, changes are refused with the way out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from rota.core.model.cluster import Cluster
from rota.core.model.job import JobId, NodeId
from rota.live.intake.audit_entry import Asker
from rota.live.intake.requests import Along, Conflict, Requests, alone

Json = dict[str, Any]


def _refused(way_out: str) -> NoReturn:
    raise Conflict(f"this Rota only observes Slurm and changes nothing there; {way_out}")


class ObservedRequests(Requests):
    """Every change is one that Slurm's own commands make."""

    async def submit(
        self, files: Sequence[Json], asker: Asker, *, key: str | None = None, held: bool = False, along: Along = alone
    ) -> list[JobId]:
        """Refuse."""
        _refused("submit with sbatch, or with `rota --slurm submit`")

    async def act(self, job_ids: Sequence[JobId], action: str, asker: Asker) -> dict[JobId, str]:
        """Refuse."""
        _refused("use scancel, or scontrol hold and release")

    async def update(self, job_id: JobId, changes: Json, asker: Asker) -> Json:
        """Refuse."""
        _refused("use scontrol update")

    async def requeue(self, job_id: JobId, asker: Asker) -> JobId:
        """Refuse."""
        _refused("use scontrol requeue")

    async def cancel(self, job_id: JobId, asker: Asker) -> None:
        """Refuse."""
        _refused("use scancel")

    async def hold(self, job_id: JobId, asker: Asker) -> None:
        """Refuse."""
        _refused("use scontrol hold")

    async def release(self, job_id: JobId, asker: Asker) -> None:
        """Refuse."""
        _refused("use scontrol release")

    async def drain(self, node_id: NodeId, asker: Asker, *, drained: bool) -> None:
        """Refuse."""
        _refused("use scontrol update NodeName=... State=DRAIN or RESUME")

    async def change_cluster(
        self, after: Cluster, asker: Asker, *, tag: str | None, dry_run: bool
    ) -> dict[str, list[str]]:
        """Refuse."""
        _refused("nodes and accounts are read from Slurm")
