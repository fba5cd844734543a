"""`rota port-forward`: ports of a running job on this machine, as kubectl has it."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import select
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import typer

from rota.cli.interactive.carried import Carried, Revoked
from rota.cli.interactive.run import manager_for
from rota.cli.jobs.show import JobArgument
from rota.cli.manager.connect import ServerOption
from rota.cli.terminal import echo
from rota.core.errors import RotaError, Unavailable
from rota.drivers.local.task_runner.interactive.frames import OPEN
from rota.sdk.answers import Refused
from rota.sdk.client import Client

LOCAL = "127.0.0.1"
MOST_PORT = 65535
ENDED, LOST = 1, 255
CONFLICT = 409
BACKLOG = 128
FINAL = frozenset({"succeeded", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class PortPair:
    """A port of this machine, 0 for any that is free, and the port of the job that it leads to."""

    local: int
    remote: int


def port_forward(
    job: JobArgument,
    ports: Annotated[
        list[str], typer.Argument(metavar="PORT...", help="[LOCAL:]REMOTE; :REMOTE takes any local port that is free.")
    ],
    rank: Annotated[int, typer.Option("--rank", "--task", help="Of which task.", min=0)] = 0,
    address: Annotated[str, typer.Option(help="Where to listen: addresses separated by commas.")] = LOCAL,
    server: ServerOption = None,
) -> int:
    """Reach ports of a running job from this machine, until Ctrl-C.

    A connection is made where the task runs, to 127.0.0.1, as the task's user.

    Examples:

      rota port-forward 17 8888

      rota port-forward 17 9000:8888 :6006

      rota port-forward 17 8888 --rank 1 --address 0.0.0.0
    """
    pairs = [port_pair(each) for each in ports]
    addresses = _addresses(address)
    manager_for(server).get(f"/jobs/{job}/sessions?task={rank}")  # whether we may, and whether it runs
    with contextlib.ExitStack() as stack:
        listeners = [(stack.enter_context(_listen(host, pair)), pair) for pair in pairs for host in addresses]
        for listener, pair in listeners:
            echo(f"Forwarding from {_shown(listener)} -> {pair.remote}")
        for host in addresses:
            if not ipaddress.ip_address(host).is_loopback:
                echo(f"rota: all that reach {host} reach these ports, with your rights", err=True)
        with contextlib.suppress(KeyboardInterrupt):
            return Forwarder(lambda: manager_for(server), job, rank).run(listeners)
    return 0


def port_pair(text: str) -> PortPair:
    """Read `[LOCAL:]REMOTE`; raise a `RotaError` for what is none."""
    local, colon, remote = text.rpartition(":")
    if not colon:
        local = remote
    return PortPair(_port(local, text) if local else 0, _port(remote, text))


def _port(text: str, whole: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= MOST_PORT):
        raise RotaError(f"{whole!r} is no port; write [LOCAL:]REMOTE with ports from 1 to {MOST_PORT}")
    return int(text)


def _addresses(text: str) -> list[str]:
    found = [LOCAL if each.strip() == "localhost" else each.strip() for each in text.split(",")]
    for each in found:
        try:
            ipaddress.ip_address(each)
        except ValueError:
            raise RotaError(f"--address: {each!r} is no IP address; write e.g. 127.0.0.1 or 0.0.0.0") from None
    return found


def _listen(host: str, pair: PortPair) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, pair.local), family=family, backlog=BACKLOG)
    except OSError as error:
        why = os.strerror(error.errno).lower() if error.errno else str(error)
        raise RotaError(f"can't listen on port {pair.local} of {host}: {why}; take another with LOCAL:REMOTE") from None


def _shown(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Forwarder:
    """Ports that are forwarded: a thread for each connection."""

    def __init__(self, connect: Callable[[], Client], job_id: str, rank: int) -> None:
        self._connect = connect
        self._job_id = job_id
        self._rank = rank
        self._status: int | None = None
        self._wake, self._woken = os.pipe()

    def run(self, listeners: list[tuple[socket.socket, PortPair]]) -> int:
        """Accept connections until there is nothing more to reach; return the exit status."""
        pairs = {listener.fileno(): (listener, pair) for listener, pair in listeners}
        for listener, _ in listeners:
            listener.setblocking(False)
        while self._status is None:
            for ready in select.select([self._wake, *pairs], [], [])[0]:
                if ready == self._wake:
                    continue
                listener, pair = pairs[ready]
                with contextlib.suppress(BlockingIOError, ConnectionError):
                    local, _ = listener.accept()
                    echo(f"Handling connection for {listener.getsockname()[1]}")
                    threading.Thread(target=self._serve, args=(local, pair.remote), daemon=True).start()
        return self._status

    def _serve(self, local: socket.socket, remote: int) -> None:
        """Carry one connection to its end; say in one line what went wrong."""
        with contextlib.closing(local):
            try:
                why = self._carry(local, remote)
            except Revoked:
                self._end("the token is no longer valid", LOST)
            except Refused as error:
                if error.status != CONFLICT or self._has_ended():
                    self._end(str(error), ENDED)
                else:
                    self._say(str(error))
            except (RotaError, Unavailable) as error:
                self._say(str(error))
            else:
                if why:
                    self._say(why)

    def _carry(self, local: socket.socket, remote: int) -> str:
        session = self._connect().session(self._job_id, mode="forward", task=self._rank, port=remote)
        with contextlib.closing(session):
            session.send(OPEN + json.dumps({"port": remote}).encode())
            return Carried(local, session).run()

    def _has_ended(self) -> bool:
        with contextlib.suppress(RotaError, Unavailable):
            return self._connect().job(self._job_id)["state"] in FINAL
        return False

    def _say(self, text: str) -> None:
        echo(f"rota: {text}", err=True)

    def _end(self, text: str, status: int) -> None:
        """End the command, once."""
        if self._status is None:
            self._status = status
            self._say(text)
            os.write(self._woken, b"!")
