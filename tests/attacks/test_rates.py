"""Callers who spell what they are known by differently, so that each request is counted for another."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import quote, urlsplit

import pytest

from attacks.session_calls import ask, log_in_page
from managers import Manager
from rota.api import metrics
from rota.api.limits.callers import FairRequests
from rota.api.log import JsonLines, TextLines
from rota.files.up_file import LimitsPart
from rota.web.sessions import SESSIONS_PER_TOKEN, Sessions

attack = pytest.mark.attack
Json = dict[str, Any]
BY_ADDRESS = "guesses share the rate of their address: 429"


def statuses(scopes: list[Json], *, valid: str = "", **limits: Any) -> list[int]:
    """Send requests one after another; those that are streams stay open. Return the status of each."""
    found: list[int] = []

    async def page(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        if scope["path"].endswith("/logs"):
            await asyncio.Event().wait()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            found.append(message["status"])

    async def all_of_them() -> None:
        app = FairRequests(
            page,
            LimitsPart(**limits),
            token_required=True,
            is_valid=lambda digest: bool(valid),
            of_session=lambda scope: None,
        )
        open_ones = []
        for scope in scopes:
            open_ones.append(asyncio.create_task(app(scope, None, send)))  # type: ignore[arg-type]  # nothing is received
            await asyncio.sleep(0.01)
        for each in open_ones:
            each.cancel()
        await asyncio.gather(*open_ones, return_exceptions=True)

    asyncio.run(all_of_them())
    return found


def request(path: str = "/api/v1/nodes", query: str = "", *, token: str = "", source: str = "192.0.2.7") -> Json:
    headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
    about = {"type": "http", "path": path, "query_string": query.encode(), "client": (source, 1)}
    return {**about, "headers": headers}


@attack("guesses another token with each request", stopped_by=BY_ADDRESS)
def test_guessed_tokens_share_a_rate() -> None:
    guesses = [request(token=f"rota_{number}") for number in range(5)]

    assert statuses(guesses, requests_per_second=0.01, requests_burst=30) == [200] * 3 + [429] * 2


@attack("guesses from another address of its own IPv6 network each time", stopped_by=BY_ADDRESS)
def test_addresses_of_one_network_share_a_rate() -> None:
    guesses = [request(source=f"2001:db8::{number}") for number in range(1, 6)]

    assert statuses(guesses, requests_per_second=0.01, requests_burst=3) == [200] * 3 + [429] * 2


@attack("guesses tokens until others at its address can't log in", stopped_by="guesses have a rate of their own")
def test_guesses_leave_others_at_the_address_alone() -> None:
    guesses = [request(token=f"rota_{number}") for number in range(5)]

    assert statuses([*guesses, request("/login")], requests_per_second=0.01, requests_burst=3)[-1] == 200


@pytest.mark.parametrize(
    "query",
    [
        pytest.param(
            query, marks=attack(f"follows more logs than it may by `{query}`", stopped_by="read as the API does")
        )
        for query in ("follow=t", "follow=%31", "follow=Y", "f%6Fllow=On", "follow=0&follow=1", "task=0&follow=TRUE")
    ],
)
def test_every_spelling_of_a_stream_counts_as_one(query: str) -> None:
    streams = [request("/api/v1/jobs/1/logs", query, token="x")] * 3

    assert statuses(streams, valid="x", streams=2) == [200, 200, 429]
    assert statuses([request("/api/v1/jobs/1/logs", "follow=no", token="x")] * 3, valid="x", streams=2) == [200] * 3


@pytest.mark.slow
@attack("makes up a session for each request", stopped_by="sessions that do not exist count for the address")
@attack("spells the cookie of its session differently", stopped_by="rates read sessions as pages do")
def test_sessions_are_known_by_their_token(tmp_path: Path) -> None:
    settings = tmp_path / "rota.yaml"
    settings.write_text("limits: {requests_per_second: 0.01, requests_burst: 4}\nrequire_token: true\n")
    manager = Manager(tmp_path, "--emulate", "gpu=2/2", "--config", str(settings), "--require-token").start_guarded()
    try:
        url = manager.client.url
        name, _, session = log_in_page(url, manager.token).partition("=")
        again = log_in_page(url, manager.token)
        spellings = [f"{name}={session}", f'a=1; {name}="{session}"', f"{name}=x; {name}={session}", again, again]
        assert [ask(url, "GET", "/_rota/style.css", Cookie=each).status for each in spellings] == [200] * 4 + [429]
        made_up = [ask(url, "GET", "/_rota/style.css", Cookie=f"{name}=x{number}").status for number in range(3)]
        assert made_up == [200, 200, 429]  # two of four were spent on logins
    finally:
        manager.clean_up()


@attack("logs in again and again until others' sessions end", stopped_by="each token has a few sessions")
def test_many_logins_end_only_own_sessions() -> None:
    sessions = Sessions()
    victim = sessions.open("victim")
    mine = [sessions.open("attacker") for _ in range(3 * SESSIONS_PER_TOKEN)]

    assert sessions.token(victim) == "victim"
    assert sum(sessions.token(each) is not None for each in mine) == SESSIONS_PER_TOKEN
    assert sessions.token(mine[-1]) == "attacker"


@pytest.mark.slow
@attack("sends a token after the body, past all that looks at headers", stopped_by="headers after a body are dropped")
@attack("sends headers without end after the body", stopped_by="headers after a body are dropped")
def test_headers_after_a_body_are_dropped(tmp_path: Path) -> None:
    manager = Manager(tmp_path, "--emulate", "gpu=2/2", "--require-token").start_guarded()
    try:
        place = urlsplit(manager.client.url)
        head = "GET /api/v1/nodes HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
        token = f"Authorization: Bearer {manager.token}\r\n"
        before_kb = resident_kb(manager)
        with socket.create_connection((place.hostname, place.port or 0), timeout=30) as peer:
            peer.sendall((head + token).encode())
            for _ in range(64):
                peer.sendall(b"".join(b"x-%d: %s\r\n" % (number, b"y" * 1000) for number in range(1024)))
            peer.sendall(b"\r\n")
            answer = peer.recv(65536).decode()
        assert answer.startswith("HTTP/1.1 401"), answer
        assert resident_kb(manager) - before_kb < 32 << 10
    finally:
        manager.clean_up()


def resident_kb(manager: Manager) -> int:
    assert manager.process is not None
    status = Path(f"/proc/{manager.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


@attack("scrapes the metrics without end while there are millions of jobs", stopped_by="jobs are counted off the loop")
def test_metrics_read_the_database_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    read_by: list[int] = []

    def read() -> Json:
        read_by.append(threading.get_ident())
        return {}

    parts = SimpleNamespace(records=SimpleNamespace(counts=read), truth=SimpleNamespace(scraped=read), accounts=None)
    monkeypatch.setattr(metrics, "service", lambda request: parts)
    monkeypatch.setattr(metrics.Collector, "collect", lambda self: iter(()))
    answer = asyncio.run(metrics.metrics(cast(Any, None)))

    assert answer.status_code == 200
    assert len(read_by) == 2
    assert threading.get_ident() not in read_by


@pytest.mark.parametrize("form", [JsonLines(), TextLines()], ids=["json", "text"])
@attack("has escape sequences written to the manager's log", stopped_by="what does not print is escaped there")
def test_log_holds_no_escapes(form: logging.Formatter) -> None:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(form)
    bad = "\x1b]0;title\x07\x9b31m\u202eevil\u2028\x7f\r\nlevel=error"
    record = logging.makeLogRecord({"msg": f"event {bad}", "path": f"/jobs/{bad}", "plain": "\x1b[2J"})
    handler.handle(record)

    line = written.getvalue()
    assert line.count("\n") == 1
    assert line[:-1].isprintable(), line
    if isinstance(form, JsonLines):
        assert json.loads(line)["path"] == f"/jobs/{bad}"
    assert quote("evil") in line
