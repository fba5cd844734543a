"""A page with a plan: its stages' loads and memory, and the simulated step as a Gantt chart."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from rota.core.errors import RotaError
from rota.planner.description.problem import PlanningProblem
from rota.planner.plan import PlacementPlan
from rota.planner.simulate.report import PlanReport
from rota.planner.simulate.tasks import StepTimeline

_COLOURS = {
    "compute": "#4c78a8",
    "forward": "#4c78a8",
    "backward": "#f58518",
    "recompute": "#eeca3b",
    "transfer": "#54a24b",
    "swap": "#b279a2",
    "all-reduce": "#e45756",
}
_MOST_SPANS = 20_000


def write_figure(target: Path, problem: PlanningProblem, plans: Sequence[tuple[PlacementPlan, PlanReport]]) -> None:
    """Write one page for one or more plans of a problem; it needs no network to be read."""
    import plotly.io

    parts = []
    for number, (plan, report) in enumerate(plans):
        title = f"{plan.planner}: {plan.objective.value} {plan.value_ms:.3f} ms"
        figure = _figure(problem, plan, report, title)
        parts.append(plotly.io.to_html(figure, full_html=False, include_plotlyjs=number == 0))
    page = (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        f"<title>Plan of {escape(problem.graph.source)}</title></head><body>{''.join(parts)}</body></html>"
    )
    try:
        target.write_text(page, encoding="utf-8")
    except OSError as err:
        raise RotaError(f"{target}: {err.strerror or err}") from err


def _figure(problem: PlanningProblem, plan: PlacementPlan, report: PlanReport, title: str) -> Any:
    from plotly.subplots import make_subplots

    figure = make_subplots(
        rows=3,
        cols=1,
        row_heights=[0.25, 0.5, 0.25],
        vertical_spacing=0.09,
        subplot_titles=("load of each stage in ms", f"one step: {report.step_ms:.3f} ms", "memory in GiB"),
    )
    names = [", ".join(stage.devices[:2]) + (" ..." if len(stage.devices) > 2 else "") for stage in plan.stages]
    for key, label, colour in (("compute_ms", "compute", "compute"), ("transfer_ms", "transfers", "transfer")):
        values = [getattr(stage, key) / len(stage.devices) for stage in plan.stages]
        figure.add_bar(x=names, y=values, name=label, marker_color=_COLOURS[colour], row=1, col=1)
    _add_spans(figure, report.timeline)
    for device, curve in report.timeline.memory.items():
        moments, held = zip(*curve, strict=True)
        shown = [count / 2**30 for count in held]
        figure.add_scatter(x=moments, y=shown, name=device, line_shape="hv", showlegend=False, row=3, col=1)
    figure.update_layout(barmode="stack", title=title, height=900, template="plotly_white")
    figure.update_xaxes(title_text="ms", row=3, col=1)
    return figure


def _add_spans(figure: Any, timeline: StepTimeline) -> None:
    spans = sorted(timeline.spans, key=lambda span: span.start_ms - span.end_ms)[:_MOST_SPANS]
    for kind in dict.fromkeys(span.kind for span in spans):
        chosen = [span for span in spans if span.kind == kind and span.end_ms > span.start_ms]
        figure.add_bar(
            x=[span.end_ms - span.start_ms for span in chosen],
            y=[span.resource for span in chosen],
            base=[span.start_ms for span in chosen],
            orientation="h",
            name=kind,
            hovertext=[span.name for span in chosen],
            marker_color=_COLOURS.get(kind, "#9d9da1"),
            marker_line_width=0.3,
            row=2,
            col=1,
        )
