"""The figures of an experiment: load against a metric with bands, Pareto plots, differences, and ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from rota.experiments.number_format import log_ticks, scale_of
from rota.experiments.statistics import Interval, RankComparison
from rota.experiments.summary import ExperimentSummary, PolicySummary
from rota.experiments.text_tables import policy_name, starred
from rota.report.look import INK, colour, line, safe, styled
from rota.report.named_metrics import Direction, NamedMetric

WIDE = 8.0
"""The factor between the largest and the smallest value from which on an axis is logarithmic."""
WIDE_RATIO = 4.0
"""The same between the bounds of ratios, whose intervals are symmetric on such an axis."""


def load_curves(
    summary: ExperimentSummary, metric: NamedMetric, rows: Sequence[PolicySummary], title: str
) -> go.Figure:
    """A metric over the load, one line per policy with the band of its 95% interval."""
    figure = go.Figure()
    drawn = [row.values[metric.name] for row in rows if metric.name in row.values and row.group[3] is not None]
    scale, unit = scale_of(metric, drawn)
    axis = _axis_of(scale, drawn)
    for index, policy in enumerate(summary.experiment.policies):
        points = sorted(
            (
                (float(row.group[3]), row.values[metric.name], policy_name(row))
                for row in rows
                if row.policy == policy and metric.name in row.values and row.group[3] is not None
            ),
            key=lambda point: point[0],
        )
        if not points:
            continue
        loads = [load for load, _, _ in points]
        _add_band(figure, loads, [value for _, value, _ in points], axis, index)
        figure.add_scatter(
            x=loads,
            y=[value.value * scale for _, value, _ in points],
            name=safe(points[0][2]),
            mode="lines+markers",
            line=line(index),
            marker={"size": 6, "color": colour(index)},
            hovertemplate=f"%{{y:,.4g}} {unit} at load %{{x:g}}",
        )
    styled(figure, title, height=420, showlegend=True)
    figure.update_xaxes(title_text="offered load")
    figure.update_yaxes(title_text=f"{metric.title} ({unit})" if unit else metric.title, **axis.layout)
    return figure


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """How the values of a metric are drawn: on a logarithmic scale where they differ by more than one shows."""

    scale: float
    least: float | None
    """The smallest value of a logarithmic axis, to which bounds that it can't show are raised."""
    most: float = 0.0
    """The largest bound that is drawn."""

    @property
    def layout(self) -> dict[str, object]:
        return {"rangemode": "tozero"} if self.least is None else log_ticks(self.least, self.most)

    def at(self, value: float) -> float:
        """Where a value or a bound is drawn."""
        return value * self.scale if self.least is None else max(value * self.scale, self.least)

    def error(self, value: Interval) -> dict[str, object]:
        """The interval around a point."""
        if value.low is None or value.high is None:
            return {}
        middle = self.at(value.value)
        return _error(
            Interval(value=middle, low=min(self.at(value.low), middle), high=max(self.at(value.high), middle)), 1.0
        )


def _axis_of(scale: float, values: Sequence[Interval]) -> _Axis:
    known = [value.value * scale for value in values]
    is_wide = bool(known) and min(known) > 0 and max(known) > WIDE * min(known)
    most = max((scale * (value.high or value.value) for value in values), default=0.0)
    return _Axis(scale=scale, least=min(known) / 2 if is_wide else None, most=most)


def _add_band(figure: go.Figure, x: Sequence[float], values: Sequence[Interval], axis: _Axis, index: int) -> None:
    if any(value.low is None or value.high is None for value in values) or len(x) < 2:
        return
    upper = [axis.at(value.high or 0.0) for value in values]
    lower = [axis.at(value.low or 0.0) for value in values]
    figure.add_scatter(
        x=[*x, *reversed(x)],
        y=[*upper, *reversed(lower)],
        fill="toself",
        fillcolor=colour(index),
        opacity=0.15,
        line={"width": 0, "color": colour(index)},
        mode="lines",
        hoverinfo="skip",
        showlegend=False,
        name=f"band {index}",
    )


def pareto(
    summary: ExperimentSummary, across: NamedMetric, up: NamedMetric, rows: Sequence[PolicySummary], title: str
) -> go.Figure:
    """Two metrics against each other with their intervals; the line joins policies that no other beats in both."""
    known = [row for row in rows if across.name in row.values and up.name in row.values]
    figure = go.Figure()
    x_scale, x_unit = scale_of(across, [row.values[across.name] for row in known])
    y_scale, y_unit = scale_of(up, [row.values[up.name] for row in known])
    x_axis = _axis_of(x_scale, [row.values[across.name] for row in known])
    y_axis = _axis_of(y_scale, [row.values[up.name] for row in known])
    front = pareto_front(across, up, known)
    figure.add_scatter(
        x=[row.values[across.name].value * x_scale for row in front],
        y=[row.values[up.name].value * y_scale for row in front],
        mode="lines",
        line={"color": "#888888", "dash": "dot", "width": 1.5},
        name="Pareto front",
        hoverinfo="skip",
    )
    for row in known:
        index = summary.experiment.policies.index(row.policy)
        x, y = row.values[across.name], row.values[up.name]
        figure.add_scatter(
            x=[x.value * x_scale],
            y=[y.value * y_scale],
            error_x=x_axis.error(x),
            error_y=y_axis.error(y),
            mode="markers",
            marker={"size": 9, "color": colour(index)},
            line={"color": colour(index)},
            name=safe(policy_name(row)),
            hovertemplate="%{x:,.4g}, %{y:,.4g}",
        )
    styled(figure, title, height=460, showlegend=True)
    figure.update_xaxes(title_text=f"{across.title} ({x_unit})" if x_unit else across.title, **x_axis.layout)
    figure.update_yaxes(title_text=f"{up.title} ({y_unit})" if y_unit else up.title, **y_axis.layout)
    return figure


def pareto_front(across: NamedMetric, up: NamedMetric, rows: Sequence[PolicySummary]) -> list[PolicySummary]:
    """The policies that no other beats in both metrics, from the best in the first on; caveats leave a policy out."""

    def cost(row: PolicySummary, metric: NamedMetric) -> float:
        value = row.values[metric.name].value
        return -value if metric.better is Direction.HIGH else value

    front: list[PolicySummary] = []
    for row in sorted((r for r in rows if not r.has_caveat), key=lambda r: (cost(r, across), cost(r, up))):
        if not front or cost(row, up) < cost(front[-1], up):
            front.append(row)
    return front


def _error(value: Interval, scale: float) -> dict[str, object]:
    if value.low is None or value.high is None:
        return {}
    return {
        "type": "data",
        "symmetric": False,
        "array": [(value.high - value.value) * scale],
        "arrayminus": [(value.value - value.low) * scale],
        "thickness": 1,
    }


def ratio_forest(summary: ExperimentSummary, metric: NamedMetric) -> go.Figure:
    """Each policy's ratio to the baseline over all workloads, with its 95% interval."""
    found = [(policy, pair.ratio) for policy, pair in summary.overall[metric.name].items() if pair.ratio is not None]
    figure = go.Figure()
    for place, (policy, ratio) in enumerate(reversed(found)):
        index = summary.experiment.policies.index(policy)
        figure.add_scatter(
            x=[ratio.value],
            y=[place],
            error_x=_error(ratio, 1.0),
            mode="markers",
            marker={"size": 8, "color": colour(index)},
            line={"color": colour(index)},
            name=safe(policy),
            showlegend=False,
            hovertemplate="%{x:.3f}",
        )
    reference = safe(summary.experiment.reference)
    styled(figure, f"{metric.title}: ratio to {reference}", height=140 + 26 * len(found), showlegend=False)
    figure.add_vline(x=1.0, line={"color": INK, "dash": "dot", "width": 1})
    figure.update_xaxes(title_text=f"ratio to {reference}, same jobs (geometric mean, 95%)")
    bounds = [bound for _, ratio in found for bound in (ratio.low or ratio.value, ratio.high or ratio.value)]
    if bounds and max(*bounds, 1.0) > WIDE_RATIO * min(*bounds, 1.0):
        figure.update_xaxes(**log_ticks(min(*bounds, 1.0), max(*bounds, 1.0)))
    names = [safe(starred(summary, policy)) for policy, _ in reversed(found)]
    figure.update_yaxes(tickvals=list(range(len(names))), ticktext=names, range=[-0.6, len(names) - 0.4])
    return figure


def critical_difference(summary: ExperimentSummary, metric: NamedMetric, ranks: RankComparison) -> go.Figure:
    """Mean ranks along a line; a bar joins policies whose ranks differ by less than the critical difference."""
    order = sorted(ranks.ranks, key=lambda policy: (-ranks.ranks[policy], policy))
    figure = go.Figure()
    for place, policy in enumerate(order):
        index = summary.experiment.policies.index(policy)
        figure.add_scatter(
            x=[ranks.ranks[policy]],
            y=[place],
            mode="markers",
            marker={"size": 9, "color": colour(index)},
            line={"color": colour(index)},
            name=safe(policy),
            showlegend=False,
            hovertemplate="mean rank %{x:.2f}",
        )
    for group in ranks.indistinct():
        places = [order.index(policy) for policy in group]
        edge = min(ranks.ranks[policy] for policy in group) - 0.12
        figure.add_scatter(
            x=[edge, edge],
            y=[min(places), max(places)],
            mode="lines",
            line={"color": "#888888", "width": 4},
            showlegend=False,
            name="not told apart",
            hoverinfo="skip",
        )
    styled(figure, f"Mean rank by {metric.title}", height=140 + 26 * len(order), showlegend=False)
    figure.update_xaxes(title_text=f"mean rank over {ranks.blocks} workloads, 1 is best")
    names = [safe(starred(summary, policy)) for policy in order]
    figure.update_yaxes(tickvals=list(range(len(names))), ticktext=names, range=[-0.6, len(names) - 0.4])
    return figure
