"""What the pages of sweeps share: chips of states, and the charts of trials as options of ECharts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nicegui import html

from rota.web.parts.charts import over_time

Json = dict[str, Any]
WIDE = 20.0
"""Values of which the largest is so many times the smallest are drawn by their logarithm."""
BEST_SHOWN = 5
"""Trials that are drawn in a colour; the others are grey."""
MAX_LINES = 200
_GREY = "var(--idle)"
_TEXT = {"color": "var(--muted)", "fontFamily": "system-ui, sans-serif", "fontSize": 11}
_SWEEP_CHIPS = {"running": "running", "finished": "succeeded", "stopped": "cancelled", "failed": "failed"}
_TRIAL_CHIPS = {
    "active": "running",
    "paused": "suspended",
    "stopped": "cancelled",
    "completed": "succeeded",
    "failed": "failed",
    "cancelled": "cancelled",
}
"""The colours of states: those of job states that mean as much."""


def sweep_chip(state: str) -> None:
    """Show the state of a sweep."""
    html.span(state).classes(f"chip chip-{_SWEEP_CHIPS[state]}")


def trial_chip(state: str) -> None:
    """Show the state of a trial."""
    html.span(state).classes(f"chip chip-{_TRIAL_CHIPS[state]}")


def number(value: float | None) -> str:
    """Format a value of the metric, or a parameter."""
    return "–" if value is None else f"{value:.5g}"


def value_text(best: Json | None) -> str:
    """Format the best value of a sweep."""
    return "–" if best is None else number(best["value"])


def ranked(runs: Sequence[Json], goal: str) -> list[Json]:
    """The trials with a value, best first."""
    sign = 1 if goal == "minimize" else -1
    return sorted(
        (run for run in runs if run["value"] is not None), key=lambda run: (sign * run["value"], run["trial"])
    )


def curves(runs: Sequence[Json], goal: str, metric: str) -> Json:
    """Options for the curves of all trials: the best in colours, the others grey behind them."""
    order = ranked(runs, goal)[:MAX_LINES]
    best = order[:BEST_SHOWN]
    lines = [
        {"name": f"trial {run['trial']}", "points": run["curve"], "colour": _GREY} for run in order[BEST_SHOWN:][::-1]
    ]
    lines += [{"name": f"trial {run['trial']}", "points": run["curve"]} for run in best[::-1]]
    options = over_time(lines, axes=[{"scale": True, "name": metric}], legend=False)
    for index, series in enumerate(options["series"]):
        place = len(lines) - index
        colour = f"var(--c{place})" if place <= len(best) else _GREY
        series["lineStyle"] = {"width": 1.8 if place <= len(best) else 1, "color": colour}
        series["itemStyle"] = {"color": colour}
        series["showSymbol"] = len(lines[index]["points"]) == 1
    options["legend"] |= {"show": bool(best), "data": [f"trial {run['trial']}" for run in best]}
    options["grid"] |= {"top": 40, "bottom": 36}
    options["tooltip"] = {"show": False}
    return _by_number(options, "step")


def best_so_far(runs: Sequence[Json], goal: str, metric: str) -> Json:
    """Options for the value of each trial by its number, and the best up to there."""
    better = min if goal == "minimize" else max
    reached: list[list[float]] = []
    dots: list[list[float]] = []
    best: float | None = None
    for run in runs:
        if run["value"] is None:
            continue
        best = run["value"] if best is None else better(best, run["value"])
        dots.append([run["trial"], run["value"]])
        reached.append([run["trial"], best])
    lines: list[Json] = [
        {"name": "each trial", "points": dots, "dots": True, "colour": "var(--c2)"},
        {"name": "best so far", "points": reached, "colour": "var(--c1)"},
    ]
    options = over_time(lines, axes=[{"scale": True, "name": metric}], legend=True)
    options["series"][1]["step"] = "end"
    options["series"][1]["showSymbol"] = len(reached) == 1
    options["grid"] |= {"top": 40, "bottom": 36}
    return _by_number(options, "trial")


def _by_number(options: Json, name: str) -> Json:
    options["xAxis"] |= {"type": "value", "name": name, "nameLocation": "middle", "nameGap": 24}
    options["xAxis"] |= {"nameTextStyle": _TEXT, "splitLine": {"show": False}, "minInterval": 1}
    options["yAxis"][0] |= {"nameTextStyle": _TEXT, "nameGap": 10}
    return options


def importance_bars(importance: Json) -> Json:
    """Options for a bar for each parameter, the one that matters most on top."""
    pairs = sorted(importance.items(), key=lambda pair: pair[1])
    axis = {
        "type": "value",
        "min": 0,
        "max": 1,
        "axisLabel": _TEXT,
        "splitLine": {"lineStyle": {"color": "var(--line)"}},
    }
    return {
        "animation": False,
        "grid": {"left": 8, "right": 44, "top": 8, "bottom": 8, "containLabel": True},
        "xAxis": axis,
        "yAxis": {
            "type": "category",
            "data": [name for name, _ in pairs],
            "axisLabel": _TEXT,
            "axisTick": {"show": False},
        },
        "series": [
            {
                "type": "bar",
                "data": [round(value, 3) for _, value in pairs],
                "barMaxWidth": 18,
                "itemStyle": {"color": "var(--c1)"},
                "label": {"show": True, "position": "right", **_TEXT},
                "emphasis": {"disabled": True},
            }
        ],
    }


def parallel(runs: Sequence[Json], parameters: Json, goal: str, metric: str) -> Json:
    """Options for parallel coordinates: a line for each trial through its parameters to its value."""
    order = ranked(runs, goal)[:MAX_LINES]
    names = list(parameters)
    axes = [_axis(index, name, parameters[name], order) for index, name in enumerate(names)]
    last: Json = {"dim": len(names), "name": metric, "scale": True}
    if goal == "minimize":
        last |= {"inverse": True, "nameLocation": "start"}
    if order and _is_wide([run["value"] for run in order]):
        last["type"] = "log"
    series = []
    for place, run in reversed(list(enumerate(order))):
        is_best = place < BEST_SHOWN
        values = [_place(run["params"][name], axes[index]) for index, name in enumerate(names)]
        series.append(
            {
                "type": "parallel",
                "name": f"trial {run['trial']}",
                "data": [[*values, run["value"]]],
                "lineStyle": {
                    "color": f"var(--c{place + 1})" if is_best else _GREY,
                    "width": 2 if is_best else 1,
                    "opacity": 1 if is_best else 0.8,
                },
                "emphasis": {"disabled": True},
                "silent": True,
            }
        )
    return {
        "animation": False,
        "parallelAxis": [*axes, last],
        "parallel": {
            "left": 50,
            "right": 60,
            "top": 34,
            "bottom": 20,
            "parallelAxisDefault": {
                "nameTextStyle": _TEXT,
                "nameGap": 12,
                "axisLabel": _TEXT,
                "axisLine": {"lineStyle": {"color": "var(--muted)"}},
                "axisTick": {"show": False},
            },
        },
        "series": series,
    }


def _axis(index: int, name: str, part: Any, runs: Sequence[Json]) -> Json:
    """The axis of a parameter: categories for choices, else numbers, by their logarithm where it is drawn so."""
    axis: Json = {"dim": index, "name": name}
    choices = part if isinstance(part, list) else part.get("choice")
    if choices is not None:
        return axis | {"type": "category", "data": [str(choice) for choice in choices]}
    if any(key in part for key in ("log", "log_int")):
        low, high = part.get("log") or part["log_int"]
        return axis | {"type": "log", "min": low, "max": high}
    low, high = part.get("uniform") or part["int"]
    return axis | {"type": "value", "min": low, "max": high}


def _place(value: Any, axis: Json) -> Any:
    return str(value) if axis.get("type") == "category" else value


def _is_wide(values: Sequence[float]) -> bool:
    """Whether values differ so much that only their logarithms can be told apart."""
    return min(values) > 0 and max(values) > WIDE * min(values)
