"""The report's figures as PDF and SVG of a paper's column width.

Each Plotly figure is read back trace by trace and drawn with Matplotlib, so that a figure is composed once. Only what
the reports' figures use is known here: lines, points with intervals, bands, boxes of given quartiles, bars, and the
grey shade of a Gantt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import unescape
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from rota.core.errors import RotaError
from rota.report.look import FAINT, INK
from rota.report.page import Plot

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN_IN = 3.4
PAGE_IN = 7.0
GANTT_ROW_IN = 0.11
LETTERS_ACROSS = 40
"""Letters of class names that fit below a column."""
LETTERS_OF_TITLE = {"x": 60, "y": 30}
"""Letters of an axis title that fit along it."""
TICKS_APART = 3.0
"""The factor between two labelled moments of a logarithmic axis that keeps their labels apart."""
_RULE = "#888888"
_DASHES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
_LOOK: dict[Any, Any] = {
    "font.size": 7,
    "axes.titlesize": 7,
    "axes.labelsize": 7,
    "axes.linewidth": 0.5,
    "axes.edgecolor": _RULE,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.labelsize": 6,
    "ytick.labelsize": 6,
    "xtick.major.width": 0.5,
    "ytick.major.width": 0.5,
    "legend.fontsize": 6,
    "legend.frameon": False,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "rota",
    "text.parse_math": False,
}
"""Text stays text in both formats, and equal runs give equal bytes."""


def refuse_without_matplotlib() -> None:
    """Refuse early, with the way to install Matplotlib."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise RotaError("--figures needs Matplotlib; install it with: pip install 'rota[figures]'") from None


def write_figures(folder: Path, plots: Iterable[Plot]) -> list[Path]:
    """Write each figure as NAME.pdf and NAME.svg, and return the files."""
    import matplotlib as mpl

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with mpl.rc_context(_LOOK):
        for plot in plots:
            figure = redraw(plot.figure)
            for ending, nothing in (("pdf", {"CreationDate": None}), ("svg", {"Date": None})):
                path = folder / f"{plot.name}.{ending}"
                figure.savefig(path, metadata=nothing)
                written.append(path)
    return written


def redraw(source: go.Figure) -> Figure:
    """Draw one of the report's figures with Matplotlib."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(trace.yaxis or "y" for trace in source.data))
    figure = Figure(figsize=_size(source, len(names)), layout="constrained")
    axes = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
    for name, ax in zip(names, axes, strict=True):
        _draw(ax, [trace for trace in source.data if (trace.yaxis or "y") == name])
        _set_axes(ax, source.layout["xaxis" + name[1:]], source.layout["yaxis" + name[1:]])
    for shape in source.layout.shapes:
        look = {"color": shape.line.color, "linewidth": 0.5, "linestyle": _DASHES[shape.line.dash or "solid"]}
        if shape.y0 == shape.y1:
            axes[0].axhline(shape.y0, **look)
        elif shape.x0 == shape.x1:
            axes[0].axvline(shape.x0, **look)
    _legend(figure, axes[0], source)
    return figure


def _size(source: go.Figure, rows: int) -> tuple[float, float]:
    if _is_gantt(source):
        return PAGE_IN, 0.9 + GANTT_ROW_IN * len(source.layout.yaxis.ticktext)
    return COLUMN_IN, 2.2 if rows == 1 else 1.3 * rows


def _is_gantt(source: go.Figure) -> bool:
    return any(trace.type == "bar" and trace.orientation == "h" for trace in source.data)


def _draw(ax: Axes, traces: Sequence[Any]) -> None:
    labels = list(dict.fromkeys(str(x) for trace in traces if _is_grouped(trace) for x in trace.x))
    grouped = [trace for trace in traces if _is_grouped(trace)]
    for trace in traces:
        if trace.type == "scatter":
            _draw_line(ax, trace)
        elif trace.type == "heatmap":
            _draw_shade(ax, trace)
        elif not _is_grouped(trace):
            _draw_gantt_bars(ax, trace)
    for index, trace in enumerate(grouped):
        width = 0.8 / len(grouped)
        at = [labels.index(str(x)) - 0.4 + (index + 0.5) * width for x in trace.x]
        draw = _draw_boxes if trace.type == "box" else _draw_bars
        draw(ax, trace, at, width)
    if labels:
        crowded = sum(map(len, labels)) > LETTERS_ACROSS
        turned: dict[str, Any] = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
        ax.set_xticks(range(len(labels)), [unescape(label) for label in labels], **turned)
        ax.set_xlim(-0.6, len(labels) - 0.4)


def _is_grouped(trace: Any) -> bool:
    """Whether it is placed by class along the axis, beside those of other runs."""
    return bool(trace.type == "box" or (trace.type == "bar" and trace.orientation != "h"))


def _draw_line(ax: Axes, trace: Any) -> None:
    if trace.line.shape != "hv":
        _draw_points(ax, trace)
        return
    ax.step(
        trace.x,
        trace.y,
        where="post",
        color=trace.line.color,
        linestyle=_DASHES[trace.line.dash or "solid"],
        linewidth=0.6 * trace.line.width,
        label="_" if trace.showlegend is False else unescape(trace.name),
    )


def _draw_points(ax: Axes, trace: Any) -> None:
    """Draw a band, or points with their intervals and the lines between them."""
    if trace.fill == "toself":
        ax.fill(trace.x, trace.y, color=trace.fillcolor, alpha=trace.opacity, linewidth=0)
        return
    mode = trace.mode or "lines"
    style: dict[str, Any] = {
        "color": trace.line.color or trace.marker.color,
        "linestyle": _DASHES[trace.line.dash or "solid"] if "lines" in mode else "none",
        "linewidth": 0.6 * (trace.line.width or 2),
        "marker": "o" if "markers" in mode else None,
        "markersize": 0.4 * (trace.marker.size or 6),
        "label": "_" if trace.showlegend is False or not trace.name else unescape(trace.name),
    }
    spans: dict[str, Any] = {
        f"{which}err": [error.arrayminus, error.array]
        for which, error in (("x", trace.error_x), ("y", trace.error_y))
        if error.array is not None
    }
    if spans:
        ax.errorbar(trace.x, trace.y, elinewidth=0.6, capsize=1.5, **spans, **style)
    else:
        ax.plot(trace.x, trace.y, **style)
    if "text" in mode and trace.text is not None:
        for x, y, text in zip(trace.x, trace.y, trace.text, strict=True):
            ax.annotate(unescape(text), (x, y), xytext=(2, 2), textcoords="offset points", fontsize=5)


def _draw_boxes(ax: Axes, trace: Any, at: list[float], width: float) -> None:
    marks = zip(trace.lowerfence, trace.q1, trace.median, trace.q3, trace.upperfence, strict=True)
    stats = [
        {"whislo": low, "q1": q1, "med": median, "q3": q3, "whishi": high, "fliers": []}
        for low, q1, median, q3, high in marks
    ]
    line = {"color": trace.marker.color, "linewidth": 0.7}
    if stats:
        ax.bxp(
            stats,
            positions=at,
            widths=0.8 * width,
            showfliers=False,
            manage_ticks=False,
            patch_artist=True,
            boxprops={"facecolor": trace.marker.color, "edgecolor": trace.marker.color, "linewidth": 0.7, "alpha": 0.4},
            medianprops=line,
            whiskerprops=line,
            capprops=line,
        )
    ax.plot([], [], color=trace.marker.color, label=unescape(trace.name))


def _draw_bars(ax: Axes, trace: Any, at: list[float], width: float) -> None:
    ax.bar(at, trace.y, width=0.9 * width, color=trace.marker.color, label=unescape(trace.name))


def _draw_gantt_bars(ax: Axes, trace: Any) -> None:
    """Draw all bars as one collection, as thousands of single ones take long to lay out."""
    from matplotlib.collections import PolyCollection

    left, right = trace.base, trace.base + trace.x
    low, high = trace.y - trace.width / 2, trace.y + trace.width / 2
    corners = np.stack([left, low, left, high, right, high, right, low], axis=-1).reshape(-1, 4, 2)
    colour = trace.marker.color
    ax.add_collection(PolyCollection(list(corners), facecolor=colour, edgecolor="white", linewidth=0.1))
    ax.plot([], [], color=colour, linewidth=4, label=unescape(trace.name))


def _draw_shade(ax: Axes, trace: Any) -> None:
    rows = np.arange(len(trace.y) + 1)
    ax.pcolormesh(trace.x, rows, trace.z, cmap="Greys", vmin=0, vmax=400, rasterized=True)


def _set_axes(ax: Axes, x: Any, y: Any) -> None:
    from matplotlib.ticker import FuncFormatter, NullLocator

    for which, axis, native in (("x", x, ax.xaxis), ("y", y, ax.yaxis)):
        if axis.type == "log":
            ax.set(**{f"{which}scale": "log"})
            native.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        if axis.title.text:
            ax.set(**{f"{which}label": fill(unescape(axis.title.text), LETTERS_OF_TITLE[which])})
        if axis.tickvals is not None:
            shown = list(zip(axis.tickvals, axis.ticktext, strict=True))
            if axis.type == "log":
                shown = _apart(shown, *getattr(ax, f"get_{which}lim")())
            native.set_ticks([at for at, _ in shown], [unescape(text) for _, text in shown])
            native.set_minor_locator(NullLocator())
        if axis.range is not None:
            ax.set(**{f"{which}lim": axis.range})
        elif axis.rangemode == "tozero":
            ax.set(**{f"{which}lim": (0, None)})
    if y.showgrid is not False:
        ax.grid(axis="y", color=FAINT, linewidth=0.4)
        ax.set_axisbelow(True)


def _apart(ticks: list[tuple[float, str]], low: float, high: float) -> list[tuple[float, str]]:
    """The ticks between two bounds whose labels do not overlap."""
    shown: list[tuple[float, str]] = []
    for at, text in ticks:
        if low <= at <= high and (not shown or at >= TICKS_APART * shown[-1][0]):
            shown.append((at, text))
    return shown


def _legend(figure: Figure, ax: Axes, source: go.Figure) -> None:
    handles, labels = ax.get_legend_handles_labels()
    if len(labels) < 2:
        return
    title = source.layout.legend.title.text
    figure.legend(
        handles, labels, loc="outside lower center", ncols=6 if _is_gantt(source) else 3, title=title, title_fontsize=6
    )
