"""What failures cost, as `rota sim` prints it: columns of the summary, and a table of causes below it."""

from __future__ import annotations

from collections.abc import Sequence

from rota.cli import human
from rota.cli.render import Column, OutputFormat, emit
from rota.cli.terminal import echo
from rota.health.lost_time import FailureReport

_COLUMNS = (
    Column(key="policy", title="policy"),
    Column(key="cause", title="cause"),
    Column(key="breakdowns", title="breakdowns", show=human.count, right=True),
    Column(key="interruptions", title="interruptions", show=human.count, right=True),
    Column(key="lost_work_device_h", title="work lost (device-h)", show=human.figure, right=True),
    Column(key="undetected_device_h", title="unnoticed", show=human.figure, right=True),
    Column(key="restart_device_h", title="restarts", show=human.figure, right=True),
    Column(key="repair_device_h", title="in repair", show=human.figure, right=True),
)


def failure_metrics(report: FailureReport | None) -> dict[str, float | None]:
    """The columns of the summary; none where nothing fails."""
    if report is None:
        return {}
    return {
        "ettr": report.ettr,
        "failure_goodput": report.goodput,
        "interruptions": float(report.interruptions),
        "lost_device_h": report.lost_device_h,
    }


def print_causes(reports: Sequence[tuple[str, FailureReport | None]]) -> None:
    """Print device-hours by cause, most expensive first, below the table of the policies."""
    rows = [
        {"policy": policy, "cause": cause} | loss.encode()
        for policy, report in reports
        if report is not None
        for cause, loss in report.causes.items()
    ]
    if rows:
        echo("")
        emit(rows, _COLUMNS, OutputFormat.TABLE)
