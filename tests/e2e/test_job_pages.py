"""Web servers in jobs through the manager: streams, sockets, many at once, and what fails, said in one line."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

from managers import Manager, eventually

pytestmark = pytest.mark.slow
SERVER = Path(__file__).with_name("page_server.py")


@pytest.fixture
def page(shared: Manager) -> tuple[Manager, str, int]:
    """A job with a web server: its manager, id and port."""
    job_id = shared.client.submit({"run": [sys.executable, str(SERVER)]})[0]
    shared.wait(job_id, "running")
    said = eventually(lambda: re.findall(r"port (\d+)", shared.said(job_id)))
    return shared, job_id, int(said[0])


def opened(manager: Manager) -> HTTPConnection:
    place = urlsplit(manager.client.url)
    return HTTPConnection(place.hostname or "", place.port, timeout=120)


def ask(
    manager: Manager, path: str, method: str = "GET", body: Any = None, **headers: str
) -> tuple[int, bytes, dict[str, str]]:
    with closing(opened(manager)) as connection:
        connection.request(method, path, body, {"Rota-Direct": "1", **headers})
        answer = connection.getresponse()
        return answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()}


def visit(manager: Manager, path: str) -> dict[str, str]:
    """Open a page as a browser does; return the headers of further requests to it."""
    with closing(opened(manager)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
    place = urlsplit(answer.headers["Location"])
    with closing(opened(manager)) as connection:
        connection.request("GET", f"{place.path}?{place.query}", headers={"Host": place.netloc})
        arrived = connection.getresponse()
        arrived.read()
    return {"Host": place.netloc, "Cookie": arrived.headers["Set-Cookie"].partition(";")[0]}


def test_requests_are_carried_both_ways_and_streamed(page: tuple[Manager, str, int]) -> None:
    manager, job_id, port = page
    here = f"/proxy/{job_id}/{port}"
    status, told, _ = ask(manager, f"{here}/a%20b//c?q=%2F&r")
    assert (status, json.loads(told)["path"]) == (200, "/a%20b//c?q=%2F&r")
    assert ask(manager, f"{here}/x", "HEAD")[:2] == (200, b"")
    assert json.loads(ask(manager, f"{here}/x", "DELETE")[1])["method"] == "DELETE"
    assert {each["name"]: each["path"] for each in manager.client.get(f"/jobs/{job_id}/services")} == {
        "other": f"/proxy/{job_id}/other/",
        "page": f"/proxy/{job_id}/page/",
    }
    for service in ("page", "other"):
        assert json.loads(ask(manager, f"/proxy/{job_id}/{service}/y")[1])["path"] == "/y"

    host = visit(manager, f"{here}/")
    sent = os.urandom(20_000_000)
    status, back, told_of = ask(manager, "/digest", "POST", sent, **host)
    assert (status, told_of["x-digest"], back == sent) == (200, hashlib.sha256(sent).hexdigest(), True)
    pieces = [os.urandom(100_000) for _ in range(20)]
    assert ask(manager, "/digest", "POST", iter(pieces), **host)[1] == b"".join(pieces)  # of unknown length
    with ThreadPoolExecutor(20) as pool:
        bodies = [os.urandom(100_000) for _ in range(40)]
        assert list(pool.map(lambda body: ask(manager, "/digest", "POST", body, **host)[1], bodies)) == bodies
    with closing(opened(manager)) as endless:
        endless.request("GET", "/endless", headers=host)
        assert endless.getresponse().read1(100).startswith(b"data: tick")  # at once, not at its end
    forwards = [each["command"] for each in manager.client.get(f"/jobs/{job_id}/sessions")]
    assert 0 < len(forwards) <= 40  # connections are used again
    eventually(lambda: len(manager.client.get(f"/jobs/{job_id}/sessions")) <= 16)


def test_answer_flows_while_the_request_does(page: tuple[Manager, str, int]) -> None:
    manager, job_id, port = page
    host = visit(manager, f"/proxy/{job_id}/{port}/")
    sent = os.urandom(8_000_000)  # more than all buffers on the way hold
    with closing(opened(manager)) as connection:
        connection.putrequest("POST", "/echo", skip_host=True)
        for name, value in {**host, "Content-Length": str(len(sent))}.items():
            connection.putheader(name, value)
        connection.endheaders()
        sending = threading.Thread(target=connection.send, args=(sent,), daemon=True)
        sending.start()
        assert connection.sock is not None
        answer = HTTPResponse(connection.sock, method="POST")
        answer.begin()
        assert answer.read() == sent
        sending.join()


def socket_to(
    manager: Manager, headers: dict[str, str], path: str = "/socket", **more: Any
) -> AbstractContextManager[ClientConnection]:
    place = urlsplit(manager.client.url)
    made = socket.create_connection((place.hostname or "", place.port or 0))
    opened_socket: AbstractContextManager[ClientConnection] = connect(
        f"ws://{headers['Host']}{path}",
        sock=made,
        origin=Origin(f"http://{headers['Host']}"),
        additional_headers={"Cookie": headers["Cookie"]},
        open_timeout=60,
        **more,
    )
    return opened_socket


def test_sockets_carry_messages_of_any_kind(page: tuple[Manager, str, int]) -> None:
    manager, job_id, port = page
    host = visit(manager, f"/proxy/{job_id}/{port}/")
    with socket_to(manager, host, subprotocols=[Subprotocol("first"), Subprotocol("second")]) as opened_socket:
        assert opened_socket.subprotocol == "second"
        large = os.urandom(900_000)
        for message in ("text", "ü" * 1000, b"\0\xff", b"", large):
            opened_socket.send(message)
            assert opened_socket.recv(timeout=60) == message
        for number in range(500):
            opened_socket.send(str(number))
        assert [opened_socket.recv(timeout=60) for _ in range(500)] == [str(n) for n in range(500)]
        opened_socket.send("close")
        with pytest.raises(ConnectionClosed) as closed:
            opened_socket.recv(timeout=60)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4000

    with ExitStack() as stack:
        many = [stack.enter_context(socket_to(manager, host)) for _ in range(20)]
        for each in many:
            each.send("x")
        assert [each.recv(timeout=60) for each in many] == ["x"] * 20
        manager.client.act(job_id, "cancel")
        for each in many:
            with pytest.raises(ConnectionClosed):
                each.recv(timeout=60)


def test_socket_that_the_job_refuses_or_another_site_opens_is_refused(page: tuple[Manager, str, int]) -> None:
    manager, job_id, port = page
    host = visit(manager, f"/proxy/{job_id}/{port}/")
    with pytest.raises(InvalidStatus) as refused, socket_to(manager, host, "/none"):
        pass
    answer = refused.value.response
    assert (answer.status_code, b"refused the socket with 200" in (answer.body or b"")) == (502, True)
    with pytest.raises(InvalidStatus) as refused, socket_to(manager, {**host, "Cookie": "rota_visit=none"}):
        pass
    assert refused.value.response.status_code == 401


def test_what_can_not_be_reached_is_said_in_one_line(page: tuple[Manager, str, int]) -> None:
    manager, job_id, _ = page
    with socket.create_server(("127.0.0.1", 0)) as free:
        closed = free.getsockname()[1]
    for path, status, why in (
        (f"/proxy/{job_id}/{closed}/", 502, f"port {closed}: nothing listens on it in the task"),
        (f"/proxy/{job_id}/none/", 502, "service none: the job has none of this name now"),
        (f"/proxy/{job_id}/7:{closed}/", 404, "there is no task 7"),
        (f"/proxy/{job_id}/0/", 404, "port: '0' is neither a port from 1 to 65535 nor the name of a service"),
        (f"/proxy/{job_id}/../x/", 404, "port: '..' is neither"),
        ("/proxy/987654/80/", 404, "there is no job '987654'"),
    ):
        answered, body, _ = ask(manager, path)
        assert (answered, why in json.loads(body)["error"]) == (status, True), (path, body)
    manager.client.act(job_id, "cancel")
    manager.wait(job_id, "cancelled")
    answered, body, _ = ask(manager, f"/proxy/{job_id}/80/")
    assert (answered, json.loads(body)["error"]) == (409, f"job {job_id} is cancelled; only running jobs have pages")


def test_server_that_talks_no_http_or_stops_in_between_is_told(shared: Manager) -> None:
    script = shared.folder / "odd.py"
    script.write_text(
        "import socket\n"
        "server = socket.create_server(('127.0.0.1', 0)); print('port', server.getsockname()[1], flush=True)\n"
        "while True:\n"
        "    c, _ = server.accept(); head = c.recv(65536)\n"
        "    if b' /odd ' in head: c.sendall(b'no http at all\\r\\n\\r\\n')\n"
        "    if b' /short ' in head: c.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 100\\r\\n\\r\\nhalf')\n"
        "    if b' /old ' in head: c.sendall(b'HTTP/1.0 200 OK\\r\\n\\r\\nto the end')\n"
        "    c.close()\n"
    )
    job_id = shared.client.submit({"run": [sys.executable, str(script)]})[0]
    port = eventually(lambda: re.findall(r"port (\d+)", shared.said(job_id)))[0]
    here = f"/proxy/{job_id}/{port}"
    assert ask(shared, f"{here}/old")[:2] == (200, b"to the end")
    for path in ("odd", "nothing"):
        status, body, _ = ask(shared, f"{here}/{path}")
        assert (status, f"port {port} of job {job_id}" in json.loads(body)["error"]) == (502, True), body
    with pytest.raises(Exception, match=r"IncompleteRead|closed|reset"):
        ask(shared, f"{here}/short")
    assert ask(shared, f"{here}/old")[:2] == (200, b"to the end")
