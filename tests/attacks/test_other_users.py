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
from rota.api.guard.same_user import NO_USER, user_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can connect as another user"),
]
BY_USER = "only connections of the manager's own user, as the kernel knows it"
NOBODY = 65534
SENDS = """
import encodings.idna, os, socket, sys
os.setgroups([]); os.setgid({user}); os.setuid({user})
peer = socket.socket(); peer.connect((sys.argv[1], int(sys.argv[2])))
peer.sendall(sys.argv[3].encode())
if sys.argv[4] == "waits":
    print(peer.recv(65536).decode("latin-1"))
"""


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    made = Manager(tmp_path_factory.mktemp("owner"), "--emulate", "gpu=2/2").start()
    yield made
    made.clean_up()


def send(manager: Manager, request: str, how: str = "waits") -> str:
    """Send a request as another user; its answer, if that is waited for."""
    place = urlsplit(manager.client.url)
    command = [sys.executable, "-c", SENDS.format(user=NOBODY), str(place.hostname), str(place.port), request, how]
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


@pytest.mark.attack("closes its connection before it is looked at", stopped_by=BY_USER)
def test_request_whose_sender_is_gone_is_refused(manager: Manager) -> None:
    for _ in range(20):
        send(manager, http("POST", "/api/v1/jobs", {"run": "id"}), how="leaves")
    time.sleep(0.5)

    assert list(manager.client.jobs(all=True)) == []


def test_probes_and_the_owner_are_served(manager: Manager) -> None:
    assert send(manager, http("GET", "/healthz")).startswith("HTTP/1.1 200")
    assert manager.wait(manager.submit("true"))["state"] == "succeeded"


def test_user_of_a_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = listening.getsockname()
        peer = socket.create_connection(server)
        accepted, client = listening.accept()
        with accepted:
            assert user_of(client, server) == os.geteuid()
            peer.close()
            assert user_of(client, server) == NO_USER
    assert user_of(("192.0.2.1", 1), server) is None
    assert user_of(None, server) is None
    assert user_of(("testclient", 1), server) is None
    assert Path("/proc/net/tcp").exists()
