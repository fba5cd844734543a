"""A manager with users of three roles in two tenants, as attacks on colleagues need it."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from managers import Manager, eventually

Json = dict[str, Any]
MIN_RUN_S = 0.5


class Lab:
    """A manager with an admin, two members and a maintainer of one tenant, and a member of another."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self.secrets = {"admin": manager.token}
        for name, role, tenant in (
            ("ada", "member", "nlp"),
            ("bob", "member", "nlp"),
            ("mia", "maintainer", "nlp"),
            ("vic", "viewer", "nlp"),
            ("eve", "member", "vision"),
        ):
            made = manager.client.post("/tokens", {"name": name, "role": role, "tenants": [tenant]})
            self.secrets[name] = made["token"]

    def ask(self, who: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Send a request as a user."""
        place = urlsplit(self.manager.client.url)
        connection = HTTPConnection(place.hostname or "", place.port, timeout=20)
        try:
            sent = None if body is None else json.dumps(body).encode()
            given = {"Authorization": f"Bearer {self.secrets[who]}", "Content-Type": "application/json"}
            connection.request(method, f"/api/v1{path}", body=sent, headers=given)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        finally:
            connection.close()

    def submit(self, who: str, run: str = "sleep 600", **fields: Any) -> str:
        """Submit a job as a user; it must be accepted."""
        file = {"run": run, "tenant": "nlp", "workdir": str(self.manager.folder), **fields}
        status, answer = self.ask(who, "POST", "/jobs", file)
        assert status == 201, answer
        return str(answer["id"])

    def job(self, job_id: str) -> Json:
        """A job as the admin sees it."""
        found: Json = self.ask("admin", "GET", f"/jobs/{job_id}")[1]
        return found

    def running(self, who: str, **fields: Any) -> str:
        """A job of a user that runs on both devices."""
        job_id = self.submit(who, resources={"gpus": 2}, **fields)
        eventually(lambda: self.job(job_id)["state"] == "running")
        return job_id

    def rota(self, who: str, *args: str) -> tuple[int, str]:
        """A command as a user: its exit code, and what it says."""
        self.manager.env |= {"ROTA_TOKEN": self.secrets[who], "ROTA_SERVER": self.manager.client.url}
        done = self.manager.rota(*args)
        return done.returncode, done.stdout + done.stderr

    def clear(self) -> None:
        """End all jobs."""
        jobs = self.ask("admin", "GET", "/jobs?limit=1000")[1]["jobs"]
        if jobs:
            self.ask("admin", "POST", "/jobs/actions", {"action": "cancel", "ids": [job["id"] for job in jobs]})
            eventually(lambda: not self.ask("admin", "GET", "/jobs")[1]["jobs"])
