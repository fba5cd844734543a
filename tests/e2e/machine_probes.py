"""What tests ask of a manager whose machine misbehaves."""

from __future__ import annotations

import os
import time
import urllib.error
import urllib.request
from pathlib import Path

from machine_load import slowness
from managers import Manager, eventually
from rota.core.errors import Unavailable

FULL = os.environ.get("ROTA_CHAOS") == "full"
ROUNDS = 5 if FULL else 1
AT_ONCE_S = 2.0


def refusal(manager: Manager) -> str:
    """Why a submission is refused for want of storage, at once; empty if it is accepted."""
    begun_s = time.monotonic()
    try:
        manager.submit("true")
    except Unavailable as error:
        assert time.monotonic() < begun_s + AT_ONCE_S * slowness()
        return str(error)
    return ""


def ready(manager: Manager) -> tuple[int, str]:
    """What the probe of readiness answers."""
    try:
        with urllib.request.urlopen(f"{manager.client.url}/readyz", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def ended(pid: int) -> bool:
    """Whether a process does not run any more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
    except OSError:
        return True


def pid_of(manager: Manager, job: str) -> int:
    """The process of a job that says its own id."""
    return int(eventually(lambda: manager.said(job).strip()))


def log_of(manager: Manager) -> str:
    return (manager.folder / "up.log").read_text()
