"""Submissions of two users while a third attacks: each attack for ten seconds from several connections.

Other users' submissions must stay below one second at the 99th percentile, and every job that was accepted must end as
it should. `python bench/hostile.py [--seconds 10] [ATTACK ...]` prints a table and exits 1 where a bound is broken.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import multiprocessing
import os
import re
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import aiohttp
import socketio

from attacks.session_calls import ask, log_in_page
from managers import Manager

JOBS = "/api/v1/jobs"
AS_ROOT = ("--run-as", "default=daemon") if os.geteuid() == 0 else ()
MOST_P99_S = 1.0
CONNECTIONS = 4
EVERY_S = 0.2
ENDED_WITHIN_S = 90.0


def _job(**fields: Any) -> dict[str, Any]:
    return {"run": "true", **fields}


def _body(value: object) -> bytes:
    return json.dumps(value).encode()


BODIES: dict[str, tuple[str, str, bytes | None]] = {
    "40 x 4096 tasks without gang": ("POST", JOBS, _body([_job(gang=False, workers=4096)] * 40)),
    "1,000 held jobs at once": ("POST", f"{JOBS}?held=true", _body([_job(resources={"gpus": 1})] * 1000)),
    "999 jobs and a wrong one": ("POST", JOBS, _body([*[_job()] * 999, {"run": []}])),
    "4 MiB of values": ("POST", JOBS, b"[" + b"[]," * 1_300_000 + b"[]]"),
    "90,000 fields": ("POST", JOBS, _body({f"k{i}": 1 for i in range(90_000)})),
    "45,000 wrong variables": ("POST", JOBS, _body(_job(env={f"k{i}": [1] for i in range(45_000)}))),
    "nested 900 deep": ("POST", JOBS, b'{"run":"x","plan":' + b'{"a":' * 900 + b"1" + b"}" * 901),
    "backtracking duration": ("POST", JOBS, _body(_job(time_limit="1d" + " " * 20_000 + "x"))),
    "pages of 1,000 jobs": ("GET", f"{JOBS}?all=true&limit=1000", None),
    "dry runs": ("POST", f"{JOBS}?dry_run=true", _body(_job(resources={"gpus": 1}))),
    "jobs without devices that all start": ("POST", JOBS, _body(_job(gang=False, workers=250, run="sleep 5"))),
    "gangs of 250 tasks": ("POST", JOBS, _body(_job(workers=250, run="sleep 5"))),
    "lone surrogates": ("POST", JOBS, b'{"run":"' + rb"\ud800" * 10_000 + b'"}'),
    "integers of 100,000 digits": ("POST", JOBS, b'{"run":"x","priority":' + b"9" * 100_000 + b"}"),
    "base 60": ("POST", JOBS, _body(_job(time_limit="190:20:30" * 1000))),
}
LONG_QUEUE = "dry runs before a long queue"
BODIES[LONG_QUEUE] = BODIES["dry runs"]
FIRST = {LONG_QUEUE: _body([_job(run="sleep 300", resources={"gpus": 1})] * 1000)}
"""What each connection submits once before it repeats its request."""
TEMPLATES, SEARCHES, PATTERN = "templates of long values", "searches of one word", "a sweep's pattern of blanks"
BODIES[TEMPLATES] = (
    "POST",
    "/api/v1/templates/evaluation-array/fill",
    _body({"parameters": {"script": "'" * 60_000, "model": "'" * 60_000, "shards": 1000}}),
)
BODIES[SEARCHES] = ("GET", f"/api/v1/search?limit=200&q={'+'.join(['a'] * 16)}", None)
FIRST[SEARCHES] = _body(_job(run="yes 'a a a a a a a a' | head -c 65536"))
BODIES[PATTERN] = (
    "POST",
    "/api/v1/sweeps",
    _body(
        {
            "parameters": {"x": [1]},
            "objective": {"log": " {any} {value}"},
            "job": _job(run="printf '%500s\\n' ' ' ' ' ' '; sleep 2"),
            "trials": 4,
        }
    ),
)
CANCELLED = "1,000 jobs submitted and cancelled"
BODIES[CANCELLED] = ("POST", JOBS, _body([_job(name="all", resources={"gpus": 8})] * 1000))
THEN = {CANCELLED: ("POST", f"{JOBS}/actions", _body({"action": "cancel", "name": "all"}))}
"""What alternates with the request."""
HALF = {
    "half-sent headers": b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Le",
    "half-sent bodies": b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{",
}


BOMB = "YAML bombs on the dashboard"
BOMB_TEXT = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "\n".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]" for i in range(8)
)


def send_bombs(url: str, token: str, until_s: float, name: str, sent: Any) -> None:
    """Type a YAML bomb into the job file of the dashboard's page, again and again, through its web socket."""
    asyncio.run(_send_bombs(url, token, until_s, sent))


async def _send_bombs(url: str, token: str, until_s: float, sent: Any) -> None:
    cookie = log_in_page(url, token)
    page = ask(url, "GET", "/submit", Cookie=cookie).text
    client_id = re.search(r"[\"']client_id[\"']:\s*[\"']([0-9a-f-]{36})", page)
    area = re.search(
        r'"(\d+)":\{"tag":"nicegui-input"(?:(?!"tag").)*?"type":"textarea".*?"listener_id":"([^"]+)"', page
    )
    assert client_id is not None, page[:2000]
    assert area is not None, page[:2000]
    message = {"id": int(area[1]), "client_id": client_id[1], "listener_id": area[2], "args": [BOMB_TEXT]}
    hands = {"client_id": client_id[1], "tab_id": "tab", "document_id": "document", "old_tab_id": ""}
    async with aiohttp.ClientSession(headers={"Cookie": cookie}) as session:
        client = socketio.AsyncClient(reconnection=False, http_session=session)
        await client.connect(url, socketio_path="/_nicegui_ws/socket.io", transports=["websocket"])
        assert await client.call("handshake", hands, timeout=20) is True
        while time.time() < until_s and client.connected:
            for _ in range(10):
                await client.emit("event", message)
            await asyncio.sleep(0)
            with sent.get_lock():
                sent.value += 10
        await client.disconnect()


def send(url: str, token: str, until_s: float, name: str, sent: Any) -> None:
    """Repeat a request on one connection."""
    turns = itertools.cycle([BODIES[name], THEN.get(name, BODIES[name])])
    place = urlsplit(url)
    headers = {"Authorization": f"Bearer {token}"}
    connection = HTTPConnection(place.hostname or "", place.port, timeout=30)
    if name in FIRST:
        connection.request("POST", JOBS, body=FIRST[name], headers=headers)
        connection.getresponse().read()
    while time.time() < until_s:
        method, path, body = next(turns)
        try:
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            answer.read()
            if answer.status == 429:
                time.sleep(0.01)
        except (OSError, HTTPException):
            connection.close()
        with sent.get_lock():
            sent.value += 1


def half_send(url: str, token: str, until_s: float, name: str, sent: Any) -> None:
    """Open connections without end and send half a request on each."""
    place = urlsplit(url)
    held: list[socket.socket] = []
    while time.time() < until_s:
        with suppress(OSError):
            made = socket.create_connection((place.hostname or "", place.port or 0), timeout=5)
            made.sendall(HALF[name])
            held.append(made)
            with sent.get_lock():
                sent.value += 1
        if len(held) > 900:
            held.pop(0).close()
        time.sleep(0.002)
    for each in held:
        each.close()


class User:
    """A user that submits a job several times a second and remembers what was accepted."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = url, token
        self.times_s: list[float] = []
        self.accepted: list[str] = []
        self.failed = 0

    def work(self, until_s: float) -> None:
        place = urlsplit(self._url)
        headers = {"Authorization": f"Bearer {self._token}"}
        while time.time() < until_s:
            begun_s = time.perf_counter()
            connection = HTTPConnection(place.hostname or "", place.port, timeout=30)
            try:
                connection.request("POST", JOBS, body=_body(_job()), headers=headers)
                answer = connection.getresponse()
                said = answer.read()
                if answer.status == 201:
                    self.accepted += json.loads(said)["ids"]
                else:
                    self.failed += 1
            except (OSError, HTTPException):
                self.failed += 1
            finally:
                connection.close()
            self.times_s.append(time.perf_counter() - begun_s)
            time.sleep(EVERY_S)


def measure(manager: Manager, tokens: list[str], name: str, seconds: float) -> tuple[int, list[float], int, int]:
    """Return the attacker's requests, the times of others' submissions, and their lost and failed ones."""
    url, until_s = manager.client.url, time.time() + seconds
    sent = multiprocessing.Value("i", 0)
    work: Callable[..., None] = half_send if name in HALF else send_bombs if name == BOMB else send
    attackers = [
        multiprocessing.Process(target=work, args=(url, tokens[0], until_s, name, sent), daemon=True)
        for _ in range(CONNECTIONS)
    ]
    users = [User(url, token) for token in tokens[1:]]
    threads = [threading.Thread(target=user.work, args=(until_s,)) for user in users]
    for attacker in attackers:
        attacker.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 60)
    for attacker in attackers:
        attacker.join(seconds + 60)
    accepted = [job_id for user in users for job_id in user.accepted]
    times = [each for user in users for each in user.times_s]
    return sent.value, times, lost(manager, accepted), sum(user.failed for user in users)


def lost(manager: Manager, accepted: list[str]) -> int:
    """Return how many accepted jobs did not succeed in time."""
    left = set(accepted)
    deadline_s = time.time() + ENDED_WITHIN_S
    while left and time.time() < deadline_s:
        left -= {job["id"] for job in manager.client.jobs(all=True, state="succeeded")}
        time.sleep(1.0)
    return len(left)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=10.0)
    options.add_argument("attacks", nargs="*", help="the attacks to try; all by default")
    given = options.parse_args()
    names = [
        name for name in (*BODIES, *HALF, BOMB) if not given.attacks or any(word in name for word in given.attacks)
    ]
    broken = 0
    print("| attack | attacker's requests | others' submissions | p50 | p99 | refused | jobs lost |")
    print("|---|---|---|---|---|---|---|")
    for name in names:
        folder = Path(tempfile.mkdtemp(prefix="rota-hostile-"))
        folder.chmod(0o755)  # jobs run as another account
        manager = Manager(folder, "--emulate", "gpu=8/4", "--require-token", *AS_ROOT, checks=True).start_guarded()
        try:
            made = [{"name": user, "role": "member", "tenants": ["default"]} for user in ("mallory", "ann", "bob")]
            tokens = [str(manager.client._call("POST", "/tokens", each)["token"]) for each in made]
            requests, times, gone, refused = measure(manager, tokens, name, given.seconds)
        finally:
            manager.kill()
            manager.clean_up()
        times.sort()
        p50, p99 = (times[min(int(len(times) * part), len(times) - 1)] for part in (0.5, 0.99))
        row = f"| {name} | {requests} | {len(times)} | {p50 * 1e3:.0f} ms | {p99 * 1e3:.0f} ms | {refused} | {gone} |"
        print(row, flush=True)
        broken += p99 > MOST_P99_S or gone > 0 or refused > 0
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
