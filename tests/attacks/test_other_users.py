"""Other users of the machine against a manager on loopback that asks for no token."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from managers import Manager
from rota.api.guard.same_user import NO_USER, Ask, ask_kernel, ask_table, user_of, way_to_ask

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can connect as another user"),
]
BY_USER = "only connections of the manager's own user, as the kernel knows it"
NOBODY = 65534
SENDS = """
import encodings.idna, os, socket, struct, sys
os.setgroups([]); os.setgid({user}); os.setuid({user})
host, port, text, how, source = sys.argv[1:]
for _ in range(1 if how == "waits" else 20):
    peer = socket.socket()
    if source:
        peer.bind((source, 0))
    if how == "resets":
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.connect((host, int(port)))
    peer.sendall(text.encode())
    if how == "waits":
        print(peer.recv(65536).decode("latin-1"))
    peer.close()
"""


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    made = Manager(tmp_path_factory.mktemp("owner"), "--emulate", "gpu=2/2").start()
    yield made
    made.clean_up()


def send(manager: Manager, request: str, how: str = "waits", source: str = "") -> str:
    """Send a request as another user, several times unless its answer is waited for; return the answer."""
    place = urlsplit(manager.client.url)
    to = [str(place.hostname), str(place.port), request, how, source]
    command = [sys.executable, "-c", SENDS.format(user=NOBODY), *to]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, cwd="/")
    assert done.returncode == 0, done.stderr
    return done.stdout


def http(method: str, path: str, body: object = None, *more: str) -> str:
    content = "" if body is None else json.dumps(body)
    head = [
        f"{method} {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Connection: close",
        f"Content-Length: {len(content)}",
        *more,
    ]
    return "\r\n".join(head) + "\r\n\r\n" + content


@pytest.mark.parametrize(
    "request_text",
    [
        pytest.param(
            http("POST", "/api/v1/jobs", {"run": "id"}),
            marks=pytest.mark.attack("submits a job, to run it as the owner", stopped_by=BY_USER),
            id="submits",
        ),
        pytest.param(
            http("GET", "/api/v1/jobs"),
            marks=pytest.mark.attack("reads the owner's jobs", stopped_by=BY_USER),
            id="reads",
        ),
        pytest.param(
            http("GET", "/jobs"),
            marks=pytest.mark.attack("opens the owner's dashboard", stopped_by=BY_USER),
            id="dashboard",
        ),
        pytest.param(
            http("POST", "/api/v1/tokens", {"name": "mine", "role": "admin"}),
            marks=pytest.mark.attack("makes itself a token", stopped_by=BY_USER),
            id="token",
        ),
        pytest.param(
            http("GET", "/api/v1/jobs", None, "Authorization: Bearer rota_guessed"),
            marks=pytest.mark.attack("sends a token that it guessed", stopped_by="unknown tokens are refused"),
            id="guessed",
        ),
        pytest.param(
            http("POST", "/api/v1/jobs", {"run": "id"}, "Authorization:"),
            marks=pytest.mark.attack("submits a job with an empty token, to run it as the owner", stopped_by=BY_USER),
            id="empty token",
        ),
        pytest.param(
            http("POST", "/api/v1/jobs", {"run": "id"}, "Authorization:", "Authorization: Bearer x"),
            marks=pytest.mark.attack("hides an empty token before a guessed one", stopped_by=BY_USER),
            id="two tokens",
        ),
        pytest.param(
            http("GET", "/jobs", None, "Authorization: Bearer x"),
            marks=pytest.mark.attack("opens the owner's dashboard with a guessed token", stopped_by=BY_USER),
            id="dashboard with a token",
        ),
    ],
)
def test_other_user_is_refused(manager: Manager, request_text: str) -> None:
    answer = send(manager, request_text)

    assert answer.split(" ")[1] in ("401", "403"), answer
    assert list(manager.client.jobs(all=True)) == []


@pytest.mark.parametrize(
    "how",
    [
        pytest.param("leaves", marks=pytest.mark.attack("closes its connection at once", stopped_by=BY_USER)),
        pytest.param("resets", marks=pytest.mark.attack("resets its connection at once", stopped_by=BY_USER)),
    ],
)
def test_request_whose_sender_is_gone_is_refused(manager: Manager, how: str) -> None:
    send(manager, http("POST", "/api/v1/jobs", {"run": "id"}), how)
    assert send(manager, http("GET", "/healthz")).startswith("HTTP/1.1 200")  # after all that was sent before it
    time.sleep(0.3)

    assert list(manager.client.jobs(all=True)) == []


@pytest.mark.attack("comes to loopback from the machine's outer address", stopped_by=BY_USER)
def test_other_user_from_another_address_is_refused(manager: Manager) -> None:
    answer = send(manager, http("POST", "/api/v1/jobs", {"run": "id"}), source=outer_address())

    assert answer.startswith("HTTP/1.1 403"), answer
    assert list(manager.client.jobs(all=True)) == []


def outer_address() -> str:
    """Return an address of this machine that is not on loopback; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return str(asking.getsockname()[0])


@pytest.mark.attack("names itself another machine as a proxy does", stopped_by="with a proxy, a token is needed")
def test_manager_behind_a_proxy_asks_for_a_token(tmp_path: Path) -> None:
    manager = Manager(tmp_path, "--emulate", "gpu=2/2", "--trust-proxy").start_guarded()
    try:
        for source in ("203.0.113.7", "nowhere"):
            answer = send(manager, http("POST", "/api/v1/jobs", {"run": "id"}, f"X-Forwarded-For: {source}"))
            assert answer.startswith("HTTP/1.1 401"), answer
        assert list(manager.client.jobs(all=True)) == []
    finally:
        manager.clean_up()


def test_probes_and_the_owner_are_served(manager: Manager) -> None:
    assert send(manager, http("GET", "/healthz")).startswith("HTTP/1.1 200")
    assert manager.wait(manager.submit("true"))["state"] == "succeeded"


@pytest.mark.parametrize("ask", [ask_kernel, ask_table])
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_user_of_a_connection(ask: Ask, host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listening:
        server = listening.getsockname()[:2]
        peer = socket.create_connection(server)
        os.fchown(peer.fileno(), NOBODY, -1)
        accepted, client = listening.accept()
        with accepted:
            assert user_of(client[:2], server, ask) == NOBODY
            peer.close()
            assert user_of(client[:2], server, ask) == NO_USER
    for unknown in (("192.0.2.1", 1), None, ("testclient", 1), ("::1", 1), ("127.0.0.1", 1)):
        assert user_of(unknown, server, ask) == NO_USER
    assert user_of(client[:2], None, ask) == NO_USER


def test_way_to_ask_is_found() -> None:
    assert way_to_ask() is ask_kernel
