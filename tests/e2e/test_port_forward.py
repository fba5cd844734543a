"""Ports of jobs on the user's machine: a real HTTP server in a job, both directions, many at once, and what fails."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest

import forked
from managers import Manager, eventually
from rota.sdk.client import Client

pytestmark = pytest.mark.slow

SERVE = """
import hashlib, http.server, os, socket, threading

class Echo(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(f"{os.getuid()} {os.environ['ROTA_JOB_ID']} {os.environ['ROTA_RANK']} {self.path}".encode())

    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers["Content-Length"])))

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

def count():
    while True:
        connection, _ = halves.accept()
        with connection:
            size = 0
            while piece := connection.recv(65536):
                size += len(piece)
            connection.sendall(f"{size} until the end".encode())

halves = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=count, daemon=True).start()
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 64

server = Server(("127.0.0.1", 0), Echo)
print("ports", server.server_address[1], halves.getsockname()[1], flush=True)
server.serve_forever()
"""


class Forwarded:
    """A running `rota port-forward`, and what it has printed."""

    def __init__(self, manager: Manager, *args: str) -> None:
        self._errors = manager.folder / f"errors-{os.urandom(4).hex()}"
        with self._errors.open("wb") as errors:
            self.process: subprocess.Popen[bytes] = forked.popen(
                ["port-forward", *args], env=manager.env, cwd=manager.folder, stdout=subprocess.PIPE, stderr=errors
            )
        assert self.process.stdout is not None
        self.ports = []
        for _ in (each for each in args[1:] if each[-1].isdigit()):
            line = self.process.stdout.readline().decode()
            assert line.startswith("Forwarding from 127.0.0.1:"), (line, self.errors)
            self.ports.append(int(line.split()[2].rpartition(":")[2]))
        self._rest = threading.Thread(target=self.process.stdout.read, daemon=True)
        self._rest.start()

    @property
    def errors(self) -> str:
        """What it has said on its error output."""
        return self._errors.read_text()

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
        self._rest.join()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def http(self, method: str = "GET", body: bytes | None = None) -> bytes:
        """The body of the answer to a request over a connection of its own."""
        with closing(HTTPConnection("127.0.0.1", self.ports[0], timeout=120)) as connection:
            connection.request(method, "/page", body)
            return connection.getresponse().read()


@contextmanager
def forwarded(manager: Manager, *args: str) -> Iterator[Forwarded]:
    made = Forwarded(manager, *args)
    try:
        yield made
    finally:
        made.close()


def serving(manager: Manager, **fields: object) -> tuple[str, int, int]:
    """A job with a web server: its id and ports."""
    script = manager.folder / "serve.py"
    script.write_text(SERVE)
    job_id = manager.client.submit({"run": [sys.executable, str(script)], **fields})[0]
    manager.wait(job_id, "running")
    said = eventually(lambda: manager.said(job_id) if "ports" in manager.said(job_id) else "").split()
    return job_id, int(said[1]), int(said[2])


def test_web_server_in_a_job_is_reached_from_here(shared: Manager) -> None:
    job_id, port, halves = serving(shared)
    sent = os.urandom(20_000_000)
    with forwarded(shared, job_id, f":{port}", f":{halves}") as to:
        assert to.http() == f"{os.getuid()} {job_id} 0 /page".encode()
        assert hashlib.sha256(to.http("POST", sent)).digest() == hashlib.sha256(sent).digest()
        with ThreadPoolExecutor(20) as pool:
            bodies = [os.urandom(300_000) for _ in range(20)]
            assert list(pool.map(lambda body: to.http("POST", body), bodies)) == bodies
        with socket.create_connection(("127.0.0.1", to.ports[1]), timeout=60) as half:
            half.sendall(sent[:3_000_000])
            half.shutdown(socket.SHUT_WR)  # the job still answers
            assert b"".join(iter(lambda: half.recv(100), b"")) == b"3000000 until the end"
        eventually(lambda: shared.client.get(f"/jobs/{job_id}/sessions") == [])  # none is left behind
        assert (to.errors, to.process.poll()) == ("", None)
        with socket.create_connection(("127.0.0.1", to.ports[0]), timeout=60) as old:
            old.sendall(b"GET /old HTTP/1.0\r\n\r\n")  # its answer ends with the connection, which the server closes
            assert b"".join(iter(lambda: old.recv(100), b"")).endswith(b" /old")

        to.process.send_signal(signal.SIGINT)

        assert to.process.wait(timeout=60) == 0


def test_connections_at_once_stay_open_beside_one_that_is_not_read(shared: Manager) -> None:
    job_id, port, _ = serving(shared)
    with forwarded(shared, job_id, f":{port}") as to, closing(HTTPConnection("127.0.0.1", to.ports[0])) as slow:
        slow.request("POST", "/", bytes(8_000_000))  # the answer fills all buffers on its way
        held = [HTTPConnection("127.0.0.1", to.ports[0], timeout=60) for _ in range(19)]
        for connection in held:
            connection.request("GET", "/")
            assert connection.getresponse().read()
        sessions = shared.client.get(f"/jobs/{job_id}/sessions")
        assert [each["command"] for each in sessions] == [f"port {port}"] * 20
        assert slow.getresponse().read() == bytes(8_000_000)
        for connection in held:
            connection.close()


def test_port_on_which_nothing_listens_is_said_in_one_line(shared: Manager) -> None:
    job_id = shared.submit("exec sleep 1000")
    shared.wait(job_id, "running")
    with socket.create_server(("127.0.0.1", 0)) as free:
        closed = free.getsockname()[1]
    with forwarded(shared, job_id, f":{closed}") as to:
        with pytest.raises((HTTPException, ConnectionError)):
            to.http()
        said = eventually(lambda: to.errors)

        assert said == f"rota: port {closed}: nothing listens on it in the task\n"
        assert to.process.poll() is None  # a server that starts later is reached


def test_what_can_not_be_forwarded_is_said(shared: Manager) -> None:
    job_id = shared.submit("exec sleep 1000")
    shared.wait(job_id, "running")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for args, why in (
            ([job_id, f"{port}:80"], f"can't listen on port {port} of 127.0.0.1: address already in use"),
            ([job_id, "0:80"], "'0:80' is no port"),
            ([job_id, "80:65536"], "'80:65536' is no port"),
            ([job_id, "http"], "'http' is no port"),
            ([job_id, ":80", "--rank", "7"], "there is no task 7"),
            ([job_id, ":80", "--address", "nowhere"], "'nowhere' is no IP address"),
            (["99999", ":80"], "no job"),
        ):
            ran = shared.rota("port-forward", *args)
            assert (ran.returncode != 0, ran.stdout, len(ran.stderr.splitlines())) == (True, "", 1), ran.stderr
            assert why in ran.stderr
    shared.client.act(job_id, "cancel")
    shared.wait(job_id, "cancelled")
    assert f"job {job_id} is cancelled" in shared.rota("port-forward", job_id, ":80").stderr


def test_job_that_ends_ends_its_connections_and_the_command(shared: Manager) -> None:
    job_id, port, _ = serving(shared)
    with forwarded(shared, job_id, f":{port}") as to:
        with closing(HTTPConnection("127.0.0.1", to.ports[0], timeout=60)) as kept:
            kept.request("GET", "/")
            assert kept.getresponse().read()
            shared.client.act(job_id, "cancel")
            shared.wait(job_id, "cancelled")
            assert kept.sock.recv(1) == b""
        with pytest.raises((HTTPException, ConnectionError)):
            to.http()

        assert to.process.wait(timeout=60) == 1
        assert to.errors.endswith(f"rota: job {job_id} is cancelled; only ports of running jobs are forwarded\n")


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Manager]:
    """A manager that asks for tokens."""
    made = Manager(tmp_path, "--emulate", "gpu=8/4", "--require-token").start_guarded()
    made.env["ROTA_SERVER"] = made.client.url
    yield made
    made.clean_up()


def test_revoked_token_closes_forwarded_ports(guarded: Manager) -> None:
    made = guarded.client.post("/tokens", {"name": "ada", "role": "member", "tenants": ["nlp"]})
    admin, guarded.client = guarded.client, Client(guarded.client.url, made["token"])
    job_id, port, _ = serving(guarded, tenant="nlp")
    guarded.env["ROTA_TOKEN"] = made["token"]
    with forwarded(guarded, job_id, f":{port}") as to:
        with closing(HTTPConnection("127.0.0.1", to.ports[0], timeout=60)) as kept:
            kept.request("GET", "/")
            assert kept.getresponse().read()
            admin.delete(f"/tokens/{made['id']}")

            assert kept.sock.recv(1) == b""
        assert to.process.wait(timeout=60) == 255
        assert to.errors == "rota: the token is no longer valid\n"
    guarded.client = admin
    entries = [(each["who"], each["what"], each["thing"], each["detail"]) for each in admin.audit(50)]
    assert ("ada", "session-forward", job_id, f"task 0: port {port}") in entries
