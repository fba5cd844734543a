"""Python functions as jobs: `submit(fn, *args, gpus=1)` returns a future.

The peak memory of a function is recorded: its next submission requests slightly more than that, and a run that still
runs out of memory is retried with twice as much.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from rota.core.errors import RotaError
from rota.sdk.client import Client
from rota.sdk.place import data_folder
from rota.sdk.shell_env import DEFAULT, shell_variables

T = TypeVar("T")
HEADROOM = 1.3
MAX_ATTEMPTS = 3
MIN_BYTES = 64 << 20
POLL_S = 0.05
RAN_OUT = "out-of-memory"
_FINAL = frozenset({"succeeded", "failed", "cancelled"})


class JobFailed(RotaError):
    """The function did not complete; the message states why."""


class Call(Generic[T]):
    """A function that runs as a job; `result()` waits for it."""

    def __init__(self, client: Client, job: dict[str, Any], folder: Path, known: Path) -> None:
        self._client = client
        self._job = job
        self._folder = folder
        self._known = known
        self._attempts = 1
        self.id = client.submit(job, key=uuid.uuid4().hex)[0]

    @property
    def memory(self) -> int | None:
        """The bytes of memory that its job may use; None if there is no limit, as in a function's first run."""
        found = self._job["resources"].get("memory")
        return None if found is None else int(found)

    def done(self) -> bool:
        """Return whether the job has ended; a job that ran out of memory is first submitted again."""
        job = self._client.job(self.id)
        if job["state"] not in _FINAL:
            return False
        limit = self.memory
        if job["failure"] == RAN_OUT and job["state"] == "failed" and self._attempts < MAX_ATTEMPTS and limit:
            self._job["resources"]["memory"] = limit * 2
            self._attempts += 1
            self.id = self._client.submit(self._job, key=uuid.uuid4().hex)[0]
            return False
        return True

    def result(self, timeout_s: float | None = None) -> T:
        """Wait for the function; return its result, or raise its exception."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.done():
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"job {self.id} has not ended after {timeout_s} s")
            time.sleep(POLL_S)
        job = self._client.job(self.id)
        if job["state"] == "succeeded" and job.get("usage"):
            _remember(self._known, int(job["usage"]["memory_bytes"]))
        answer = self._folder / "answer.pickle"
        if not answer.exists():
            limit = "" if self.memory is None or job["failure"] != RAN_OUT else f"; {self._limit()}"
            raise JobFailed(f"job {self.id} {job['state']}: {job['message'] or 'it left no result'}{limit}")
        worked, value = pickle.loads(answer.read_bytes())
        if not worked:
            raise value
        result: T = value
        return result

    def _limit(self) -> str:
        return (
            f"its memory was limited to {(self.memory or 0) >> 20} MiB after {self._attempts} attempts, which follows "
            "from the peak of earlier runs unless you set it; give memory=BYTES"
        )

    def cancel(self) -> None:
        """Cancel the job."""
        self._client.act(self.id, "cancel")


def submit(
    function: Callable[..., T],
    *args: Any,
    gpus: float = 0,
    memory: int | None = None,
    client: Client | None = None,
    job: dict[str, Any] | None = None,
    **kwargs: Any,
) -> Call[T]:
    """Run a function as a job of the manager on this machine. `job` gives further fields of a job file.

    `memory` is the most that it may use, in bytes. Without it, the first run has no limit, and later runs of the same
    function are limited to the peak of earlier ones and 30% more, at least 64 MiB; `Call.memory` says to how much.
    A run that exceeds the limit is killed, and submitted again with twice as much, up to twice.
    """
    import cloudpickle

    name = f"{function.__module__}.{function.__qualname__}"
    root = data_folder() / "functions"
    folder = root / uuid.uuid4().hex
    folder.mkdir(parents=True, mode=0o700)
    (folder / "call.pickle").write_bytes(cloudpickle.dumps((function, args, kwargs)))
    known = root / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.json"
    wanted = memory or _memory_request(known)
    resources: dict[str, Any] = {"gpus": gpus, **({} if wanted is None else {"memory": wanted})}
    shown = "".join(char if char.isalnum() or char in "._-" else "-" for char in function.__qualname__).strip("-._")
    manager = client or Client()
    request = {
        "run": [sys.executable, "-m", "rota.sdk.call", str(folder)],
        "name": (shown or "function")[:128],
        "workdir": str(Path.cwd()),
        **(job or {}),
        "resources": resources,
        "env": {**shell_variables(DEFAULT, url=manager.url), **(job or {}).get("env", {})},
    }
    return Call(manager, request, folder, known)


def _memory_request(known: Path) -> int | None:
    """Return the memory to request, from the peak of earlier runs; None if it never ran."""
    try:
        peak = int(json.loads(known.read_text(encoding="utf-8"))["memory_bytes"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return max(int(peak * HEADROOM), MIN_BYTES)


def _remember(known: Path, memory_bytes: int) -> None:
    peak = max(memory_bytes, int((_memory_request(known) or 0) / HEADROOM))
    known.write_text(json.dumps({"memory_bytes": peak}), encoding="utf-8")
