"""`rota template`: templates of jobs, which `rota submit --template` fills in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from rota.cli.completion import template_names
from rota.cli.manager.connect import ServerOption, TenantOption
from rota.cli.render import Column, OutputFormat, OutputOption, emit
from rota.cli.terminal import echo
from rota.core.errors import RotaError

Json = dict[str, Any]
app = typer.Typer(no_args_is_help=True, help="Templates of jobs: `rota submit --template NAME -p lr=0.1` submits one.")
COLUMNS = (
    Column(key="name"),
    Column(key="tenant", show=lambda tenant: tenant or "(Rota)"),
    Column(key="parameters", show=lambda parts: ", ".join(parts) or "-"),
    Column(key="description"),
)
PARAMETERS = (
    Column(key="parameter"),
    Column(key="type"),
    Column(key="default", show=lambda value: "(none)" if value is None else str(value)),
    Column(key="range"),
    Column(key="help"),
)
NameArgument = Annotated[
    str, typer.Argument(help="The template's name.", metavar="NAME", autocompletion=template_names)
]


@app.command("list")
def list_templates(server: ServerOption = None, output: OutputOption = OutputFormat.TABLE) -> None:
    """List templates: those of Rota, and those of your tenants.

    Examples:

      rota template list
    """
    from rota.sdk.client import Client

    emit(Client(server).templates(), COLUMNS, output)


@app.command("show")
def show(
    name: NameArgument,
    tenant: TenantOption = None,
    server: ServerOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show a template's parameters; with -o json all of it.

    Examples:

      rota template show pytorch-ddp
    """
    from rota.sdk.client import Client

    found = Client(server).template(name, tenant)
    if output is OutputFormat.JSON:
        emit([found], COLUMNS, output)
        return
    if output is OutputFormat.TABLE:
        echo(f"{found['name']}: {found['description']}", err=True)
    rows = [{"parameter": key, **part, "range": _range(part)} for key, part in found["parameters"].items()]
    emit(rows, PARAMETERS, output)


def _range(part: Json) -> str | None:
    if part["choices"]:
        return ", ".join(part["choices"])
    low, high = part["min"], part["max"]
    if low is None and high is None:
        return None
    return f"{'' if low is None else f'{low:g}'}..{'' if high is None else f'{high:g}'}"


@app.command("add")
def add(
    file: Annotated[Path, typer.Argument(help="The template file.", metavar="FILE")],
    name: Annotated[str | None, typer.Option("--name", help="Its name; by default that of the file.")] = None,
    tenant: TenantOption = None,
    server: ServerOption = None,
) -> None:
    """Add a template to a tenant, or replace it; for the tenant's maintainers.

    Examples:

      rota template add finetune.yaml --tenant nlp
    """
    from rota.files.document import read_document
    from rota.files.templates.template_file import template_file
    from rota.sdk.client import Client

    values = read_document(file)
    template_file(values, file)
    plain: Json = json.loads(json.dumps(values, default=str))
    found = Client(server).put_template(name or file.stem, plain, tenant)
    echo(f"template {found['name']} of tenant {found['tenant']} is there", err=True)


@app.command("remove")
def remove(name: NameArgument, tenant: TenantOption = None, server: ServerOption = None) -> None:
    """Remove a template of a tenant; for the tenant's maintainers.

    Examples:

      rota template remove finetune --tenant nlp
    """
    from rota.sdk.client import Client

    Client(server).remove_template(name, tenant)
    echo(f"template {name} removed", err=True)


def given_parameters(pairs: list[str]) -> dict[str, str]:
    """The values in `-p NAME=VALUE`."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise RotaError(f"-p is {pair!r:.60}; write it as NAME=VALUE")
        found[name] = value
    return found
