"""`rota data`: data sets, which jobs use by name."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from rota.cli.completion import data_set_names, tenant_names
from rota.cli.manager.connect import ServerOption
from rota.cli.render import Column, OutputFormat, OutputOption, emit
from rota.cli.terminal import echo
from rota.core.errors import RotaError

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
    path: Annotated[
        str, typer.Argument(help="A folder of the manager's machine, also on NFS, or a URL.", metavar="PATH")
    ],
    writable: Annotated[bool, typer.Option("--writable", help="Jobs may write to it.")] = False,
    tenant: Annotated[
        list[str] | None, typer.Option(help="A tenant that may use it; all without one.", autocompletion=tenant_names)
    ] = None,
    about: Annotated[str, typer.Option(help="What it holds.")] = "",
    option: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE with which its URL is opened, e.g. endpoint_url.")
    ] = None,
    secret: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE likewise, kept encrypted and never shown.")
    ] = None,
    secret_env: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VARIABLE: a secret that a variable of this shell holds.", metavar="TEXT"),
    ] = None,
    server: ServerOption = None,
) -> None:
    """Add a data set, or replace it; for admins.

    Examples:

      rota data add imagenet /data/imagenet --tenant vision

      rota data add corpus s3://corpora/en --secret-env key=AWS_ACCESS_KEY_ID --secret-env secret=AWS_SECRET_ACCESS_KEY
    """
    from rota.sdk.client import Client

    values: dict[str, Any] = {"path": path, "read_only": not writable, "tenants": tenant or [], "about": about}
    values |= {"options": _pairs("option", option), "secrets": _pairs("secret", secret)}
    for secret_name, variable in _pairs("secret-env", secret_env).items():
        if variable not in os.environ:
            raise RotaError(f"--secret-env: this shell has no variable {variable!r}")
        values["secrets"][secret_name] = os.environ[variable]
    Client(server).put_data_set(name, values)
    echo(f"data set {name} is there", err=True)


def _pairs(flag: str, given: list[str] | None) -> dict[str, str]:
    found = {}
    for pair in given or ():
        name, equals, value = pair.partition("=")
        if not equals:
            raise RotaError(f"--{flag} is {name!r}; write it as NAME=VALUE")
        found[name] = value
    return found


@app.command("remove")
def remove(name: KnownArgument, server: ServerOption = None) -> None:
    """Forget a data set; its files stay. For admins.

    Examples:

      rota data remove imagenet
    """
    from rota.sdk.client import Client

    Client(server).remove_data_set(name)
    echo(f"data set {name} removed; its files stay", err=True)
