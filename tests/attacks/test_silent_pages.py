"""Pages of jobs that never answer, never end or answer twice: what they take of their visitors and of the manager."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from attacks.lab import Lab
from attacks.session_calls import HttpAnswer, ask
from managers import eventually
from rota.api.proxy.limits import AT_ONCE

pytestmark = pytest.mark.slow
attack = pytest.mark.attack
SERVER = r"""
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
print("port", server.getsockname()[1], flush=True)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"
def serve(peer):
    while request := peer.recv(65536):
        what = request.split(b" ")[1].rpartition(b"/")[2]
        if what == b"silent":
            print("asked\n", end="", flush=True)
            peer.recv(1)
            print("left\n", end="", flush=True)
        elif what == b"endless":
            try:
                peer.sendall(OK[:17] + b"\r\n")
                while True:
                    peer.sendall(b"x" * 65536)
            except OSError:
                print("stopped\n", end="", flush=True)
        elif what == b"broken":
            peer.sendall(OK + b"ab")
            peer.close()
            return
        else:
            peer.sendall(OK + b"good" + (OK + b"evil" if what == b"twice" else b""))
while True:
    threading.Thread(target=serve, args=server.accept()[:1], daemon=True).start()
"""


class SilentPage:
    """A job of ada with such a server."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.url = lab.manager.client.url
        self.job_id = lab.submit("ada", run=[sys.executable, "-c", SERVER])  # type: ignore[arg-type]
        port = eventually(lambda: re.findall(r"port (\d+)", self.said()))[0]
        self.path = f"/proxy/{self.job_id}/{port}/"
        self.token = {"Authorization": f"Bearer {lab.secrets['mia']}"}

    def said(self) -> str:
        return self.lab.manager.said(self.job_id)

    def answer(self, path: str) -> HttpAnswer:
        return ask(self.url, "GET", self.path + path, None, **self.token)

    def sent(self, path: str) -> socket.socket:
        """A request of mia whose answer is not waited for."""
        place = urlsplit(self.url)
        peer = socket.create_connection((place.hostname or "", place.port or 0), timeout=60)
        head = [
            f"GET {self.path}{path} HTTP/1.1",
            f"Host: {place.netloc}",
            f"Authorization: {self.token['Authorization']}",
        ]
        peer.sendall("\r\n".join([*head, "", ""]).encode())
        return peer


@pytest.fixture(scope="module")
def page(managed: Lab) -> Iterator[SilentPage]:
    yield SilentPage(managed)
    managed.clear()


@attack(
    "never answers its visitors, so that they have no requests left for other pages and the manager",
    stopped_by="requests to jobs are counted apart, and end as soon as the browser has gone",
)
def test_silent_page_keeps_nothing_of_a_visitor_that_has_left(page: SilentPage) -> None:
    visitors = [page.sent("silent") for _ in range(AT_ONCE)]
    eventually(lambda: page.said().count("asked") == AT_ONCE, within_s=30)
    assert page.lab.ask("mia", "GET", "/jobs")[0] == 200
    for each in visitors:
        each.close()
    eventually(lambda: page.said().count("left") == AT_ONCE, within_s=30)
    assert page.answer("other").text == "good"


@attack(
    "sends its visitor an answer without end, to keep the manager reading after it was closed",
    stopped_by="the connection to the job ends with the browser's",
)
def test_endless_page_ends_with_its_visitor(page: SilentPage) -> None:
    visitor = page.sent("endless")
    assert visitor.recv(65536)
    visitor.close()
    eventually(lambda: "stopped" in page.said(), within_s=30)


@attack(
    "sends a second answer ahead, for the next visitor's request",
    stopped_by="a connection with bytes that no request asked for is not used again",
)
def test_answer_that_was_not_asked_for_reaches_no_one(page: SilentPage) -> None:
    assert page.answer("twice").text == "good"
    assert page.answer("next").text == "good"


@attack("breaks off its answers to fill the manager's log with tracebacks", stopped_by="one line says it")
def test_broken_answer_is_no_fault_of_the_manager(page: SilentPage) -> None:
    peer = page.sent("broken")
    while peer.recv(65536):
        pass
    peer.close()
    assert "Traceback" not in (page.lab.manager.folder / "up.log").read_text()
