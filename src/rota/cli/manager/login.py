"""`rota login`, `rota logout` and `rota whoami`: sessions of users, instead of tokens."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota.cli.manager.connect import ServerOption
from rota.cli.render import Column, OutputFormat, OutputOption, emit
from rota.cli.terminal import echo
from rota.core.errors import RotaError
from rota.core.neutral_text import neutral

if TYPE_CHECKING:
    from rota.sdk.client import Client

COLUMNS = (
    Column(key="name"),
    Column(key="role"),
    Column(key="tenants", show=lambda tenants: ", ".join(tenants) or "-"),
)


def login(
    user: Annotated[str | None, typer.Option(help="Log in as this local user, with a password.")] = None,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from stdin, for scripts.")
    ] = False,
    server: ServerOption = None,
) -> None:
    """Log in to a manager: by single sign-on in a browser on any device, or as a local user.

    The session is kept in a file that only you can read, and used by all commands for this manager.

    Examples:

      rota login --server https://rota.example.org

      rota login --user ada
    """
    from rota.sdk.client import Client
    from rota.sdk.credentials import write_credentials

    client = Client(server)
    ways = client.get("/login")
    if user is not None or (ways["oidc"] is None and ways["users"]):
        opened = _by_password(client, user, from_stdin=password_stdin)
    elif ways["oidc"] is not None:
        opened = _by_device(client)
    else:
        write_credentials(client.url, None)
        needed = "an admin can create a token for you" if ways["required"] else "it needs no login"
        raise RotaError(f"{client.url} has neither local users nor single sign-on; {needed}")
    write_credentials(client.url, opened["token"])
    tenants = ", ".join(opened["tenants"]) or "none"
    echo(f"logged in to {client.url} as {neutral(opened['name'])} ({opened['role']}; tenants: {neutral(tenants)})")


def _by_password(client: Client, user: str | None, *, from_stdin: bool) -> dict[str, Any]:
    name = user if user is not None else typer.prompt("User name")
    password = sys.stdin.readline().rstrip("\n") if from_stdin else typer.prompt("Password", hide_input=True)
    from rota.sdk.credentials import read_mark, write_mark

    mark = read_mark(client.url, name)
    asked = {"name": name, "password": password, **({"device": mark} if mark else {})}
    opened: dict[str, Any] = client.post("/login", asked)
    if opened.get("device"):
        write_mark(client.url, name, str(opened["device"]))
    return opened


def _by_device(client: Client) -> dict[str, Any]:
    begun = client.post("/login/device")
    echo(f"open {neutral(begun['verification_uri'])} in a browser and enter the code {neutral(begun['user_code'])}")
    if begun["verification_uri_complete"]:
        echo(f"or open {neutral(begun['verification_uri_complete'])}")
    deadline = time.monotonic() + float(begun["expires_in_s"])
    while time.monotonic() < deadline:
        time.sleep(min(float(begun["interval_s"]), 30.0))
        opened: dict[str, Any] = client.post("/login/device/poll", {"handle": begun["handle"]})
        if "token" in opened:
            return opened
    raise RotaError("the login took too long; begin again with `rota login`")


def logout(server: ServerOption = None) -> None:
    """End the session of `rota login`, here and on the manager.

    Examples:

      rota logout
    """
    from rota.sdk.client import Client, Refused
    from rota.sdk.credentials import read_credentials, write_credentials

    client = Client(server)
    token = read_credentials(client.url)
    if token is None:
        raise RotaError(f"not logged in to {client.url}; `rota login` logs in")
    try:
        Client(client.url, token).post("/logout")
    except Refused as refused:
        if refused.status != 401:
            raise
    finally:
        write_credentials(client.url, None)
    echo(f"logged out of {client.url}")


def whoami(server: ServerOption = None, output: OutputOption = OutputFormat.TABLE) -> None:
    """Show the name, role and tenants that commands act with.

    Examples:

      rota whoami
    """
    from rota.sdk.client import Client

    found = Client(server).get("/whoami")
    emit([{**found, "tenants": ["*"] if found["tenants"] is None else found["tenants"]}], COLUMNS, output)
