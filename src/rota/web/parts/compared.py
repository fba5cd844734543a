"""The table of requested, estimated and used resources of a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nicegui import html

from rota.web import words

TITLES = {"gpus": "GPUs", "gpu_memory": "GPU memory", "cpus": "CPUs", "memory": "Memory"}


def show_compared(lines: Sequence[dict[str, Any]]) -> None:
    """Show one row per resource, with amounts per task."""
    if not lines:
        return
    with html.table().classes("table").props('data-testid="compared"'):
        with html.thead(), html.tr():
            for title in ("Per task", "Requested", "Estimated", "Used"):
                html.th(title)
        with html.tbody():
            for line in lines:
                with html.tr():
                    html.td(TITLES[line["what"]])
                    html.td(_asked(line))
                    html.td(_estimate(line))
                    html.td(_amount(line, "used"))
    for line in lines:
        if line["why"]:
            html.p(f"{TITLES[line['what']]}: {line['why']}").classes("muted")


def _asked(line: dict[str, Any]) -> str:
    if line.get("default"):
        return f"{_amount(line, 'default')} (default limit)"
    return _amount(line, "asked") + _origin(line)


def _origin(line: dict[str, Any]) -> str:
    if not line["auto"]:
        return ""
    return f" (auto, raised {line['raised']}×)" if line["raised"] else " (auto)"


def _estimate(line: dict[str, Any]) -> str:
    if line["estimate"] is None:
        return "–"
    error = "error unknown" if line["error"] is None else f"error {line['error']:.0%}"
    trust = "" if line["trusted"] else ", not trusted"
    span = f"{_amount(line, 'low')} to {_amount(line, 'high')}"
    return f"{_amount(line, 'estimate')} ({span}; {error}{trust})"


def _amount(line: dict[str, Any], key: str) -> str:
    value = line[key]
    if not value:
        return "–"
    return words.size(value) if line["what"] in ("memory", "gpu_memory") else f"{value:.3g}"
