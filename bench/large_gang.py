"""Requests of another user while a gang of hundreds of tasks starts and ends on this machine.

Runs a real `rota up`; as root, tasks run as another account, confined and in cgroups. The longest request shows for
how long the manager's loop was held. Run: `python bench/large_gang.py [TASKS]`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from managers import Manager

AS_ROOT = ("--run-as", "default=daemon") if os.geteuid() == 0 else ()
EVERY_S = 0.02
WITHIN_S = 300.0


class OtherUser(threading.Thread):
    """Submits held jobs and cancels them, so that nothing but the manager's loop is measured."""

    def __init__(self, url: str, token: str) -> None:
        super().__init__(daemon=True)
        self._url, self._token = url, token
        self.times_s: list[float] = []
        self.is_done = False

    def run(self) -> None:
        place = urlsplit(self._url)
        connection = HTTPConnection(place.hostname or "", place.port, timeout=60)
        headers = {"Authorization": f"Bearer {self._token}"}
        while not self.is_done:
            begun_s = time.perf_counter()
            connection.request("POST", "/api/v1/jobs?held=true", body=b'{"run": "true"}', headers=headers)
            answer = connection.getresponse()
            job_id = json.loads(answer.read()).get("id")
            self.times_s.append(time.perf_counter() - begun_s)
            if job_id is not None:
                begun_s = time.perf_counter()
                connection.request("POST", f"/api/v1/jobs/{job_id}/cancel", headers=headers)
                connection.getresponse().read()
                self.times_s.append(time.perf_counter() - begun_s)
            time.sleep(EVERY_S)


def while_(what: Callable[[], object], url: str, token: str) -> tuple[float, list[float]]:
    """Return how long something takes, and the times of the other user's requests meanwhile, sorted."""
    other = OtherUser(url, token)
    other.start()
    begun_s = time.perf_counter()
    what()
    took_s = time.perf_counter() - begun_s
    other.is_done = True
    other.join()
    return took_s, sorted(other.times_s)


def row(name: str, took_s: float, times_s: list[float]) -> str:
    """Return a row of the table."""
    p50, p99 = (times_s[min(int(len(times_s) * part), len(times_s) - 1)] * 1e3 for part in (0.5, 0.99))
    return f"| {name} | {took_s:.2f} s | {len(times_s)} | {p50:.0f} ms | {p99:.0f} ms | {times_s[-1] * 1e3:.0f} ms |"


def main(tasks: int) -> None:
    folder = Path(tempfile.mkdtemp(prefix="rota-gang-", dir="/var/lib" if AS_ROOT else None))
    folder.chmod(0o755)
    manager = Manager(folder, "--emulate", "gpu=8/4", "--require-token", *AS_ROOT).start_guarded()
    try:
        made = [{"name": user, "role": "member", "tenants": ["default"]} for user in ("ann", "bob")]
        ann, bob = (str(manager.client._call("POST", "/tokens", each)["token"]) for each in made)
        url, gang, answered_s = manager.client.url, "", 0.0

        def start() -> None:
            nonlocal gang, answered_s
            begun_s = time.perf_counter()
            gang = manager.client.submit({"run": "sleep 600", "workers": tasks, "checkpoint": {"grace": "1s"}})[0]
            answered_s = time.perf_counter() - begun_s
            manager.wait(gang, "running", within_s=WITHIN_S)

        def end() -> None:
            manager.client.act(gang, "cancel")
            manager.wait(gang, "cancelled", within_s=WITHIN_S)

        print(f"a gang of {tasks} tasks, {manager.options}")
        print("| while it | takes | others' requests | p50 | p99 | longest |\n|---|---|---|---|---|---|")
        print(row("starts", *while_(start, url, ann)), flush=True)
        print(row("ends", *while_(end, url, bob)), flush=True)
        print(f"its submission was answered after {answered_s * 1e3:.0f} ms")
    finally:
        manager.kill()
        manager.clean_up()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
