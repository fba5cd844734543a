"""Rota as a process beside a test's Slurm: `rota slurm observe` or `rota slurm run`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import forked
from e2e.slurm.bed import SlurmBed
from managers import eventually
from rota.core.errors import Unavailable
from rota.sdk.client import Client

Json = dict[str, Any]


class Twin:
    """One process of Rota. Its folder outlives it."""

    def __init__(self, bed: SlurmBed, folder: Path, verb: str, *options: str) -> None:
        self.bed = bed
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._command = ["slurm", verb, "--slurm-conf", bed.env["SLURM_CONF"], "--data", str(folder / "data")]
        self._command += ["--port", "0", "--every", "500ms", *options]
        self._word = "observes" if verb == "observe" else "schedules"
        self.env = {
            **bed.env,
            "HOME": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_DATA_HOME": str(folder / "share"),
        }
        for name in ("ROTA_SERVER", "ROTA_TOKEN", "ROTA_CONTEXT"):
            self.env.pop(name, None)
        self.log = folder / "rota.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.client: Client

    def start(self) -> Twin:
        """Start it, and wait until it answers."""
        begun = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = forked.popen(self._command, env=self.env, stderr=log, stdout=log)

        def ready() -> bool:
            assert self.process is not None
            said = self.log.read_text()[begun:]
            assert self.process.poll() is None, said[-3000:]
            return f"rota {self._word}" in said

        eventually(ready, within_s=150)
        said = self.log.read_text()[begun:]
        self.client = Client(said.split("answers at ")[1].split(";")[0])
        return self

    def kill(self) -> None:
        """As the out-of-memory killer does it."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(30)

    def stop(self) -> None:
        """As an administrator does it; a watchdog that it started ends too."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(30)
        for pid in self.watchdogs():
            os.kill(pid, signal.SIGKILL)

    def watchdogs(self) -> list[int]:
        """Processes of watchdogs for this folder."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            if b"rota.drivers.slurm.watchdog" in words and str(self.folder / "data").encode() in words:
                found.append(int(path.parent.name))
        return found

    def rota(self, *args: str) -> subprocess.CompletedProcess[str]:
        """A command in its own process, as a shell would run it."""
        return forked.run(args, env=self.env, cwd=self.folder)

    def states(self) -> dict[str, str]:
        """The states of all jobs, in Rota's words; none while a term begins."""
        try:
            return {job["id"]: job["state"] for job in self.client.jobs(all=True)}
        except Unavailable:
            return {}

    def wait(self, wanted: dict[str, str], within_s: float = 30.0) -> None:
        """Wait until jobs are in these states."""

        def reached() -> bool:
            states = self.states()
            return all(states.get(job) == state for job, state in wanted.items())

        try:
            eventually(reached, within_s=within_s, every_s=0.1)
        except AssertionError as error:
            raise AssertionError(f"{self.states()}, not {wanted}; {self.log.read_text()[-2000:]}") from error

    def journal(self) -> list[Json]:
        """The steps of the journal, without its header."""
        return [json.loads(line) for line in b"".join(self.client.journal()).splitlines()][1:]
