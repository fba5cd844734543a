"""The load of links over time as a figure and a page."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from rota.report.link_series import LinkSeries
from rota.report.look import safe, styled

LINKS_SHOWN = 12


def load_figure(series: Sequence[LinkSeries]) -> go.Figure:
    """Return the load of the busiest links over time."""
    figure = go.Figure()
    for each in series[:LINKS_SHOWN]:
        figure.add_scatter(
            x=[moment / 3600 for moment in each.at_s],
            y=[100 * value for value in each.load],
            name=safe(each.link),
            mode="lines",
            line_shape="hv",
            hovertemplate="%{y:.1f} % at %{x:.2f} h",
        )
    styled(figure, "Load of the busiest links", height=480, showlegend=True)
    figure.update_xaxes(title_text="time (h)")
    figure.update_yaxes(title_text="mean rate over capacity (%)", rangemode="tozero")
    return figure


def load_page(series: Sequence[LinkSeries], title: str) -> str:
    """Return a page of its own with the figure and a table of all used links."""
    head = "<tr><th>link</th><th>rate (Gbit/s)</th><th>mean load</th><th>peak load</th></tr>"
    rows = "".join(
        f"<tr><td>{safe(each.link)}</td><td>{8e-9 * each.bytes_per_s:.4g}</td><td>{each.mean:.1%}</td>"
        f"<td>{each.peak:.1%}</td></tr>"
        for each in series
    )
    drawn = load_figure(series).to_html(full_html=False, include_plotlyjs=True)
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{safe(title)}</title></head>"
        f"<body><h1>{safe(title)}</h1>{drawn}<table>{head}{rows}</table></body></html>"
    )
