"""`rota data`: data sets, which jobs use by name."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.completion import data_set_names, tenant_names
from rota.cli.manager.connect import ServerOption
from rota.cli.render import Column, OutputFormat, OutputOption, emit
from rota.cli.terminal import echo

app = typer.Typer(no_args_is_help=True, help="Data sets: folders that jobs use by name (`rota submit --data NAME`).")
COLUMNS = (
    Column(key="name"),
    Column(key="read_only", title="access", show=lambda only: "read" if only else "read, write"),
    Column(key="tenants", show=lambda names: ", ".join(names) or "all"),
    Column(key="path"),
    Column(key="about"),
)
NameArgument = Annotated[str, typer.Argument(help="The data set's name.", metavar="NAME")]
KnownArgument = Annotated[
    str, typer.Argument(help="The data set's name.", metavar="NAME", autocompletion=data_set_names)
]


@app.command("list")
def list_data(server: ServerOption = None, output: OutputOption = OutputFormat.TABLE) -> None:
    """List the data sets that your tenants may use.

    Examples:

      rota data list
    """
    from rota.sdk.client import Client

    emit(
        Client(server).data_sets(), COLUMNS, output, nothing="no data sets; an admin adds them: rota data add NAME PATH"
    )


@app.command("add")
def add(
    name: NameArgument,
    path: Annotated[str, typer.Argument(help="A folder of the manager's machine, also on NFS.", metavar="PATH")],
    writable: Annotated[bool, typer.Option("--writable", help="Jobs may write to it.")] = False,
    tenant: Annotated[
        list[str] | None, typer.Option(help="A tenant that may use it; all without one.", autocompletion=tenant_names)
    ] = None,
    about: Annotated[str, typer.Option(help="What it holds.")] = "",
    server: ServerOption = None,
) -> None:
    """Add a data set, or replace it; for admins.

    Examples:

      rota data add imagenet /data/imagenet --tenant vision
    """
    from rota.sdk.client import Client

    values = {"path": path, "read_only": not writable, "tenants": tenant or [], "about": about}
    Client(server).put_data_set(name, values)
    echo(f"data set {name} is there", err=True)


@app.command("remove")
def remove(name: KnownArgument, server: ServerOption = None) -> None:
    """Forget a data set; its files stay. For admins.

    Examples:

      rota data remove imagenet
    """
    from rota.sdk.client import Client

    Client(server).remove_data_set(name)
    echo(f"data set {name} removed; its files stay", err=True)
