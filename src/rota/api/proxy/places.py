"""What a proxied address leads to, and the host name under which browsers see it."""

from __future__ import annotations

import hmac
import os
import re
from dataclasses import dataclass
from pathlib import Path

from rota.core.errors import RotaError

PREFIX = "/proxy/"
MOST_PORT = 65535
LOCAL_DOMAIN = "localhost"
"""Names below it lead to this machine in every browser, without any name server."""
KEY_FILE = "proxy.key"
_KEY_BYTES = 32
_MAC_CHARS = 20
_LABEL = re.compile(rf"j-[0-9a-f]{{{_MAC_CHARS}}}")
_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SERVICE = re.compile(r"[a-z][a-z0-9-]{0,30}")
_DOMAIN = re.compile(r"(?=.{1,190}$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")


class BadPlace(RotaError):
    """An address that names no port and no service of a job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyPlace:
    """A port, or a service by its name, where a task of a job runs."""

    job_id: str
    task: int = 0
    port: int | None = None
    service: str | None = None

    def __str__(self) -> str:
        """Name it for people and for the audit log."""
        return f"task {self.task}: " + (f"service {self.service}" if self.port is None else f"port {self.port}")

    @property
    def order(self) -> dict[str, object]:
        """What the session host is told to connect to."""
        if self.port is None:
            return {"mode": "forward", "service": self.service}
        return {"mode": "forward", "port": self.port, "own": True}  # browsers take its answers for the job's

    @property
    def path(self) -> str:
        """Its address below that of the manager."""
        what = self.service if self.port is None else str(self.port)
        return f"{PREFIX}{self.job_id}/{what if self.task == 0 else f'{self.task}:{what}'}/"


def place_of(path: str) -> tuple[ProxyPlace, str]:
    """Return what a path `/proxy/JOB/WHAT/rest` leads to, and `/rest`; raises `BadPlace` for one that names nothing.

    WHAT is a port or the name of a service, with `RANK:` before it for other tasks than the first.
    """
    job_id, _, rest = path.removeprefix(PREFIX).partition("/")
    named, _, rest = rest.partition("/")
    rank, colon, what = named.rpartition(":")
    if not _JOB.fullmatch(job_id):
        raise BadPlace(f"{job_id[:40]!r} is no job; write /proxy/JOB/PORT/")
    if colon and not (rank.isascii() and rank.isdigit() and len(rank) <= 5):
        raise BadPlace(f"task: {rank[:40]!r} is not a rank")
    task = int(rank) if colon else 0
    if _SERVICE.fullmatch(what):
        return ProxyPlace(job_id=job_id, task=task, service=what), f"/{rest}"
    if what.isascii() and what.isdigit() and len(what) <= 5 and 1 <= int(what) <= MOST_PORT:
        return ProxyPlace(job_id=job_id, task=task, port=int(what)), f"/{rest}"
    raise BadPlace(f"port: {what[:40]!r} is neither a port from 1 to {MOST_PORT} nor the name of a service")


def domain_of(text: str) -> str:
    """Return a domain for proxied pages; raises a `RotaError` for what can't be one."""
    domain = text.lower().removeprefix("*.").removeprefix(".").rstrip(".")
    if not _DOMAIN.fullmatch(domain):
        raise RotaError(f"proxy_domain: {text[:80]!r} is no domain; write e.g. jobs.example.org")
    return domain


class ProxyNames:
    """The host names of proxied places: one label for each place, which nothing else ever has."""

    def __init__(self, key: bytes, domain: str) -> None:
        self._key = key
        self.domain = domain

    def label(self, place: ProxyPlace) -> str:
        """Return the label of a place. The key keeps the origins of two managers apart that a browser knows."""
        mac = hmac.digest(self._key, place.path.encode(), "sha256").hex()[:_MAC_CHARS]
        return f"j-{mac}"

    def label_in(self, host: str) -> str | None:
        """Return the label in a Host header that names a proxied place; None for all other hosts."""
        name = host.lower().rpartition(":")[0] if re.search(r":\d*$", host) else host.lower()
        label, dot, domain = name.rstrip(".").partition(".")
        return label if dot and domain == self.domain and _LABEL.fullmatch(label) else None

    def origin(self, place: ProxyPlace, scheme: str, host: str) -> str:
        """Return the origin of a place for a browser that knows the manager as a host, with the port it uses."""
        port = re.search(r":\d+$", host)
        return f"{scheme}://{self.label(place)}.{self.domain}{port[0] if port else ''}"


def open_key(home: Path) -> bytes:
    """Return the key of the labels of a manager's folder, which is made at the first start."""
    path = home / KEY_FILE
    try:
        found = path.read_bytes()
        if len(found) == _KEY_BYTES:
            return found
    except FileNotFoundError:
        pass
    draft = path.with_name(f".{KEY_FILE}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    made = os.urandom(_KEY_BYTES)
    with os.fdopen(os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(made)
    draft.replace(path)
    return made
