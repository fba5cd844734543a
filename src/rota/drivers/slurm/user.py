"""A Slurm cluster as its users see it: `sbatch`, `scancel` and `scontrol` with their own rights, views by Rota."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

from rota.core.errors import RotaError, Unavailable
from rota.drivers.slurm.batch_job import batch_job
from rota.files.job import submitted_job
from rota.sdk.client import Client

Json = dict[str, Any]
WITHIN_S = 60.0


class SlurmUser:
    """A client for jobs of the Slurm cluster of this machine; what it shows comes from the Rota that observes it."""

    def __init__(self, server: str | None = None) -> None:
        self._server = server
        self._found: Client | None = None

    @property
    def url(self) -> str:
        """The address of the Rota beside Slurm."""
        return self._rota.url

    @property
    def _rota(self) -> Client:
        if self._found is None:
            try:
                self._found = Client(self._server)
            except Unavailable as error:
                raise Unavailable(
                    "no Rota observes Slurm on this machine; start one with `rota slurm observe`, "
                    "or name it with --server URL"
                ) from error
        return self._found

    def submit(self, files: Json | Sequence[Json], *, key: str | None = None, held: bool = False) -> list[str]:
        """Submit job files with `sbatch`; a refused one leaves those before it submitted, and says so."""
        wanted = [files] if isinstance(files, dict) else list(files)
        made = [
            batch_job(submitted_job(values, source), source, held=held)
            for number, values in enumerate(wanted, start=1)
            for source in ["job" if len(wanted) == 1 else f"job {number}"]
        ]
        ids: list[str] = []
        for each in made:
            try:
                printed = _slurm("sbatch", "--parsable", *each.options, script=each.script)
            except RotaError as error:
                before = f"; submitted before it: {', '.join(ids)}" if ids else ""
                raise RotaError(f"{error}{before}") from error
            ids.append(printed.strip().partition(";")[0])
        return ids

    def act(self, job_id: str, action: str) -> Json:
        """`cancel`, `hold` or `release` a job."""
        command = ("scancel", job_id) if action == "cancel" else ("scontrol", action, job_id)
        _slurm(*command)
        return {"id": job_id}

    def logs(self, job_id: str, *, follow: bool = False, **options: int | None) -> Iterator[bytes]:
        """Slurm writes the output of a job into a file of its user's."""
        raise RotaError(f"Slurm wrote the output of job {job_id} to a file: see StdOut in `scontrol show job {job_id}`")

    def jobs(self, *, all: bool = False, limit: int | None = None, **only: str | None) -> Iterator[Json]:
        """Jobs, newest first."""
        return self._rota.jobs(all=all, limit=limit, **only)

    def job(self, job_id: str) -> Json:
        """One job by id or name."""
        return self._rota.job(job_id)

    def why(self, job_id: str) -> Json:
        """Why a job waits, and when it is expected to start."""
        return self._rota.why(job_id)

    def try_out(self, file: Json) -> Json:
        """When a job would start."""
        return self._rota.try_out(file)

    def nodes(self) -> list[Json]:
        """The nodes and their free devices."""
        return self._rota.nodes()

    def drain(self, node_id: str, *, drained: bool = True) -> Json:
        """Let nothing new start on a node, or let it take jobs again; for Slurm's administrators."""
        state = ("State=DRAIN", "Reason=rota drain") if drained else ("State=RESUME",)
        _slurm("scontrol", "update", f"NodeName={node_id}", *state)
        return {"id": node_id}

    def overview(self) -> Json:
        """Devices and tenants at a glance."""
        return self._rota.overview()

    def close(self) -> None:
        """Close the connection."""
        if self._found is not None:
            self._found.close()


def _slurm(*command: str, script: str | None = None) -> str:
    try:
        made = subprocess.run(command, input=script, capture_output=True, text=True, timeout=WITHIN_S)
    except FileNotFoundError as error:
        raise RotaError(f"{command[0]} is not installed here; install Slurm's client commands") from error
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{command[0]} did not answer within {WITHIN_S:g} s") from error
    if made.returncode:
        raise RotaError(f"{command[0]}: {' '.join(made.stderr.split())[:300] or f'status {made.returncode}'}")
    return made.stdout
