"""What is sent with jobs and sweeps: code of the working directory, variables of this shell; or nothing, to try it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rota.cli.manager.connect import FAILED, INTERRUPTED, SLURM, client_for
from rota.cli.terminal import echo
from rota.core.errors import RotaError, Unavailable

if TYPE_CHECKING:
    from rota.drivers.kubernetes.user import ClusterUser
    from rota.drivers.slurm.user import SlurmUser
    from rota.sdk.client import Client

Json = dict[str, Any]
POLL_S = 1.0
MOST_AWAY_S = 600.0
"""How long a manager may be away whose sweep is followed."""


def pack_code(jobs: list[Json], server: str | None) -> None:
    """Replace the working directory of jobs by the code that is in it now; each folder is packed once."""
    from rota.sdk.client import Client
    from rota.sdk.snapshot import pack

    client = client_for(server)
    if os.environ.get(SLURM) or not isinstance(client, Client):
        raise RotaError("--snapshot: code is kept by a Rota manager of processes; leave it out here")
    packed: dict[tuple[str, str | None], Json] = {}
    for job in jobs:
        folder = str(Path(job.pop("workdir")).absolute())
        place = (folder, job.get("tenant"))
        if place not in packed:
            with pack(Path(folder)) as snapshot:
                client.send_snapshot(snapshot, job.get("tenant"))
                packed[place] = snapshot.described()
        job["snapshot"] = packed[place]


def pass_on(jobs: list[Json], wanted: str, client: Client | ClusterUser | SlurmUser) -> None:
    """Give jobs variables of this shell, under their own. A container has its own environment: it gets none."""
    from rota.sdk.client import Client
    from rota.sdk.shell_env import shell_variables

    passed = shell_variables(wanted, url=client.url)
    if not passed or not isinstance(client, Client):
        return
    for job in jobs:
        job["env"] = {**passed, **(job.get("env") or {})}


def try_out(jobs: list[Json], server: str | None) -> int:
    """Print when a job would start; of jobs that differ in their number only, the first."""
    from rota.cli.jobs.show import expectation

    first, *others = jobs
    if any({**job, "array": None} != {**first, "array": None} for job in others):
        raise RotaError(f"--dry-run tries one job; these are {len(jobs)}")
    if others:
        echo(f"the first of {len(jobs)} jobs:")
    answer = client_for(server).try_out(first)
    expected = answer["expected"]
    if expected is None:
        echo("the cluster would admit it; Rota's own server forecasts the start: --server URL")
    else:
        for line in expectation(expected):
            echo(line)
        if answer.get("reason"):
            echo(f"as things are, it {answer['reason']['sentence']}")
    return 0


def send_sweep(
    values: Json,
    server: str | None,
    *,
    snapshot: bool,
    dry_run: bool,
    wait: bool,
    env_from_shell: str = "default",
    array: str | None = None,
    held: bool = False,
) -> int:
    """Start a sweep and print its id, and follow it if asked; or only say when its first trial would start."""
    if held or array is not None:
        raise RotaError(f"{'--held' if held else '--array'}: a sweep has none; the template stands for a sweep")
    from rota.sdk.client import Client
    from rota.sweeps.file import sweep_file

    job = values["job"]
    for name in ("name", "tenant"):  # of the sweep: options that were given for its job
        if (given := job.pop(name, None)) is not None:
            values[name] = given
    file = sweep_file(values)
    job.setdefault("workdir", os.getcwd())
    trial = {**job, "tenant": values["tenant"]} if "tenant" in values else job
    if dry_run:
        echo(f"{file.trials} trials, at most {min(file.parallel, file.trials)} at once; the first:")
        return try_out([trial], server)
    if snapshot:
        pack_code([trial], server)
        job = {name: value for name, value in trial.items() if name != "tenant"}
    client = Client(server)
    if job.get("image") is None:
        pass_on([job], env_from_shell, client)
    sweep_id = client.start_sweep({**values, "job": job})["id"]
    echo(sweep_id)
    warn_of_misfit(client, client.sweep(sweep_id)["runs"][0]["job"])
    return _follow(server, sweep_id) if wait else 0


def warn_of_misfit(client: Client | ClusterUser | SlurmUser, job_id: str) -> None:
    """Print a note if the job can never start here."""
    reason = client.job(job_id)["reason"]
    if reason is not None and reason["code"] in ("never-fits", "device-memory-too-small"):
        echo(f"note: job {job_id} waits, and can't start here: {reason['sentence']}", err=True)


class _PatientReader:
    """Reads a sweep; one whose manager restarts is waited for, as the sweep goes on then."""

    def __init__(self, server: str | None) -> None:
        self._server = server
        self._client: Client | None = None
        self._away_since_s: float | None = None

    def read(self, sweep_id: str) -> Json:
        """Return the sweep; raise `Unavailable` if the manager is away for too long."""
        from rota.sdk.client import Client

        while True:
            try:
                self._client = self._client or Client(self._server)  # it may come back at another address
                found: Json = self._client.sweep(sweep_id)
            except Unavailable as error:
                self._client, now = None, time.monotonic()
                if self._away_since_s is None:
                    self._away_since_s = now
                    echo(f"{error}; it is waited for", err=True)
                if now - self._away_since_s > MOST_AWAY_S:
                    raise
                time.sleep(POLL_S)
            else:
                self._away_since_s = None
                return found


def _follow(server: str | None, sweep_id: str) -> int:
    """Report what changes until the sweep has ended; its outcome as a status. Ctrl-C only stops that."""
    before, reader = "", _PatientReader(server)
    try:
        while True:
            sweep = reader.read(sweep_id)
            line = f"{trial_counts(sweep['states'])}; best {best_value(sweep['best'])}"
            if line != before:
                echo(line, err=True)
            if sweep["state"] != "running":
                echo(f"sweep {sweep_id} {sweep['state']}: {sweep['why']}", err=True)
                if (failed := next((run for run in sweep["runs"] if run["state"] == "failed"), None)) is not None:
                    echo(f"trial {failed['trial']}: {failed['why']}; see `rota logs {failed['job']}`", err=True)
                return 0 if sweep["state"] == "finished" and sweep["best"] is not None else FAILED
            before = line
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        echo(f"sweep {sweep_id} goes on; look with `rota sweep show {sweep_id}`", err=True)
        return INTERRUPTED


def best_value(value: Json | None) -> str:
    """The best value of a sweep in a table."""
    return "-" if value is None else f"{value['value']:.6g}"


def trial_counts(states: Json | None) -> str:
    """How many trials of a sweep are in which state."""
    return ", ".join(f"{count} {name}" for name, count in (states or {}).items() if count) or "-"
