"""Sessions in tasks: colleagues, other sites and other tenants, hostile clients, and terminals that outlive a right."""

from __future__ import annotations

import json
import os
import socket
import stat
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attacks.lab import Lab
from attacks.session_calls import read_log
from managers import eventually
from rota.drivers.local.task_runner.interactive.frames import MOST_PAYLOAD, FrameFault, FrameReader, pack
from rota.drivers.local.task_runner.interactive.opening import CannotOpen, open_order
from rota.sdk.client import Client, Refused
from rota.sdk.websocket import ClientSocket, HandshakeRefused, SocketClosed

attack = pytest.mark.attack
RIGHTS = "the right to change the job: its owner, maintainers of its tenant, administrators"


def client(lab: Lab, name: str) -> Client:
    return Client(lab.manager.client.url, lab.secrets[name])


def open_message(**order: object) -> bytes:
    return b"O" + json.dumps({"argv": ["sh", "-c", "echo in; exec sleep 100"], **order}).encode()


def heard(session: ClientSocket, kind: bytes) -> bytes:
    """The payload of the next message of a kind."""
    while True:
        for message in session.receive():
            if message[:1] == kind:
                return message[1:]


@attack(
    "opens a shell in a colleague's job, also by SSH, watches its terminal, lists its sessions, or reaches its ports "
    "by `rota port-forward`",
    stopped_by=RIGHTS,
)
def test_colleagues_and_others_open_no_session(lab: Lab) -> None:
    job_id = lab.running("ada", interactive={"tty": True})
    for name, status in (("bob", 403), ("vic", 403), ("eve", 404)):
        for mode in ("exec", "attach", "forward", "ssh"):
            with pytest.raises(Refused) as refused:
                client(lab, name).session(job_id, mode=mode, port=8000)
            assert refused.value.status == status
        assert lab.ask(name, "GET", f"/jobs/{job_id}/sessions")[0] == status
    with closing(_opened(lab, "mia", job_id)) as session:
        heard(session, b"o")
    assert ("mia", "session-exec") in [(each["who"], each["what"]) for each in lab.manager.client.audit(20)]


def _opened(lab: Lab, name: str, job_id: str, **order: object) -> ClientSocket:
    session = client(lab, name).session(job_id, mode="exec")
    session.send(open_message(**order))
    return session


@attack(
    "runs a command beside a colleague's task and calls it the return to a session, so that it is not recorded",
    stopped_by="what the first message orders is recorded, each time",
)
def test_every_command_and_every_return_is_recorded(lab: Lab) -> None:
    job_id = lab.running("ada")
    with closing(client(lab, "mia").session(job_id, mode="exec", session="none")) as session:
        session.send(open_message())
        heard(session, b"o")
        (opened,) = lab.ask("mia", "GET", f"/jobs/{job_id}/sessions")[1]
    with closing(_opened(lab, "mia", job_id, session=opened["session"])) as session:
        heard(session, b"o")

    said = [(each["what"], each["detail"]) for each in lab.manager.client.audit(20) if each["who"] == "mia"]
    assert ("session-exec", "task 0: sh -c echo in; exec sleep 100") in said
    assert ("session-attach", f"task 0: session {opened['session']}") in said


@attack("opens the socket of a session from a page of another site", stopped_by="the check of Origin")
@attack(
    "opens the socket of a session without a token, or with one that is not valid", stopped_by="the token comes first"
)
def test_sockets_need_a_token_and_no_other_site(lab: Lab) -> None:
    job_id = lab.running("ada")
    place = urlsplit(lab.manager.client.url)
    token = {"Authorization": f"Bearer {lab.secrets['ada']}"}
    for headers in ({}, {"Authorization": "Bearer rota_none"}, {**token, "Origin": "https://elsewhere.example"}):
        connection = socket.create_connection((place.hostname or "", place.port or 0))
        with connection, pytest.raises((HandshakeRefused, SocketClosed)):
            ClientSocket(connection, place.netloc, f"/api/v1/jobs/{job_id}/session?mode=exec", headers)
    assert lab.ask("ada", "GET", f"/jobs/{job_id}/sessions")[1] == []


@attack("keeps a shell beside a task after its token was revoked", stopped_by="the session ends within a second")
def test_shell_ends_with_its_token(lab: Lab) -> None:
    made = lab.ask("admin", "POST", "/tokens", {"name": "ada", "role": "member", "tenants": ["nlp"]})[1]
    job_id = lab.running("ada", run="exec sleep 1000")
    with closing(Client(lab.manager.client.url, made["token"]).session(job_id, mode="exec")) as session:
        session.send(open_message())
        heard(session, b"o")
        lab.ask("admin", "DELETE", f"/tokens/{made['id']}")

        with pytest.raises(SocketClosed) as closed:
            heard(session, b"-")

    assert closed.value.code == 4401
    eventually(lambda: _has_task_only(lab, job_id))


def _has_task_only(lab: Lab, job_id: str) -> bool:
    """Whether no process of a job but its task is left."""
    found = 0
    for pid in lab.manager.task_processes():
        with suppress(OSError):
            found += f"ROTA_JOB_ID={job_id}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    return found <= 1


@attack(
    "sends a session what is no order: no JSON, wrong types, sizes and offsets without end, a name that climbs",
    stopped_by="orders are checked one by one; the session host lives on",
)
@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"O",
        b"O[]",
        b"Onull",
        b'O{"argv": 7}',
        b'O{"argv": ["a\\u0000b"]}',
        b'O{"argv": [""]}',
        b'O{"argv": ["true"], "tty": true, "size": [1e300, -1]}',
        b'O{"argv": ["true"], "since": -1}',
        b'O{"session": "../../1", "mode": "attach"}',
        b'O{"mode": "forward", "argv": null, "session": {"a": 1}}',
        b'O{"argv": ["\\ud800"]}',
        b'O{"argv": ["true"], "since": 1e400}',
        b"O" + b"[" * 50_000,
        b'O{"argv": ["' + b"x" * MOST_PAYLOAD + b'"]}',
        b"i" + b"x" * 1000,
    ],
    ids=[
        "nothing",
        "no order",
        "list",
        "null",
        "argv",
        "NUL",
        "empty word",
        "size",
        "offset",
        "climbs",
        "mode",
        "half a character",
        "endless offset",
        "nested",
        "too long",
        "early",
    ],
)
def test_orders_that_are_none_end_no_task(lab: Lab, sent: bytes) -> None:
    job_id = lab.running("ada")
    session = client(lab, "ada").session(job_id, mode="exec", task=0)
    session.send(sent)
    if sent:
        assert heard(session, b"f")
    else:
        session.send(b"w[0]")
    session.close()

    with closing(_opened(lab, "ada", job_id)) as beside:
        assert heard(beside, b"o") == b"in\n"
    assert lab.job(job_id)["state"] == "running"
    assert lab.ask("ada", "GET", f"/jobs/{job_id}/sessions")[0] == 200
    assert "Traceback" not in read_log(lab.manager)


@attack(
    "fills the log by sockets that are refused, as any stranger can open them",
    stopped_by="a refusal is no error of the log",
)
def test_refused_sockets_are_not_logged_as_errors(lab: Lab) -> None:
    for _ in range(3):
        with pytest.raises(Refused):
            Client(lab.manager.client.url, "no token").session("1", mode="exec")
    lab.ask("ada", "GET", "/jobs")

    assert "handshake" not in read_log(lab.manager)


@attack(
    "asks for the task 0/../../1, or a mode that is none", stopped_by="the request is validated before it is accepted"
)
def test_query_that_climbs_is_refused(lab: Lab) -> None:
    job_id = lab.running("ada")
    for asked in ({"task": "0/../../1"}, {"task": "-1"}, {"task": "9" * 40}, {"task": "²"}, {"mode": "root"}):
        with pytest.raises(Refused) as refused:
            client(lab, "ada").session(job_id, **{"mode": "exec", **asked})
        assert refused.value.status == 422


@attack(
    "forwards a port that is out of range, or is no number",
    stopped_by="the request is validated before it is accepted, and by the session host again",
)
@pytest.mark.parametrize("port", ["0", "65536", "-1", "99999999", "٣", "80;8000", "1e3", "", None])
def test_port_out_of_range_is_refused(lab: Lab, port: str | None) -> None:
    job_id = lab.running("ada")
    with pytest.raises(Refused, match=r"port: .* is not from 1 to 65535") as refused:
        client(lab, "ada").session(job_id, mode="forward", **({} if port is None else {"port": port}))

    assert refused.value.status == 422
    assert lab.ask("ada", "GET", f"/jobs/{job_id}/sessions")[1] == []


@given(st.one_of(st.none(), st.booleans(), st.text(max_size=5), st.integers(max_value=0), st.integers(min_value=65536)))
def test_session_host_checks_ports_too(port: object) -> None:
    with pytest.raises(CannotOpen, match="from 1 to 65535"):
        open_order(json.dumps({"mode": "forward", "port": port}).encode())


@attack(
    "asks by its first message for another port than the one that was checked and recorded",
    stopped_by="the manager sends the session host an order of its own",
)
def test_first_message_changes_no_port(lab: Lab) -> None:
    job_id = lab.running("ada")
    with socket.create_server(("127.0.0.1", 0)) as listens:
        session = client(lab, "ada").session(job_id, mode="forward", port=1)
        with closing(session):
            session.send(b"O" + json.dumps({"mode": "exec", "port": listens.getsockname()[1]}).encode())

            assert heard(session, b"r") == b"port 1: nothing listens on it in the task"
        listens.setblocking(False)
        with pytest.raises(BlockingIOError):
            listens.accept()
    assert ("session-forward", "task 0: port 1") in [(e["what"], e["detail"]) for e in lab.manager.client.audit(20)]


@attack(
    "connects to the session host of another user's task", stopped_by="the socket is the manager's alone, by its mode"
)
def test_socket_of_a_session_host_is_the_manager_s(lab: Lab) -> None:
    job_id = lab.running("ada", interactive={"tty": False})
    found = eventually(lambda: list(lab.manager.home.glob(f"runs/{job_id}/*/0/sessions.sock")))
    about = os.lstat(found[0])
    assert (stat.S_IMODE(about.st_mode), about.st_uid) == (0o600, os.geteuid())


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=1), st.binary(max_size=300)), max_size=8), st.data())
def test_frames_survive_any_cut(frames: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    stream = b"".join(pack(kind, payload) for kind, payload in frames)
    reader, found, at = FrameReader(), [], 0
    while at < len(stream):
        size = data.draw(st.integers(1, len(stream) - at))
        found += reader.feed(stream[at : at + size])
        at += size

    assert found == frames


@given(st.integers(MOST_PAYLOAD + 1, (1 << 32) - 1))
def test_frame_without_end_is_refused(size: int) -> None:
    with pytest.raises(FrameFault):
        FrameReader().feed(b"i" + size.to_bytes(4, "big"))
