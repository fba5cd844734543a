"""Commands beside a task of another Unix user than the manager: no more rights than the task itself"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from attacks.session_calls import HttpAnswer, ask
from managers import eventually
from rota.sdk.websocket import ClientSocket
from strangers import Shared, Stranger

attack = pytest.mark.attack
PROBE = (
    "id -u; id -G; readlink /proc/self/ns/mnt; readlink /proc/self/ns/ipc; cat /proc/self/cgroup; "
    "grep -E 'NoNewPrivs|Seccomp:|CapEff' /proc/self/status; ls /tmp; env | grep -c ROTA_TASK_TOKEN; umask"
)
END = "end-of-probe"


@attack(
    "gets another user, other mounts, no limits or more privileges by a command beside its task",
    stopped_by="the command joins the cgroup, mounts, user and privileges of the task",
)
def test_command_beside_a_task_has_what_the_task_has(calm: Shared) -> None:
    job_id = calm.attacker.submit(f"touch /tmp/mine; {PROBE}; echo {END}; exec sleep 1000")
    said = eventually(lambda: _said(calm, job_id))

    with closing(calm.attacker.client.session(job_id, mode="exec")) as session:
        session.send(b"O" + json.dumps({"argv": ["/bin/sh", "-c", f"{PROBE}; echo {END}"]}).encode())
        beside = _heard(session)

    assert beside == said
    assert str(calm.attacker.uid) in beside.splitlines()[0]
    assert "mine" in beside.splitlines()


@attack(
    "reaches a port with the manager's rights by `rota port-forward`",
    stopped_by="a process beside the task connects, with the user and privileges of the task",
)
def test_forwarded_port_is_reached_as_the_task_s_user(calm: Shared) -> None:
    job_id = calm.attacker.submit("exec sleep 1000")
    eventually(lambda: calm.attacker.client.job(job_id)["state"] == "running")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        port = server.getsockname()[1]
        with closing(calm.attacker.client.session(job_id, mode="forward", port=port)) as session:
            session.send(b"O{}")
            connection, (_, peer) = server.accept()
            with connection:
                connection.sendall(b"hello")
                while b"ohello" not in session.receive():
                    pass
                assert _user_of(peer, port) == calm.attacker.uid
                assert _privileges_of_forwards(calm.attacker.uid) == {("0000000000000000", "1")}


def _user_of(local: int, remote: int) -> int:
    """The user of a connection of this machine, by its ports."""
    for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        _, here, there, _, _, _, _, uid, *_ = line.split()
        if (int(here[-4:], 16), int(there[-4:], 16)) == (local, remote):
            return int(uid)
    raise AssertionError("there is no such connection")


def _privileges_of_forwards(uid: int) -> set[tuple[str, str]]:
    """The capabilities of a user's processes that hold a socket, and whether they can gain none."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_uid not in (uid, 0) or not any(
                os.readlink(each).startswith("socket:") for each in (folder / "fd").iterdir()
            ):
                continue
            said = dict(line.split(":\t") for line in (folder / "status").read_text().splitlines() if ":\t" in line)
            if said["Uid"].split() == [str(uid)] * 4:
                found.add((said["CapEff"], said["NoNewPrivs"]))
    return found


def _said(calm: Shared, job_id: str) -> str:
    said = b"".join(calm.attacker.client.logs(job_id)).decode()
    return said if END in said else ""


def _heard(session: ClientSocket) -> str:
    output = b""
    while True:
        for message in session.receive():
            if message[:1] == b"x":
                return output.decode()
            assert message[:1] in (b"O", b"o"), message
            output += message[1:] if message[:1] == b"o" else b""


@attack(
    "connects to the session host of its own or of another user's task", stopped_by="mode 0600, and the peer's user"
)
def test_sockets_of_session_hosts_are_the_manager_s(calm: Shared) -> None:
    job_id = calm.victim.submit("exec sleep 1000", interactive={"tty": False})
    found = eventually(lambda: list(calm.manager.home.glob(f"runs/{job_id}/*/0/sessions.sock")))
    script = f"import socket; socket.socket(socket.AF_UNIX).connect({str(found[0])!r})"

    said = calm.run(["python3", "-c", script])

    assert "PermissionError" in said or "FileNotFoundError" in said, said
    assert subprocess.run(["python3", "-c", script], capture_output=True, check=False).returncode == 0


ANSWERS = """
import socket
server = socket.create_server(("{host}", 0), family=socket.{family})
print("port", server.getsockname()[1], flush=True)
while True:
    peer, _ = server.accept()
    peer.recv(65536)
    peer.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 4\\r\\nConnection: close\\r\\n\\r\\nhere")
    peer.close()
"""


@attack(
    "listens on the port of another user's job, to answer in its name at its origin",
    stopped_by="a page of a job comes from sockets of the job's own user",
)
@pytest.mark.parametrize(("host", "family"), [("127.0.0.1", "AF_INET"), ("0.0.0.0", "AF_INET"), ("::", "AF_INET6")])
def test_page_of_a_job_is_never_what_another_user_serves(calm: Shared, host: str, family: str) -> None:
    serving = calm.victim.submit(["/usr/bin/env", "python3", "-c", ANSWERS.format(host=host, family=family)])
    beside = calm.attacker.submit("exec sleep 1000")
    port = eventually(lambda: re.findall(r"port (\d+)", calm.manager.said(serving)))[0]
    eventually(lambda: calm.attacker.client.job(beside)["state"] == "running")

    def page(stranger: Stranger, job_id: str) -> HttpAnswer:
        return ask(stranger.client.url, "GET", f"/proxy/{job_id}/{port}/", None, **stranger.client._headers())

    assert page(calm.victim, serving).text == "here"
    answer = page(calm.attacker, beside)
    assert (answer.status, "belongs to another user" in answer.text) == (502, True), answer.text


BESIDE = """
import socket, time
places = (("::", socket.AF_INET6), ("127.0.0.2", socket.AF_INET))
ones = [socket.create_server((host, PORT), family=family) for host, family in places]
print("beside", flush=True)
time.sleep(1000)
"""


@attack(
    "listens on all other addresses with the port of another user's page, to have it refused",
    stopped_by="only what answers at loopback counts",
)
def test_page_of_a_job_is_not_refused_for_what_listens_beside_it(calm: Shared) -> None:
    job_id = calm.victim.submit(["/usr/bin/env", "python3", "-c", ANSWERS.format(host="127.0.0.1", family="AF_INET")])
    port = eventually(lambda: re.findall(r"port (\d+)", calm.manager.said(job_id)))[0]
    beside = BESIDE.replace("PORT", port)
    other = calm.attacker.submit(["/usr/bin/env", "python3", "-c", beside])
    eventually(lambda: "beside" in calm.manager.said(other))

    url, headers = calm.victim.client.url, calm.victim.client._headers()
    assert ask(url, "GET", f"/proxy/{job_id}/{port}/", None, **headers).text == "here"
