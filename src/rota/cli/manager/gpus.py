"""`rota gpus`: what the GPUs of the manager's machine do, and their idle hours by user."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rota.cli.human import size
from rota.cli.manager.connect import ServerOption, client_for
from rota.cli.render import Column, OutputFormat, OutputOption, emit
from rota.core.errors import RotaError


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{size(int(value))}/s"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _jobs(jobs: list[str]) -> str:
    return ",".join(jobs) or "-"


GPU_COLUMNS = (
    Column(key="gpu", right=True),
    Column(key="name"),
    Column(key="busy", title="busy %", right=True, show=_number),
    Column(key="memory_busy", title="memory busy %", right=True, show=_number),
    Column(key="memory_bytes", title="memory", right=True, show=lambda used: size(int(used or 0))),
    Column(key="power_w", title="W", right=True, show=_number),
    Column(key="temperature_c", title="C", right=True, show=_number),
    Column(key="sm_mhz", title="MHz", right=True, show=_number),
    Column(key="pcie_rx_bps", title="PCIe in", right=True, show=_rate),
    Column(key="pcie_tx_bps", title="PCIe out", right=True, show=_rate),
    Column(key="xid", right=True, show=lambda xid: "-" if xid is None else str(xid)),
    Column(key="jobs", show=_jobs),
)
_USER_COLUMNS = (
    Column(key="user"),
    Column(key="gpu_hours", title="GPU hours", right=True, show=lambda hours: f"{hours:.2f}"),
    Column(key="idle_gpu_hours", title="idle", right=True, show=lambda hours: f"{hours:.2f}"),
    Column(key="shared_gpu_hours", title="on shared GPUs", right=True, show=lambda hours: f"{hours:.2f}"),
    Column(key="idle_part", title="idle part", right=True, show=lambda part: "-" if part is None else f"{part:.0%}"),
)


def gpus(
    users: Annotated[bool, typer.Option("--users", help="Hours held and idle, by user.")] = False,
    days: Annotated[int, typer.Option(help="With --users: the last days, today included.", min=1, max=35)] = 35,
    server: ServerOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show what the GPUs of the manager's machine do now, or their idle hours by user.

    Examples:

      rota gpus

      rota gpus --users --days 7
    """
    from rota.sdk.client import Client

    client = client_for(server)
    if not isinstance(client, Client):
        raise RotaError("rota gpus needs a manager of a machine; on Kubernetes, use dcgm-exporter")
    rows: list[dict[str, Any]] = client.gpu_users(days) if users else client.gpus()
    emit(
        rows,
        _USER_COLUMNS if users else GPU_COLUMNS,
        output,
        nothing="nothing is known of real GPUs; `rota doctor` says what is missing",
    )
