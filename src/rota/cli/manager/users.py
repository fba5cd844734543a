"""`rota users`: the file of local users, on the manager's machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from rota.cli.manager.connect import ServerOption
from rota.cli.render import Column, OutputFormat, OutputOption, emit
from rota.cli.terminal import echo
from rota.core.errors import RotaError, did_you_mean

app = typer.Typer(no_args_is_help=True, help="Add, change, list and remove local users.")
COLUMNS = (
    Column(key="name"),
    Column(key="role"),
    Column(key="tenants", show=lambda tenants: ", ".join(tenants) or "-"),
)
NameArgument = Annotated[str, typer.Argument(help="The user's name.")]
FileOption = Annotated[
    Path | None, typer.Option(help="The file; by default users.json in the manager's data folder.", metavar="FILE")
]
DataOption = Annotated[
    Path | None, typer.Option(help="The manager's data folder, as for `rota up`.", metavar="DIR", file_okay=False)
]
StdinOption = Annotated[bool, typer.Option("--password-stdin", help="Read the password from stdin, for scripts.")]


@app.command("add")
def add(
    name: NameArgument,
    role: Annotated[str, typer.Option(help="admin, maintainer, member or viewer.")] = "member",
    tenant: Annotated[list[str] | None, typer.Option(help="For which tenants, as A,B; '*' for all.")] = None,
    password_stdin: StdinOption = False,
    file: FileOption = None,
    data: DataOption = None,
) -> None:
    """Add a user; the manager accepts it at once.

    Examples:

      rota users add ada --tenant nlp

      rota users add grace --role admin --file /etc/rota/users.json
    """
    from rota.store.user_file import ROLES, LocalUser, changed_users, hash_password, is_user_name

    if not is_user_name(name):
        raise RotaError(f"{name!r} is not a user name; use letters, digits and ._@+-, and not `local` or `manager`")
    if role not in ROLES:
        raise RotaError(f"unknown role {role!r}; {did_you_mean(role, ROLES)}")
    path = _path(file, data)
    hashed = hash_password(_password(from_stdin=password_stdin))
    with changed_users(path) as users:
        if name in users:
            raise RotaError(f"user {name!r} exists in {path}; `rota users passwd` changes the password")
        tenants = tuple(part.strip() for each in tenant or () for part in each.split(","))
        users[name] = LocalUser(name=name, role=role, tenants=tenants, password=hashed)
    echo(f"added {name} ({role}) to {path}")


@app.command("passwd")
def passwd(
    name: NameArgument, password_stdin: StdinOption = False, file: FileOption = None, data: DataOption = None
) -> None:
    """Change a user's password; the user's sessions end within a second.

    Examples:

      rota users passwd ada
    """
    from dataclasses import replace

    from rota.store.user_file import changed_users, hash_password

    path = _path(file, data)
    hashed = hash_password(_password(from_stdin=password_stdin))
    with changed_users(path) as users:
        _must_exist(name, users, path)
        users[name] = replace(users[name], password=hashed)


@app.command("remove")
def remove(name: NameArgument, file: FileOption = None, data: DataOption = None) -> None:
    """Remove a user; the user's sessions end within a second.

    Examples:

      rota users remove ada
    """
    from rota.store.user_file import changed_users

    path = _path(file, data)
    with changed_users(path) as users:
        _must_exist(name, users, path)
        del users[name]


@app.command("release")
def release(name: NameArgument, server: ServerOption = None) -> None:
    """Let another account use a name, which belongs to the account that logged in with it first; for admins.

    Examples:

      rota users release ada
    """
    from urllib.parse import quote

    from rota.sdk.client import Client

    Client(server).delete(f"/identities/{quote(name, safe='')}")


@app.command("list")
def list_users(file: FileOption = None, data: DataOption = None, output: OutputOption = OutputFormat.TABLE) -> None:
    """List the users without their passwords.

    Examples:

      rota users list
    """
    from rota.store.user_file import read_users

    found = sorted(read_users(_path(file, data)).values(), key=lambda user: user.name)
    emit(
        [{"name": user.name, "role": user.role, "tenants": list(user.tenants)} for user in found],
        COLUMNS,
        output,
        nothing="no local users; add one with `rota users add NAME --tenant TENANT`",
    )


def _path(file: Path | None, data: Path | None) -> Path:
    from rota.api.identity.setup import USERS
    from rota.sdk.place import managers_data_folder

    if file is not None and data is not None:
        raise RotaError("--file and --data are given; give one of them: without --file, it is users.json in --data")
    path = file if file is not None else (data or managers_data_folder()) / USERS
    if data is not None and not data.is_dir():
        raise RotaError(f"--data: there is no folder {data}")
    if path.parent.is_dir() and not os.access(path.parent, os.W_OK):
        raise RotaError(f"{path} belongs to the manager; run this as its user, for a service with sudo")
    return path


def _password(*, from_stdin: bool) -> str:
    from rota.store.user_file import refuse_weak

    if from_stdin:
        password = sys.stdin.readline().rstrip("\n")
    else:
        password = str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))
    refuse_weak(password)
    return password


def _must_exist(name: str, users: object, path: Path) -> None:
    assert isinstance(users, dict)
    if name not in users:
        raise RotaError(f"there is no user {name!r} in {path}; {did_you_mean(name, users)}")
