"""The report of an experiment: a page, tables for papers, and figures as vector files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rota.experiments import figures
from rota.experiments.number_format import load_text
from rota.experiments.provenance import provenance
from rota.experiments.summary import ExperimentSummary, PolicySummary, note_lines
from rota.experiments.text_tables import CAVEAT, TextTable, group_name, latex_file, place_name, tables_of
from rota.report.look import slug
from rota.report.named_metrics import METRICS_BY_NAME
from rota.report.page import Plot, Section, page
from rota.report.summary_table import SummaryTable, TableCell, TableHead

FAIRNESS = "p99_ftf_fluid"
SPEED = "avg_jct_s"


def write_experiment_report(
    out: Path, summary: ExperimentSummary, command: str, *, with_figures: bool = False
) -> list[Path]:
    """Write `report.html`, `tables.md` and `tables.tex`, and with figures a folder of PDF and SVG; return the files."""
    tables = tables_of(summary)
    sections = sections_of(summary, tables)
    lead = _lead(summary)
    name = summary.experiment.name
    title = "Rota: experiment" if name == "experiment" else f"Rota: experiment {name}"
    html = page(title, lead, sections, _facts(summary), command)
    written = {
        "report.html": html,
        "tables.md": "\n".join(
            [f"# {summary.experiment.name}\n", f"{lead}\n", *(t.markdown() for t in tables), _legend(summary)]
        ),
        "tables.tex": latex_file(summary, tables),
    }
    for name, text in written.items():
        (out / name).write_text(text, encoding="utf-8")
    files = [out / name for name in written]
    if with_figures:
        from rota.report.paper import write_figures

        files += write_figures(out / "figures", [plot for section in sections for plot in section.plots])
    return files


def _lead(summary: ExperimentSummary) -> str:
    experiment = summary.experiment
    counts = (
        (len(experiment.policies), "policies"),
        (len(experiment.traces), "workloads"),
        (len(experiment.clusters), "clusters"),
        (len(experiment.loads), "loads"),
        (len(experiment.variants), "variants"),
        (len(experiment.seeds), "seeds"),
    )
    grid = " x ".join(f"{count} {what}" for count, what in counts if count > 1)
    measured = str(experiment.window) if experiment.window else "the whole run, with the filling and the drain"
    return f"{summary.runs:,} runs: {grid or 'one point'}. Measured: {measured}; means with 95% intervals over seeds."


def _legend(summary: ExperimentSummary) -> str:
    lines = ["## Metrics", ""]
    lines += [f"- {metric.title} (`{metric.name}`): {metric.formula}" for metric in summary.metrics]
    lines += [
        "",
        "A quantile's interval is a bootstrap over seeds and jobs; other intervals are Student's over seeds.",
        "",
    ]
    if summary.notes:
        lines += ["## Notes", ""]
        lines += [f"- {line}" for line in note_lines(summary)]
    if any(row.has_caveat for row in summary.rows):
        lines += ["", f"{CAVEAT} compare this policy only with its note in mind."]
    return "\n".join(lines) + "\n"


def sections_of(summary: ExperimentSummary, tables: Sequence[TextTable]) -> list[Section]:
    """The sections of the page."""
    values = [table for table in tables if table.best or table.heads[:2] == ("policy", "seeds")]
    others = [table for table in tables if table not in values]
    sections = [
        Section(
            title="Summary",
            text="Formulas: " + "; ".join(f"{metric.title}: {metric.formula}" for metric in summary.metrics) + ".",
            tables=[_html_table(table) for table in values],
        )
    ]
    notes = note_lines(summary)
    if notes:
        sections.append(
            Section(title="Notes", text=" ".join(f"({n}) {text}." for n, text in enumerate(notes, start=1)))
        )
    if others:
        sections.append(
            Section(
                title="Comparison",
                text="Differences are between runs on the same jobs. Ranks: policies whose mean ranks differ by less "
                "than the critical difference (CD, Nemenyi at 5%) are not told apart.",
                tables=[_html_table(table) for table in others],
                plots=_comparison_plots(summary),
                pairs=True,
            )
        )
    sections.append(Section(title="Load", plots=_load_plots(summary)))
    sections.append(Section(title="Speed against fairness", plots=_pareto_plots(summary)))
    return [section for section in sections if section.plots or section.tables or section.text]


def _html_table(table: TextTable) -> SummaryTable:
    return SummaryTable(
        heads=tuple(TableHead(lines=_lines(head), is_number=at > 1) for at, head in enumerate(table.heads)),
        rows=tuple(
            tuple(
                TableCell(text=cell, is_number=at > 1, is_best=(number, at) in table.best)
                for at, cell in enumerate(row)
            )
            for number, row in enumerate(table.rows)
        ),
        title=table.title,
    )


def _lines(head: str) -> tuple[str, ...]:
    """The unit or what else is in brackets on a line of its own, so that many columns fit."""
    title, bracket, rest = head.partition(" (")
    return (title, f"({rest}") if bracket else (title,)


def _comparison_plots(summary: ExperimentSummary) -> list[Plot]:
    first = summary.metrics[0]
    plots = []
    if any(pair.ratio is not None for pair in summary.overall[first.name].values()):
        plots.append(
            Plot(
                name=f"ratio-{first.name}",
                figure=figures.ratio_forest(summary, first),
                caption="Left of the dotted line the value is lower than the baseline's.",
            )
        )
    if first.name in summary.ranks:
        plots.append(
            Plot(
                name=f"ranks-{first.name}",
                figure=figures.critical_difference(summary, first, summary.ranks[first.name]),
                caption="A grey bar joins policies that are not told apart.",
            )
        )
    return plots


def _places(summary: ExperimentSummary) -> dict[tuple[str, str, str], list[PolicySummary]]:
    places: dict[tuple[str, str, str], list[PolicySummary]] = {}
    for row in summary.rows:
        places.setdefault(row.group[:3], []).append(row)
    return places


def _load_plots(summary: ExperimentSummary) -> list[Plot]:
    if len(summary.experiment.loads) < 2:
        return []
    metric = summary.metrics[0]
    plots = []
    for place, rows in _places(summary).items():
        title = place_name(summary, place)
        plots.append(
            Plot(
                name=f"load-{slug(title)}",
                figure=figures.load_curves(summary, metric, rows, f"{title}: {metric.title} by load"),
                caption="Bands are 95% intervals over seeds.",
            )
        )
    return plots


def _pareto_plots(summary: ExperimentSummary) -> list[Plot]:
    names = {metric.name for metric in summary.metrics}
    if len(summary.experiment.policies) < 2 or not {SPEED, FAIRNESS} <= names:
        return []
    across, up = METRICS_BY_NAME[SPEED], METRICS_BY_NAME[FAIRNESS]
    plots = []
    for place, rows in _places(summary).items():
        load = max((row.group[3] for row in rows if row.group[3] is not None), default=None)
        title = group_name(summary, (*place, load))
        chosen = [row for row in rows if row.group[3] == load]
        plots.append(
            Plot(
                name=f"pareto-{slug(title)}",
                figure=figures.pareto(summary, across, up, chosen, title),
                caption="Lower left is better. No other policy beats those on the dotted line in both.",
            )
        )
    return plots


def _facts(summary: ExperimentSummary) -> dict[str, str]:
    experiment = summary.experiment
    origin = {name.replace("_", " "): value for name, value in provenance().items() if value}
    return {
        "policies": ", ".join(experiment.policies),
        "workloads": ", ".join(experiment.traces),
        "clusters": ", ".join(experiment.clusters),
        "loads": ", ".join(load_text(load) for load in experiment.loads),
        "seeds": ", ".join(map(str, experiment.seeds)),
        "window": str(experiment.window),
        "options": ", ".join(f"{name} {value}" for name, value in experiment.options.items()) or "none",
        **origin,
    }
