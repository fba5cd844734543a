"""`rota token`: the tokens of a manager's users."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.manager.connect import ServerOption
from rota.cli.render import Column, OutputFormat, OutputOption, emit
from rota.cli.terminal import echo

app = typer.Typer(no_args_is_help=True, help="Create, list and revoke tokens.")
COLUMNS = (
    *(Column(key=key) for key in ("id", "kind", "name", "role")),
    Column(key="tenants", show=lambda tenants: ", ".join(tenants) or "-"),
    *(Column(key=key) for key in ("account", "expires", "revoked")),
)


@app.command("create")
def create(
    name: Annotated[str, typer.Argument(help="Whose it is.")],
    role: Annotated[str, typer.Option(help="admin, maintainer, member or viewer.")] = "member",
    tenant: Annotated[list[str] | None, typer.Option(help="For which tenants, as A,B; '*' for all.")] = None,
    expires: Annotated[str | None, typer.Option(help="After how long it ends, e.g. 30d.")] = None,
    account: Annotated[str | None, typer.Option(help="The Unix account under which its jobs run.")] = None,
    server: ServerOption = None,
) -> None:
    """Create a token and print it; it can't be shown again.

    Examples:

      rota token create ada --tenant nlp --expires 90d
    """
    from rota.files.quantities import parse_duration
    from rota.sdk.client import Client

    tenants = [part.strip() for each in tenant or () for part in each.split(",")]
    wanted: dict[str, object] = {"name": name, "role": role, "tenants": tenants}
    if account is not None:
        wanted["account"] = account
    if expires is not None:
        wanted["expires_in_s"] = parse_duration(expires)
    echo(Client(server).post("/tokens", wanted)["token"])


@app.command("list")
def list_tokens(server: ServerOption = None, output: OutputOption = OutputFormat.TABLE) -> None:
    """List tokens and sessions of users without their secrets.

    Examples:

      rota token list
    """
    from rota.sdk.client import Client

    emit(
        Client(server).get("/tokens"),
        COLUMNS,
        output,
        nothing="no tokens; create one with `rota token create NAME --tenant TENANT`",
    )


@app.command("revoke")
def revoke(
    token: Annotated[str, typer.Argument(help="The token's id.")],
    server: ServerOption = None,
) -> None:
    """Revoke a token, or end a session; its streams and pages end within a second.

    Examples:

      rota token revoke 1f2e3d4c
    """
    from urllib.parse import quote

    from rota.sdk.client import Client

    Client(server).delete(f"/tokens/{quote(token, safe='')}")
