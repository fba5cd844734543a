"""Requests as an attacker sends them: any header, any cookie, and streams whose end is timed."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from machine_load import slowness
from managers import Manager
from rota.sdk.client import Client

FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """An answer with all of its cookies."""

    status: int
    headers: dict[str, str]
    cookies: list[str]
    text: str

    def cookie(self, name: str) -> str:
        """Return the value of a cookie that was set."""
        found = next(cookie for cookie in self.cookies if cookie.startswith(f"{name}="))
        return found.partition("=")[2].partition(";")[0]


def ask(url: str, method: str, path: str, body: bytes | None = None, **headers: str) -> HttpAnswer:
    """Send one request; underscores in names of headers become dashes."""
    return ask_from("", url, method, path, body, **headers)


def ask_from(source: str, url: str, method: str, path: str, body: bytes | None = None, **headers: str) -> HttpAnswer:
    """Send one request from an address of this machine."""
    place = urlsplit(url)
    address = (source, 0) if source else None
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60, source_address=address)
    try:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body=body, headers=given)
        answer = connection.getresponse()
        return HttpAnswer(
            status=answer.status,
            headers={name.lower(): value for name, value in answer.getheaders()},
            cookies=answer.headers.get_all("set-cookie") or [],
            text=answer.read().decode(errors="replace"),
        )
    finally:
        connection.close()


def post_form(url: str, path: str, headers: dict[str, str] | None = None, **fields: str) -> HttpAnswer:
    """Send a form."""
    return ask(url, "POST", path, urlencode(fields).encode(), **{"Content-Type": FORM, **(headers or {})})


def log_in_page(url: str, token: str) -> str:
    """Log in with a token; return the Cookie header."""
    answer = post_form(url, "/login", token=token)
    assert answer.status == 303, answer.text
    return f"rota_session={answer.cookie('rota_session')}"


def new_token(manager: Manager, role: str = "member", **fields: object) -> tuple[str, str]:
    """Create a token; return its id and its secret."""
    made = manager.client.post("/tokens", {"name": f"{role}-{time.monotonic_ns()}", "role": role, **fields})
    return made["id"], made["token"]


class TimedStream:
    """A stream that is read in a thread until its end."""

    def __init__(self, url: str, path: str, token: str, *more_tokens: str) -> None:
        place = urlsplit(url)
        self._connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=20)
        self._connection.putrequest("GET", f"/api/v1{path}")
        for each in (token, *more_tokens):
            self._connection.putheader("Authorization", f"Bearer {each}")
        self._connection.endheaders()
        self._answer = self._connection.getresponse()
        self.status = self._answer.status
        self.content = b""
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with suppress(OSError, http.client.HTTPException):
            while piece := self._answer.read1(65536):
                self.content += piece
        self._connection.close()
        self.ended.set()

    def ends_within(self, limit_s: float) -> bool:
        """Whether the stream ends in time, by the clock of a machine that does nothing else."""
        return self.ended.wait(limit_s * slowness())

    def close(self) -> None:
        """Stop reading."""
        if self._connection.sock is not None:
            self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)


def client_at(manager: Manager, token: str) -> Client:
    """Return a client with a token."""
    return Client(manager.client.url, token)


def read_log(manager: Manager) -> str:
    """Return everything that the manager wrote to stdout and stderr."""
    return Path(manager.folder / "up.log").read_text()
