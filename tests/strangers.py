"""A manager for strangers: root, with tokens, and two Unix users whose tasks it keeps apart."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from managers import Manager, eventually
from rota.sdk.client import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class Stranger:
    """A Unix user with a token of the manager."""

    name: str
    uid: int
    client: Client

    def submit(self, run: str | list[str], **fields: Any) -> str:
        """Submit a command as this user's job."""
        return self.client.submit({"run": run, **fields})[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The manager, an attacker and a victim."""

    manager: Manager
    attacker: Stranger
    victim: Stranger
    secrets: Path
    """A folder that only root may enter."""
    device: str
    """The path of the device nodes, with the number left out."""

    def run(self, run: str | list[str], **fields: Any) -> str:
        """Return what a job of the attacker says, after its end."""
        job_id = self.attacker.submit(run, **fields)
        self.manager.wait(job_id)
        return self.manager.said(job_id)

    def prey(self, run: str = "echo up; sleep 600", **fields: Any) -> tuple[str, int]:
        """Start a job of the victim; return its id and the process of its task."""
        job_id = self.victim.submit(run, **fields)
        self.manager.wait(job_id, "running")
        eventually(lambda: self.manager.said(job_id) != "")
        return job_id, self.pid(job_id)

    def pid(self, job_id: str) -> int:
        """Return the process of a job's first task."""
        return int(json.loads((self.rank(job_id) / "state.json").read_text())["pid"])

    def rank(self, job_id: str) -> Path:
        """Return the folder of a job's first task."""
        return self.manager.home / "runs" / job_id / "1" / "0"

    def folder(self, job_id: str) -> Path:
        """Return the folder in which a job's tasks write."""
        return self.manager.home / "runs" / job_id / "shared"
