"""`rota top`: devices, tenants, nodes and jobs, refreshed continuously."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota.cli import human
from rota.cli.jobs.ps import COLUMNS, row
from rota.cli.manager.connect import ServerOption, client_for
from rota.cli.manager.gpus import GPU_COLUMNS
from rota.cli.manager.nodes import NODE_COLUMNS
from rota.cli.render import Column, OutputFormat, emit, table
from rota.cli.terminal import echo
from rota.core.neutral_text import neutral

if TYPE_CHECKING:
    from rich.console import Group

    from rota.drivers.kubernetes.user import ClusterUser
    from rota.drivers.slurm.user import SlurmUser
    from rota.sdk.client import Client

WIDTH = 48
MOST_TENANTS = 10
MOST_NODES = 12
MOST_GPUS = 16
TENANT_COLUMNS = (
    Column(key="tenant"),
    Column(key="running", right=True),
    Column(key="waiting", right=True),
    Column(key="held", title="devices held", right=True, show=lambda held: f"{held:g}"),
    Column(key="guaranteed", right=True),
    Column(key="borrowed", right=True, show=lambda held: f"{held:g}"),
    Column(key="lent", right=True, show=lambda held: f"{held:.3g}"),
)


def top(
    every: Annotated[float, typer.Option(help="Seconds between two updates.", min=0.1)] = 1.0,
    limit: Annotated[int, typer.Option(help="At most this many jobs.", min=1)] = 30,
    server: ServerOption = None,
) -> None:
    """Show devices, tenants, nodes and jobs until Ctrl-C; once, where the output is not a terminal.

    Examples:

      rota top

      rota top --every 5 --limit 10
    """
    client = client_for(server)
    if not sys.stdout.isatty():
        overview = client.overview()
        for line in summary(overview, encoding=sys.stdout.encoding or "utf-8"):
            echo(line)
        for rows, columns in (
            (_busiest(overview["tenants"]), TENANT_COLUMNS),
            (client.nodes(), NODE_COLUMNS),
            *([(overview["gpus"], GPU_COLUMNS)] if overview.get("gpus") else []),
            ([row(job) for job in client.jobs(limit=limit)], COLUMNS),
        ):
            echo()
            emit(rows, columns, OutputFormat.TABLE)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(markup=False, emoji=False, highlight=False)
    with Live(_view(client, limit), console=console, screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(every)
            live.update(_view(client, limit), refresh=True)


def _view(client: Client | ClusterUser | SlurmUser, limit: int) -> Group:
    from rich.console import Group
    from rich.text import Text

    overview = client.overview()
    nodes = client.nodes()
    jobs = [row(job) for job in client.jobs(limit=limit)]
    parts: list[Any] = [Text("\n".join(summary(overview, encoding=sys.stdout.encoding or "utf-8")))]
    parts.append(table(_busiest(overview["tenants"]), TENANT_COLUMNS, lines=True))
    parts.append(table(nodes[:MOST_NODES], NODE_COLUMNS, lines=True))
    if len(nodes) > MOST_NODES:
        parts.append(Text(f"{len(nodes) - MOST_NODES} more nodes: rota nodes"))
    if overview.get("gpus"):
        parts.append(table(overview["gpus"][:MOST_GPUS], GPU_COLUMNS, lines=True))
        if len(overview["gpus"]) > MOST_GPUS:
            parts.append(Text(f"{len(overview['gpus']) - MOST_GPUS} more GPUs: rota gpus"))
    return Group(*parts, table(jobs, COLUMNS, lines=True))


def summary(overview: dict[str, Any], *, encoding: str) -> list[str]:
    """The numbers of the dashboard's first page, each with its last day as a line."""
    from rota.cli.study.sketch import bars, marks_for

    marks = marks_for(encoding)
    day = overview["day"]
    total = sum(each["total"] for each in overview["devices"])
    busy = sum(each["busy"] for each in overview["devices"])
    in_use = [part / total if total else 0.0 for part in _few(day["in_use"])]
    queue = _few(day["waiting"])
    longest = max([*queue, 1.0])
    waits = [wait_s for wait_s in day["wait_s"] if wait_s is not None]
    wait = human.duration(sum(waits) / len(waits)) if waits else "-"
    span = human.duration(day["edges_s"][-1] - day["edges_s"][0])
    lines = [f"policy {overview['policy']}; curves over the last {span}"]
    lines.append(f"in use   {human.percent(busy / total) if total else '-':>7}  {bars(in_use, marks)}")
    lines.append(f"waiting  {overview['waiting']:>7,}  {bars([part / longest for part in queue], marks)}")
    lines.append(f"running  {overview['running']:>7,}  wait before start {wait} on average")
    for each in overview["devices"]:
        lines.append(
            f"{each['type']}: {each['busy']:g} busy, {each['idle']:g} idle ({each['scattered']:g} in fragments), "
            f"{each['bad']:g} bad, of {each['total']:,}"
        )
    return [neutral(line.rstrip()) for line in lines]


def _busiest(tenants: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    order = sorted(tenants, key=lambda each: (-each["held"], -each["waiting"], each["tenant"]))
    return order[:MOST_TENANTS]


def _few(values: Sequence[float]) -> list[float]:
    """Means of adjacent values, as many as fit a line."""
    count = min(WIDTH, len(values))
    edges = [round(index * len(values) / count) for index in range(count + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
