"""`rota ssh-config` and `rota ssh-proxy`: OpenSSH's own commands, and editors, in jobs."""

from __future__ import annotations

import contextlib
import getpass
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from rota.cli.completion import job_ids
from rota.cli.interactive.carried import Carried, Revoked, StandardStreams
from rota.cli.interactive.run import manager_for
from rota.cli.interactive.ssh_files import (
    MOST_HELLO,
    config_text,
    host_of,
    is_included,
    know_host,
    own_key,
    public_key,
    read_hello,
    task_of,
    write_config,
)
from rota.cli.manager.connect import ServerOption
from rota.cli.terminal import echo
from rota.core.errors import RotaError
from rota.drivers.local.task_runner.interactive.frames import ERROR_OUTPUT, EXIT, FAILURE, NOTE, OPEN, OUTPUT
from rota.sdk.client import Client
from rota.sdk.place import state_folder
from rota.sdk.websocket import ClientSocket, SocketClosed

LOST = 255
KeyOption = Annotated[
    Path | None, typer.Option(help="Your key, in place of one made for this.", metavar="FILE", dir_okay=False)
]


def ssh_config(
    jobs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JOB...]", help="Running jobs to name, which editors then list.", autocompletion=job_ids
        ),
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Into ~/.ssh/rota_config instead of the output.")] = False,
    key: KeyOption = None,
    user: Annotated[str | None, typer.Option(help="The Unix user of jobs; by default that of a running one.")] = None,
    server: ServerOption = None,
) -> None:
    """Print a configuration of OpenSSH with which `ssh rota-JOB` reaches running jobs.

    So do scp, sftp, rsync, ssh -L, and editors that work over SSH. A job needs an sshd where it runs.

    Examples:

      rota ssh-config --write

      rota ssh-config 17 18 --write

      rota ssh-config --key ~/.ssh/id_ed25519
    """
    client = manager_for(server)
    folder = state_folder() / "ssh"
    key = own_key(folder) if key is None else key.expanduser().absolute()
    public_key(key)
    users = {host_of(job_id): _user_of(client, job_id) for job_id in jobs or []}
    text = config_text(
        server=client.url,
        key=key,
        known_hosts=folder / "known_hosts",
        user=user or next(iter(users.values()), None) or _usual_user(client),
        users=users,
    )
    if not write:
        echo(text, nl=False, lines=True)
        return
    file = write_config(text)
    echo(f"{file} written; `ssh rota-JOB` reaches running jobs")
    if not is_included():
        echo("rota: add this as the first line of ~/.ssh/config: Include ~/.ssh/rota_config", err=True)


def ssh_proxy(
    host: Annotated[str, typer.Argument(metavar="HOST", help="rota-JOB, or rota-JOB.RANK for another task than 0.")],
    key: KeyOption = None,
    known_hosts: Annotated[
        Path | None, typer.Option(help="Where the keys of hosts are noted for ssh.", metavar="FILE", dir_okay=False)
    ] = None,
    user: Annotated[str | None, typer.Option(help="As which Unix user ssh logs in.")] = None,
    server: ServerOption = None,
) -> int:
    """Carry one SSH connection to a running job: the ProxyCommand in what `rota ssh-config` prints.

    Examples:

      ssh -o 'ProxyCommand=rota ssh-proxy %n' -i ~/.local/state/rota/ssh/id_ed25519 rota-17
    """
    job_id, rank = task_of(host)
    folder = state_folder() / "ssh"
    public = public_key(own_key(folder) if key is None else key)
    noted = folder / "known_hosts" if known_hosts is None else known_hosts

    def greeted(its_user: str, host_key: str) -> None:
        know_host(noted, host, host_key)
        if user is not None and user != its_user:
            again = f"`rota ssh-config {job_id}` writes that" if rank == 0 else f"try `ssh -l {its_user} {host}`"
            echo(f"rota: job {job_id} runs as {its_user!r}, not {user!r}; {again}", err=True)

    try:
        with contextlib.closing(_open(manager_for(server), job_id, rank, [public])) as session:
            why = SshCarried(StandardStreams(), session, greeted).run()
    except Revoked:
        why = "the token is no longer valid"
    except KeyboardInterrupt:
        return LOST
    if why:
        echo(f"rota: job {job_id}: {why}", err=True)
    return LOST if why else 0


def _open(client: Client, job_id: str, rank: int, keys: list[str]) -> ClientSocket:
    session = client.session(job_id, mode="ssh", task=rank)
    session.send(OPEN + json.dumps({"keys": keys}).encode())
    return session


class SshCarried(Carried):
    """An SSH connection and its session, which begins with a line that names the server."""

    def __init__(self, local: StandardStreams, session: ClientSocket, greeted: Callable[[str, str], None]) -> None:
        super().__init__(local, session)
        self._greeted = greeted
        self._hello: bytes | None = b""

    def _hear(self, kind: bytes, payload: bytes) -> None:
        if kind == ERROR_OUTPUT and self._hello is None:  # sshd's own; ssh shows it to its user
            self._passed_on += len(payload)
            echo(f"rota: {payload.decode(errors='replace').strip()}", err=True)
        elif kind == NOTE:
            echo(f"rota: {payload.decode(errors='replace')}", err=True)
        elif kind == OUTPUT and self._hello is not None:
            self._hello += payload
            line, end, rest = self._hello.partition(b"\n")
            if end or len(line) > MOST_HELLO:
                self._greeted(*read_hello(line))
                self._hello = None
                self._passed_on += len(line) + 1
                super()._hear(OUTPUT, rest)
        else:
            super()._hear(kind, payload)


def _user_of(client: Client, job_id: str) -> str:
    """Return as which user a running job serves SSH; raise a `RotaError` if it does not."""
    said, why = b"", ""
    with contextlib.closing(_open(client, job_id, 0, [])) as session:
        try:
            while True:
                for message in session.receive():
                    kind, payload = message[:1], message[1:]
                    said += payload if kind == OUTPUT else b""
                    why += payload.decode(errors="replace") if kind in (ERROR_OUTPUT, FAILURE) else ""
                    if kind in (EXIT, FAILURE):
                        raise SocketClosed
        except SocketClosed:
            if why or b"\n" not in said:
                raise RotaError(f"job {job_id}: {why or 'the connection to the manager was lost'}") from None
    return read_hello(said.partition(b"\n")[0])[0]


def _usual_user(client: Client) -> str:
    """Return the user of the newest running job that serves SSH and is ours; else the name of this shell's user."""
    me: dict[str, Any] = client.get("/whoami")
    for job in client.jobs(limit=100):
        if job["state"] == "running" and job["owner"] == me["name"]:
            with contextlib.suppress(RotaError):
                return _user_of(client, job["id"])
    return getpass.getuser()
