"""Metrics of users: a function from the history of a run to a number, in tables, JSON and reports."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rota.core.errors import RotaError, did_you_mean
from rota.core.state.history import History
from rota.plugins import Plugin, PluginKind, find_plugin, names_of
from rota.report.metrics import Metrics

METRICS = PluginKind(what="metric", group="rota.metrics")
_TAKEN = frozenset(field.name for field in dataclasses.fields(Metrics)) | {"policy", "placement", "tenants", "events"}


def user_metrics(specs: Sequence[str]) -> tuple[Plugin, ...]:
    """The functions that are named as `FILE.py:FUNCTION` or by entry point; each name once."""
    found: dict[str, Plugin] = {}
    for spec in specs:
        plugin = find_plugin(METRICS, spec)
        if plugin is None:
            raise RotaError(f"unknown metric {spec!r}; {did_you_mean(spec, names_of(METRICS))}, or FILE.py:FUNCTION")
        if plugin.name in found or plugin.name in _TAKEN:
            raise RotaError(f"metric {spec}: there is another metric {plugin.name!r}; rename the function")
        found[plugin.name] = plugin
    return tuple(found.values())


def measure_by(metrics: Sequence[Plugin], history: History) -> dict[str, float | None]:
    """The value of each metric by its name; None where the function returned None."""
    return {metric.name: _value(metric, history) for metric in metrics}


def _value(metric: Plugin, history: History) -> float | None:
    found = metric.call(history)
    return None if found is None else metric.as_number("the run", found)
