"""`rota nodes`, `rota drain`, `rota undrain`: the nodes and what is free on them."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.completion import node_names
from rota.cli.human import size
from rota.cli.manager.connect import ServerOption, client_for
from rota.cli.render import Column, OutputFormat, OutputOption, emit

NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="The node's name.", autocompletion=node_names)]
NODE_COLUMNS = (
    Column(key="id", title="node"),
    Column(key="type"),
    Column(key="gpus", right=True),
    Column(key="free_gpus", title="free", right=True),
    Column(key="cpus", right=True, show=lambda cpus: f"{cpus:g}"),
    Column(key="memory_bytes", title="memory", right=True, show=size),
    Column(key="state"),
    Column(key="limits"),
    Column(key="health", if_known=True),
    Column(key="health_why", title="why", wide=True),
    Column(key="broken_checks", title="broken checks", if_known=True),
)


def nodes(server: ServerOption = None, output: OutputOption = OutputFormat.TABLE) -> None:
    """List the nodes and what is free on them.

    Examples:

      rota nodes
    """
    emit(client_for(server).nodes(), NODE_COLUMNS, output)


def drain(node: NodeArgument, server: ServerOption = None) -> None:
    """Let nothing new start on a node; what runs there stays.

    Examples:

      rota drain n1
    """
    client_for(server).drain(node)


def undrain(node: NodeArgument, server: ServerOption = None) -> None:
    """Let a drained node take jobs again.

    Examples:

      rota undrain n1
    """
    client_for(server).drain(node, drained=False)
