"""The style of figures: a colour-blind safe palette, units of time, classes of job sizes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rota.report.series import Floats

if TYPE_CHECKING:
    import plotly.graph_objects as go

INK = "#222222"
FAINT = "#e6e6e6"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

# Okabe and Ito's palette without its yellow, which is invisible on white; then four like Paul Tol's muted.
_COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#882255",
    "#999933",
    "#332288",
    "#888888",
)
_DASHES = ("solid", "dash", "dot", "dashdot")
SIZE_COLOURS = ("#fde725", "#a0da39", "#4ac16d", "#1fa187", "#277f8e", "#365c8d", "#46327e", "#440154")
"""Viridis from light to dark: small jobs to large ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A unit of time for an axis or a column."""

    name: str
    seconds: float


_UNITS = (
    (2 * 86_400, Unit(name="days", seconds=86_400)),
    (2 * 3_600, Unit(name="h", seconds=3_600)),
    (2 * 60, Unit(name="min", seconds=60)),
)


def unit_for(longest_s: float) -> Unit:
    """The largest unit of which the longest time has more than two."""
    for above_s, unit in _UNITS:
        if longest_s > above_s:
            return unit
    return Unit(name="s", seconds=1)


def colour(index: int) -> str:
    """The colour of the run at this place."""
    return _COLOURS[index % len(_COLOURS)]


def line(index: int) -> dict[str, object]:
    """The line of the run at this place; dashes differ when the colours are used up."""
    return {
        "color": colour(index),
        "dash": _DASHES[index // len(_COLOURS) % len(_DASHES)],
        "width": 1.6,
    }


def safe(text: str, longest: int = 60) -> str:
    """A user's text for a figure, escaped and cut to a length."""
    shown = text if len(text) <= longest else text[: longest - 1] + "…"
    return escape("".join(char if char.isprintable() else " " for char in shown))


def slug(name: str) -> str:
    """A run's name as a file name."""
    return re.sub(r"[^A-Za-z0-9.=_-]+", "-", name).strip("-.") or "policy"


def size_classes(gpus: Sequence[Floats]) -> tuple[list[str], list[NDArray[np.intp]]]:
    """Job sizes in powers of two: the names of the classes that occur, and each job's class."""
    places = [np.where(size > 0, np.ceil(np.log2(np.maximum(size, 0.5))), -2).astype(np.intp) for size in gpus]
    present = np.unique(np.concatenate(places)) if places else np.array([], dtype=np.intp)
    return [_size_name(int(place)) for place in present], [np.searchsorted(present, p) for p in places]


def _size_name(exponent: int) -> str:
    if exponent < 0:
        return "none" if exponent == -2 else "≤ ½"
    if exponent <= 1:
        return str(2**exponent)
    return f"{2 ** (exponent - 1) + 1}-{2**exponent}"


def styled(figure: go.Figure, title: str, *, height: int, **layout: Any) -> go.Figure:
    """Apply the common style to a figure."""
    figure.update_layout(
        title={"text": title, "x": 0, "xref": "paper", "xanchor": "left", "font": {"size": 16}},
        height=height,
        margin={"l": 70, "r": 20, "t": 50, "b": 55},
        font={"family": FONT, "size": 12, "color": INK},
        paper_bgcolor="white",
        plot_bgcolor="white",
        legend={
            "orientation": "h",
            "yref": "container",
            "y": 0,
            "yanchor": "bottom",
            "x": 0,
            "xanchor": "left",
        },
        hoverlabel={"namelength": -1},
        template=None,
    )
    figure.update_xaxes(**_AXIS)
    figure.update_yaxes(**_AXIS)
    figure.update_layout(**layout)
    return figure


_AXIS: dict[str, Any] = {
    "gridcolor": FAINT,
    "zeroline": False,
    "showline": True,
    "linecolor": "#888888",
    "ticks": "outside",
    "tickcolor": "#888888",
    "automargin": True,
}

_SECONDS_BY_LABEL = {
    "0.01 s": 0.01,
    "0.1 s": 0.1,
    "1 s": 1,
    "10 s": 10,
    "1 min": 60,
    "10 min": 600,
    "1 h": 3_600,
    "10 h": 36_000,
    "1 d": 86_400,
    "10 d": 864_000,
    "100 d": 8_640_000,
    "1000 d": 86_400_000,
}


def log_time_axis(title: str) -> dict[str, Any]:
    """A logarithmic axis of seconds, labelled in common units."""
    return {
        "type": "log",
        "title": {"text": title},
        "tickvals": list(_SECONDS_BY_LABEL.values()),
        "ticktext": list(_SECONDS_BY_LABEL),
    }
