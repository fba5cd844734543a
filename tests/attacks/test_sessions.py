"""Tokens that end, pages of other sessions, and refusals that are to fill the audit log."""

from __future__ import annotations

import asyncio
import re
import socket
import statistics
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
import socketio

from attacks.session_calls import TimedStream, ask, log_in_page, new_token, post_form, read_log
from machine_load import slowness
from managers import Manager, eventually

attack = pytest.mark.attack


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    """A manager that requires tokens, with one job that runs on and says something now and then."""
    made = Manager(tmp_path_factory.mktemp("guarded"), "--emulate", "gpu=4/2", "--require-token").start_guarded()
    made.submit("while true; do echo tick; sleep 0.2; done", name="ticks", tenant="vision")
    made.wait("1", "running")
    yield made
    made.clean_up()


# -- streams --------------------------------------------------------------------------------------

STREAMS = [
    pytest.param(
        "/events",
        marks=attack("keeps reading events after its token was revoked", stopped_by="streams end with their token"),
        id="events",
    ),
    pytest.param(
        "/jobs/1/logs?follow=true",
        marks=attack("keeps following a log after its token was revoked", stopped_by="streams end with their token"),
        id="logs",
    ),
]


@pytest.mark.parametrize("path", STREAMS)
def test_revoked_token_ends_its_streams_within_a_second(guarded: Manager, path: str) -> None:
    token_id, secret = new_token(guarded, tenants=["vision"])
    _, other_secret = new_token(guarded, tenants=["vision"])
    stream, other = (TimedStream(guarded.client.url, path, each) for each in (secret, other_secret))
    eventually(lambda: stream.content and other.content)

    guarded.client.delete(f"/tokens/{token_id}")

    assert stream.ends_within(1.0)
    assert not other.ended.is_set(), "other tokens' streams go on"
    other.close()


@attack("names a second token, so that the end of the first is not noticed", stopped_by="one reader of tokens")
def test_second_token_does_not_keep_the_streams_of_a_revoked_one(guarded: Manager) -> None:
    token_id, secret = new_token(guarded, tenants=["vision"])
    _, other_secret = new_token(guarded, tenants=["vision"])
    path = "/jobs/1/logs?follow=true"
    streams = [TimedStream(guarded.client.url, path, secret, second) for second in ("unknown", other_secret)]
    eventually(lambda: all(each.content for each in streams))

    guarded.client.delete(f"/tokens/{token_id}")

    assert [each.ends_within(1.0) for each in streams] == [True, True]


@attack("keeps following a log after its token has expired", stopped_by="streams end with their token")
def test_expired_token_ends_its_streams_within_a_second(guarded: Manager) -> None:
    begun = time.monotonic()
    _, secret = new_token(guarded, tenants=["vision"], expires_in_s=1.2)
    stream = TimedStream(guarded.client.url, "/jobs/1/logs?follow=true", secret)

    assert stream.ends_within(1.2 + 1.0)
    assert time.monotonic() - begun >= 1.2
    assert b"tick" in stream.content


@attack("keeps a stream open that says nothing after its token was revoked", stopped_by="streams end with their token")
def test_quiet_log_stream_of_a_revoked_token_ends_within_a_second(guarded: Manager) -> None:
    quiet = guarded.submit("echo once; sleep 600", name="quiet", tenant="vision")
    guarded.wait(quiet, "running")
    token_id, secret = new_token(guarded, tenants=["vision"])
    stream = TimedStream(guarded.client.url, f"/jobs/{quiet}/logs?follow=true", secret)
    eventually(lambda: b"once" in stream.content)

    guarded.client.delete(f"/tokens/{token_id}")

    assert stream.ends_within(1.0)
    assert stream.content.strip() == b"once"
    guarded.client.act(quiet, "cancel")


# -- pages ----------------------------------------------------------------------------------------


def open_page(manager: Manager, cookie: str) -> str:
    """Return the client id of a page that was built for a session."""
    answer = ask(manager.client.url, "GET", "/jobs", Cookie=cookie)
    assert answer.status == 200
    found = re.search(r"[\"']client_id[\"']:\s*[\"']([0-9a-f-]{36})", answer.text)
    assert found is not None, answer.text[-3000:]
    return found.group(1)


def handshake(client_id: str) -> dict[str, str]:
    return {"client_id": client_id, "tab_id": "tab", "document_id": "document", "old_tab_id": ""}


@asynccontextmanager
async def connected(manager: Manager, cookie: str | None, query: str = "") -> AsyncIterator[socketio.AsyncClient]:
    """Connect a socket, with the cookie of a session or without one."""
    async with aiohttp.ClientSession(headers={} if cookie is None else {"Cookie": cookie}) as session:
        client = socketio.AsyncClient(reconnection=False, http_session=session)
        place = manager.client.url + query
        await client.connect(place, socketio_path="/_nicegui_ws/socket.io", transports=["websocket"])
        try:
            yield client
        finally:
            await client.disconnect()


async def shaken(manager: Manager, cookie: str | None, client_id: str) -> Any:
    """Return whether a socket with this cookie gets at a page; None if it can't even connect."""
    try:
        async with connected(manager, cookie) as client:
            return await client.call("handshake", handshake(client_id), timeout=5)
    except socketio.exceptions.ConnectionError:
        return None


@pytest.fixture
def two_sessions(guarded: Manager) -> tuple[str, str]:
    secrets = (new_token(guarded, tenants=["vision"])[1], new_token(guarded, tenants=["nlp"])[1])
    mine, theirs = (log_in_page(guarded.client.url, secret) for secret in secrets)
    return mine, theirs


@attack("opens the socket of a page with another user's session", stopped_by="pages belong to their session")
def test_socket_of_another_session_does_not_get_at_a_page(guarded: Manager, two_sessions: tuple[str, str]) -> None:
    mine, theirs = two_sessions
    client_id = open_page(guarded, mine)

    assert asyncio.run(shaken(guarded, theirs, client_id)) is False
    assert asyncio.run(shaken(guarded, mine, client_id)) is True


@attack("opens the socket of a page without any session", stopped_by="sockets need a session")
def test_socket_without_cookie_is_not_accepted(guarded: Manager, two_sessions: tuple[str, str]) -> None:
    client_id = open_page(guarded, two_sessions[0])

    assert asyncio.run(shaken(guarded, None, client_id)) is None


@attack("names another page while connecting", stopped_by="pages belong to their session")
def test_implicit_handshake_with_another_page_is_refused(guarded: Manager, two_sessions: tuple[str, str]) -> None:
    mine, theirs = two_sessions
    query = f"?implicit_handshake=true&client_id={open_page(guarded, mine)}&tab_id=tab&document_id=d&next_message_id=0"

    async def connect(cookie: str) -> bool:
        try:
            async with connected(guarded, cookie, query):
                return True
        except socketio.exceptions.ConnectionError:
            return False

    assert not asyncio.run(connect(theirs))
    assert asyncio.run(connect(mine))


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(
            name,
            marks=attack(
                f"sends a message ({name}) to another user's page", stopped_by="pages belong to their session"
            ),
        )
        for name in ("event", "javascript_response", "ack", "log")
    ],
)
def test_message_to_another_page_is_ignored(guarded: Manager, two_sessions: tuple[str, str], event: str) -> None:
    mine, theirs = two_sessions
    victim, own = open_page(guarded, mine), open_page(guarded, theirs)
    message = {"id": 1, "listener_id": "x", "args": [], "request_id": "r", "next_message_id": 10**9, "level": "info"}

    async def send() -> object:
        async with connected(guarded, theirs) as client:
            assert await client.call("handshake", handshake(own), timeout=5) is True
            return await client.call(event, {**message, "client_id": victim}, timeout=5)

    assert asyncio.run(send()) is False


@attack("keeps an open page after its token was revoked", stopped_by="pages end with their session")
def test_page_of_a_revoked_token_ends_within_a_second(guarded: Manager) -> None:
    token_id, secret = new_token(guarded, tenants=["vision"])
    cookie = log_in_page(guarded.client.url, secret)
    client_id = open_page(guarded, cookie)

    async def watch() -> tuple[float, list[Any]]:
        gone = asyncio.Event()
        opened: list[Any] = []
        async with connected(guarded, cookie) as client:
            client.on("disconnect", lambda *_: gone.set())
            client.on("open", lambda message: opened.append(message))
            assert await client.call("handshake", handshake(client_id), timeout=5) is True
            begun = time.monotonic()
            await asyncio.to_thread(guarded.client.delete, f"/tokens/{token_id}")
            await asyncio.wait_for(gone.wait(), 5)
            return time.monotonic() - begun, opened

    passed_s, opened = asyncio.run(watch())

    assert passed_s < 1.0
    assert [message["path"] for message in opened] == ["/login"]
    assert ask(guarded.client.url, "GET", "/jobs", Cookie=cookie).status == 303


@attack("uses the cookie of a session that was logged out", stopped_by="sessions are kept on the server")
def test_cookie_is_worthless_after_logout(guarded: Manager) -> None:
    cookie = log_in_page(guarded.client.url, new_token(guarded)[1])
    client_id = open_page(guarded, cookie)
    assert post_form(guarded.client.url, "/logout", {"Cookie": cookie}).status == 200

    assert ask(guarded.client.url, "GET", "/jobs", Cookie=cookie).status == 303
    assert asyncio.run(shaken(guarded, cookie, client_id)) is None


@attack("plants a session id in a victim's browser before the login", stopped_by="each login gets a new session id")
def test_planted_session_id_is_not_adopted(guarded: Manager) -> None:
    planted = "rota_session=planted-by-the-attacker"
    answer = post_form(guarded.client.url, "/login", {"Cookie": planted}, token=new_token(guarded)[1])

    assert answer.status == 303
    assert answer.cookie("rota_session") != "planted-by-the-attacker"
    assert ask(guarded.client.url, "GET", "/jobs", Cookie=planted).status == 303


@attack("reads a session's cookie by a script or another site", stopped_by="HttpOnly and SameSite=Strict")
def test_cookie_s_flags(guarded: Manager) -> None:
    answer = post_form(guarded.client.url, "/login", token=new_token(guarded)[1])

    flags = {part.strip().lower() for part in answer.cookies[0].split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/"} <= flags
    assert not any(flag.startswith("domain") for flag in flags)


# -- the first token ------------------------------------------------------------------------------


@attack("reads the first admin token in a log", stopped_by="it is in a file of its owner only")
def test_first_token_is_in_a_private_file_and_in_no_log(guarded: Manager) -> None:
    path = guarded.home / "first-token"

    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text().strip() == guarded.token
    assert guarded.token not in read_log(guarded)
    assert str(path) in read_log(guarded)


# -- refusals -------------------------------------------------------------------------------------


def refusals(manager: Manager) -> list[dict[str, Any]]:
    rows = manager.client.get("/audit?limit=1000")
    return [row for row in rows if row["what"] in ("refused", "login-refused")]


@attack("tries tokens and logins unseen", stopped_by="refusals are in the audit log")
def test_refused_requests_and_logins_are_audited(tmp_path: Path) -> None:
    manager = Manager(tmp_path, "--emulate", "gpu=1/1", "--require-token").start_guarded()
    try:
        _, viewer = new_token(manager, "viewer", tenants=["vision"])
        url = manager.client.url
        ask(url, "GET", "/api/v1/jobs", Authorization="Bearer guess")
        ask(url, "GET", "/api/v1/audit", Authorization=f"Bearer {viewer}")
        post_form(url, "/login", token="guess")

        rows = eventually(lambda: found if len(found := refusals(manager)) >= 2 else [], within_s=60)

        told = {(row["what"], row["thing"], row["detail"].split(" ", 1)[0]) for row in rows}
        assert ("refused", "127.0.0.1", "401") in told
        assert ("refused", "127.0.0.1", "403") in told
        by_viewer = next(row for row in rows if row["detail"].startswith("403"))
        assert by_viewer["who"].startswith("viewer-")
        assert all("guess" not in row["detail"] and viewer not in row["detail"] for row in rows)
    finally:
        manager.clean_up()


def flood(manager: Manager, source: str, seconds: float) -> int:
    """Send refused requests from one address for a while, at least ten; return their number."""
    place = urlsplit(manager.client.url)
    request = f"GET /api/v1/jobs HTTP/1.1\r\nHost: {place.netloc}\r\nAuthorization: Bearer x\r\n\r\n".encode()
    sent, deadline = 0, time.monotonic() + seconds
    with socket.create_connection((place.hostname or "", place.port or 0), 20, source_address=(source, 0)) as raw:
        while time.monotonic() < deadline or sent < 10:
            raw.sendall(request)
            answer = b""
            while not answer.endswith(b"}"):
                answer += raw.recv(65536)
            assert b" 401 " in answer or b" 429 " in answer
            sent += 1
    return sent


@pytest.mark.slow
@attack("floods the manager with refused requests from many addresses", stopped_by="refusals are counted per minute")
def test_flood_of_refusals_neither_fills_the_database_nor_slows_the_loop(tmp_path: Path) -> None:
    manager = Manager(tmp_path, "--emulate", "gpu=1/1", "--require-token").start_guarded()
    try:
        manager.client.drain("n1")
        sources = [f"127.0.0.{number}" for number in range(2, 34)]
        taken, first = [], time.monotonic()
        with ThreadPoolExecutor(len(sources)) as pool:
            floods = [pool.submit(flood, manager, source, 3.0) for source in sources]
            while not all(each.done() for each in floods):
                begun = time.monotonic()
                manager.client.submit({"run": "true"})
                taken.append(time.monotonic() - begun)
            sent = sum(each.result() for each in floods)
        time.sleep(1.0)

        assert sent > 200
        minutes = 2 + (time.monotonic() - first) // 60
        assert len(refusals(manager)) <= 11 * minutes, "ten sources and the others, twice a minute"
        assert statistics.median(taken) < 1.0 * slowness(), "the flood comes from this process"
        assert manager.client.get("/audit/verify")["fault"] is None
    finally:
        manager.clean_up()
