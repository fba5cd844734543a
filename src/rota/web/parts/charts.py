"""Line charts. Colours are CSS variables, so that they follow the light or dark theme."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nicegui import ui

Json = dict[str, Any]
PALETTE = tuple(f"var(--c{number})" for number in range(1, 9))
_TEXT = {"color": "var(--muted)", "fontFamily": "system-ui, sans-serif", "fontSize": 11}
_GRID_LINE = {"lineStyle": {"color": "var(--line)"}}


def chart(options: Json, label: str, *, small: bool = False) -> ui.echart:
    """Create a chart with a text alternative for screen readers."""
    made = ui.echart(options, renderer="svg").classes("chart chart-small" if small else "chart")
    made.props["role"] = "img"
    made.props["aria-label"] = label
    return made


def over_time(lines: Sequence[Json], *, axes: Sequence[Json], legend: bool = False) -> Json:
    """Return chart options for lines over time; each has `name`, `points` as [milliseconds, value], and `axis`."""
    return {
        "animation": False,
        "grid": {"left": 44, "right": 44 if len(axes) > 1 else 16, "top": 34 if legend else 14, "bottom": 24},
        "legend": {
            "show": legend,
            "top": 0,
            "left": 0,
            "icon": "roundRect",
            "itemWidth": 10,
            "itemHeight": 10,
            "itemGap": 18,
        }
        | {"textStyle": _TEXT, "type": "scroll"},
        "tooltip": {"trigger": "axis", "confine": True, "className": "chart-tip", "renderMode": "richText"}
        | {
            "backgroundColor": "var(--card)",
            "borderColor": "var(--line)",
            "textStyle": {**_TEXT, "color": "var(--text)"},
        },
        "xAxis": {"type": "time", "axisLabel": {**_TEXT, "hideOverlap": True}, "axisLine": _GRID_LINE}
        | {"axisTick": {"show": False}, "splitNumber": 6},
        "yAxis": [
            {"type": "value", "axisLabel": _TEXT, "splitLine": _GRID_LINE if index == 0 else {"show": False}, **axis}
            for index, axis in enumerate(axes)
        ],
        "series": [_line(index, line) for index, line in enumerate(lines)],
    }


def _line(index: int, line: Json) -> Json:
    colour = line.get("colour", PALETTE[index % len(PALETTE)])
    shown: Json = {
        "type": "line",
        "name": line["name"],
        "data": line["points"],
        "showSymbol": bool(line.get("dots")),
        "symbol": "circle",
        "symbolSize": 4,
        "yAxisIndex": line.get("axis", 0),
        "connectNulls": True,
        "lineStyle": {"width": 0 if line.get("dots") else 1.6, "color": colour},
        "itemStyle": {"color": colour},
        "emphasis": {"disabled": True},
    }
    if line.get("filled"):
        shown["areaStyle"] = {"color": colour, "opacity": 0.14}
    if line.get("stack"):
        shown["stack"] = line["stack"]
    return shown


def points(edges_s: Sequence[float], values: Sequence[float | None]) -> list[list[float | None]]:
    """Return the values of consecutive intervals as points at the end of each interval."""
    return [[round(at_s * 1000), value] for at_s, value in zip(edges_s[1:], values, strict=True)]
