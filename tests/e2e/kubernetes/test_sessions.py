"""Sessions in pods through Rota and a real API server, with a user who has nothing but the manager's address."""

from __future__ import annotations

import http.server
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import forked
from e2e.kubernetes.bed import ACCOUNT, Bed
from e2e.kubernetes.conftest import Launch
from e2e.kubernetes.replica import Replica
from e2e.kubernetes.streaming import V4, ProcessKubelet
from managers import eventually
from ports import free_port
from rota.sdk.client import Client
from terminals import UserTerminal

pytestmark = pytest.mark.slow
Json = dict[str, Any]
RBAC = "rbac.authorization.k8s.io/v1"


class Place:
    """A cluster with one node whose pods are processes, Rota on it, and a user's shell."""

    def __init__(self, bed: Bed, replica: Replica, kubelet: ProcessKubelet, folder: Path) -> None:
        self.bed, self.replica, self.kubelet, self.folder = bed, replica, kubelet, folder
        self.client = Client(replica.url)
        self.env = {**os.environ, "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}
        self.env |= {"ROTA_SERVER": replica.url, "XDG_DATA_HOME": str(folder / "data")}
        for name in ("ROTA_TOKEN", "KUBECONFIG"):
            self.env.pop(name, None)

    def rota(self, *args: str, **more: Any) -> subprocess.CompletedProcess[str]:
        return forked.run(list(args), env=self.env, **more)

    def at_terminal(self, *args: str) -> closing[UserTerminal]:
        return closing(UserTerminal(args, self.env, self.folder))

    def submitted(self, command: str, **more: Any) -> str:
        """A job that runs."""
        file = {"image": "example/none:1", "run": ["sh", "-c", command], "resources": {"gpus": 1}, "max_restarts": 0}
        file |= more
        name = self.client.submit(file)[0]
        eventually(lambda: self.client.job(name)["state"] == "running")
        return name

    def audited(self) -> list[tuple[str, str]]:
        return [(each["what"], each["thing"]) for each in self.client.get("/audit")]


def bind(bed: Bed, role: str, namespace: str = "default") -> None:
    """Give Rota's account a role in a namespace, as the guide tells administrators to."""
    bed.admin.make(
        {
            "apiVersion": RBAC,
            "kind": "RoleBinding",
            "metadata": {"name": role, "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "User", "name": ACCOUNT, "apiGroup": "rbac.authorization.k8s.io"}],
        }
    )


@pytest.fixture
def make_place(managed: Bed, launch: Launch, tmp_path: Path) -> Iterator[Callable[..., Place]]:
    made: list[ProcessKubelet] = []

    def make(*roles: str, **kubelet: Any) -> Place:
        made.append(ProcessKubelet(managed, tmp_path, **kubelet))
        made[-1].start()
        for role in roles:
            bind(managed, role)
        return Place(managed, launch(managed), made[-1], tmp_path)

    yield make
    for each in made:
        each.stop()
    for role in ("rota-sessions", "rota-submit"):
        path = f"/apis/{RBAC}/namespaces/default/rolebindings"
        if any(each["metadata"]["name"] == role for each in managed.admin.items(path)):
            managed.admin.delete(f"{path}/{role}")


@pytest.fixture
def place(make_place: Callable[..., Place]) -> Place:
    return make_place("rota-sessions", "rota-submit")


def test_shell_in_a_pod_feels_like_one_here(place: Place) -> None:
    with place.at_terminal("run", "--gpus", "1", "--image", "example/none:1", "-e", "PS1=ready> ", "--", "sh") as user:
        user.see(b"ready> ")
        user.type(b"echo a$((1+1))b; stty size\n")
        user.see(b"a2b")
        user.see(b"24 80")
        user.resize(40, 100)
        user.type(b"until [ \"$(stty size)\" = '40 100' ]; do sleep 0.05; done; echo large$((1))r\n")
        user.see(b"large1r")
        user.type(b"sh -c 'echo go$((1))ne; exec sleep 1000'\n")
        user.see(b"go1ne")
        user.type(b"\x03")
        user.see(b"ready> ")
        user.type(b"exit 9\n")

        assert user.ends() == 9
    found = next(iter(place.client.jobs(all=True, limit=1)))
    assert (found["state"], found["owner"]) == ("failed", "local")
    assert ("submit", found["id"]) in place.audited()
    assert ("session-attach", found["id"]) in place.audited()


def test_killed_manager_keeps_the_shell_and_its_user_comes_back(place: Place) -> None:
    name = place.submitted("exec sh", interactive={"tty": True}, env={"PS1": "ready> "})
    with place.at_terminal("attach", name) as user:
        user.type(b"kept=17; echo o$kept\n")
        user.see(b"o17")
        place.replica.kill()
        user.see(b"trying to come back")
        user.type(b"echo typed-meanwhile-$kept\n")
        place.replica._options = [*place.replica._options, "--port", place.replica.url.rpartition(":")[2]]
        place.replica.start()
        user.see(b"typed-meanwhile-17")
        user.type(b"\n~.")
        user.see(b"goes on; come back with `rota attach")
        assert user.ends() == 0
    with place.at_terminal("attach", name) as user:
        user.see(b"typed-meanwhile-17")  # the latest output is shown again
        user.type(b"echo still-$kept; exit 5\n")
        user.see(b"still-17")
        assert user.ends() == 5


def test_terminal_of_a_task_that_starts_again_is_followed(place: Place) -> None:
    mark = place.folder / "second"
    name = place.submitted(
        f"if [ -e {mark} ]; then read word; echo second got $word; exit 0; fi; touch {mark}; read word; exit 1",
        interactive={"tty": True},
        max_restarts=3,
    )
    with place.at_terminal("attach", name) as user:
        user.type(b"one\n")
        user.see(b"starts again")
        user.type(b"two\n")
        user.see(b"second got two")
        assert user.ends() == 0


def test_input_and_outputs_are_pipes_without_a_terminal(place: Place) -> None:
    name = place.submitted("sleep 1000")
    sent = os.urandom(1_000_000)
    with forked.popen(
        ["exec", name, "--", "sh", "-c", "cat; echo problem >&2; exit 4"],
        env=place.env,
        cwd=place.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        out, err = process.communicate(sent, timeout=120)

    assert (err, process.returncode) == (b"problem\n", 4)
    assert out == sent
    assert ("session-exec", name) in place.audited()


def test_rank_names_the_pod_of_the_task(place: Place) -> None:
    name = place.submitted("sleep 1000", workers=2)

    for rank in ("0", "1"):
        ran = place.rota("exec", name, "--rank", rank, "--", "sh", "-c", "echo $IN_POD")
        assert (ran.stdout, ran.returncode) == ("yes\n", 0), ran.stderr
    asked = [path.split("/")[3] for path in place.kubelet.opened if path.startswith("/exec/")]
    assert len(set(asked)) == 2
    missing = place.rota("exec", name, "--rank", "2", "--", "true")
    assert (missing.returncode, missing.stderr) == (1, f"rota: task 2 of job {name} has no pod that runs\n")


def test_what_cannot_be_run_is_told_in_the_nodes_words(place: Place) -> None:
    name = place.submitted("sleep 1000")

    ran = place.rota("exec", name, "--", "/no/such/program")

    assert ran.returncode == 1
    assert "error executing command in container" in ran.stderr
    assert "no terminal; follow it with" in place.rota("attach", name).stderr
    assert "rota exec" in place.rota("ssh-config", name).stderr


def test_older_kubernetes_says_that_it_can_not_end_an_input(make_place: Callable[..., Place]) -> None:
    place = make_place("rota-sessions", "rota-submit", protocols=(V4,))
    name = place.submitted("sleep 1000")

    ran = place.rota("exec", name, "--", "sh", "-c", "read line; sleep 3; echo got $line", input="word\n")

    assert (ran.stdout, ran.returncode) == ("got word\n", 0)
    assert "can't end the input of a command" in ran.stderr


def test_port_of_a_pod_is_reached_from_here(place: Place) -> None:
    name = place.submitted("sleep 1000")
    with closing(_server(place.folder)) as server, closing(_forwarded(place, name, server.port)) as local:
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", local.port)) as connection:
                connection.sendall(b"GET /large HTTP/1.0\r\n\r\n")
                received = b"".join(iter(lambda: connection.recv(65536), b""))
            assert received.endswith(b"z" * 300_000)
    nobody = free_port()
    with closing(_forwarded(place, name, nobody)) as local:
        with socket.create_connection(("127.0.0.1", local.port)) as connection:
            assert connection.recv(1) == b""
        local.see("error forwarding port")
    assert ("session-forward", name) in place.audited()


def test_only_those_with_the_right_get_in(place: Place) -> None:
    name = place.submitted("sleep 1000")
    tokens = {}
    for who, role, tenant in (
        ("eve", "member", "default"),
        ("mia", "maintainer", "default"),
        ("far", "maintainer", "other"),
    ):
        made = place.client.post("/tokens", {"name": who, "role": role, "tenants": [tenant]})
        tokens[who] = made["token"]

    def run_as(who: str) -> subprocess.CompletedProcess[str]:
        env = {**place.env, "ROTA_TOKEN": tokens[who]}
        return forked.run(["exec", name, "--", "echo", "in"], env=env)

    assert run_as("mia").stdout == "in\n"
    assert "belongs to 'local'" in run_as("eve").stderr
    assert run_as("far").returncode == 2
    assert sum("exec" in path for path in place.kubelet.opened) == 1


def test_without_a_binding_nothing_is_possible_and_the_way_out_is_named(make_place: Callable[..., Place]) -> None:
    place = make_place("rota-submit")
    name = place.submitted("sleep 1000")

    ran = place.rota("exec", name, "--", "true")

    assert ran.returncode == 1
    assert "rota-sessions" in ran.stderr
    place.bed.admin.delete(f"/apis/{RBAC}/namespaces/default/rolebindings/rota-submit")
    refused = eventually(lambda: _refused(place))
    assert "rota-submit" in refused
    folder = place.rota("run", "--image", "x", "--volume", "/etc:/etc", "--", "true")
    assert "is a folder of the node" in folder.stderr


def _refused(place: Place) -> str:
    ran = place.rota("run", "--image", "example/none:1", "--detach", "--", "true")
    return ran.stderr if ran.returncode == 2 else ""


class _server:  # noqa: N801 - a context, used once
    """A web server in this machine, as one in the pod."""

    def __init__(self, folder: Path) -> None:
        (folder / "www").mkdir()
        (folder / "www" / "large").write_bytes(b"z" * 300_000)
        handler = lambda *given: http.server.SimpleHTTPRequestHandler(*given, directory=str(folder / "www"))  # noqa: E731
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _forwarded:  # noqa: N801 - a context
    """`rota port-forward` on a free port."""

    def __init__(self, place: Place, name: str, remote: int) -> None:
        self.port = free_port()
        self._log = place.folder / f"forward-{remote}.log"
        with self._log.open("wb") as log:
            words = ["port-forward", name, f"{self.port}:{remote}"]
            self._process = forked.popen(words, env=place.env, stdout=log, stderr=log)
        self.see("Forwarding from")

    def see(self, text: str) -> None:
        eventually(lambda: text in self._log.read_text())

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
