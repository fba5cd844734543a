"""The tables of an experiment as Markdown and LaTeX, for papers and notes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rota.experiments.number_format import load_text, scale_of, shown
from rota.experiments.statistics import RankComparison
from rota.experiments.summary import ExperimentSummary, PolicySummary, note_lines
from rota.report.named_metrics import Direction, MetricUnit, NamedMetric

CAVEAT = "*"
_LATEX = {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}"}
_LATEX |= {"±": r"$\pm$", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}", "<": r"$<$", ">": r"$>$"}
_SPECIAL = re.compile("|".join(re.escape(char) for char in _LATEX))


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """A table as plain text: a title, heads, rows, and which cells are the best of their group."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    best: frozenset[tuple[int, int]] = frozenset()
    """Row and column of the best values."""

    def markdown(self) -> str:
        """The table for a Markdown file."""
        lines = [f"### {self.title}", "", _bar(self.heads), _bar(["---"] * len(self.heads))]
        for number, row in enumerate(self.rows):
            lines.append(_bar([f"**{cell}**" if (number, at) in self.best else cell for at, cell in enumerate(row)]))
        return "\n".join(lines) + "\n"

    def latex(self) -> str:
        """The table for LaTeX, with the rules of booktabs."""
        columns = "l" * 2 + "r" * (len(self.heads) - 2)
        lines = [
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            _row([_escaped(head) for head in self.heads]),
            r"\midrule",
        ]
        for number, row in enumerate(self.rows):
            cells = [
                rf"\textbf{{{_escaped(cell)}}}" if (number, at) in self.best else _escaped(cell)
                for at, cell in enumerate(row)
            ]
            lines.append(_row(cells))
        return "\n".join([f"% {self.title}", *lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _bar(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda found: _LATEX[found[0]], text)


def tables_of(summary: ExperimentSummary) -> list[TextTable]:
    """A table of values for each workload and load, one of differences, one of ranks."""
    groups = list(dict.fromkeys(row.group for row in summary.rows))
    tables = [_values(summary, group) for group in groups]
    if len(summary.experiment.policies) > 1:
        tables.append(differences(summary))
        tables.append(rank_table(summary))
    return [table for table in tables if table.rows]


def group_name(summary: ExperimentSummary, group: tuple[object, ...]) -> str:
    """A workload and load as headings name them; what never varies is left out."""
    experiment = summary.experiment
    *place, load = group
    parts = [place_name(summary, place)]
    if len(experiment.loads) > 1 or load is not None:
        parts.append(f"load {load_text(load)}")  # type: ignore[arg-type] # a load is a number or None
    return ", ".join(parts)


def place_name(summary: ExperimentSummary, place: Sequence[object]) -> str:
    """A workload at any load, with its cluster and variant where these vary."""
    experiment = summary.experiment
    trace, cluster, variant = place
    parts = [str(trace).rpartition("/")[2]]
    if len(experiment.clusters) > 1:
        parts.append(str(cluster))
    if len(experiment.variants) > 1:
        parts.append(str(variant))
    return ", ".join(parts)


def policy_name(row: PolicySummary) -> str:
    """The policy, with an asterisk if its figures are not comparable without a caveat."""
    return row.policy + (CAVEAT if row.has_caveat else "")


def _values(summary: ExperimentSummary, group: tuple[object, ...]) -> TextTable:
    rows = [row for row in summary.rows if row.group == group]
    heads, columns = ["policy", "seeds"], []
    for metric in summary.metrics:
        values = [row.values[metric.name] for row in rows if metric.name in row.values]
        if not values:
            continue
        scale, unit = scale_of(metric, values)
        heads.append(f"{metric.title} ({unit})" if unit else metric.title)
        columns.append((metric, scale))
    table = [
        (
            policy_name(row),
            str(row.seeds),
            *(shown(row.values[metric.name], scale) if metric.name in row.values else "-" for metric, scale in columns),
        )
        for row in rows
    ]
    best = frozenset(
        (number, at) for at, (metric, _) in enumerate(columns, start=2) if (number := _best(metric, rows)) is not None
    )
    return TextTable(title=group_name(summary, group), heads=tuple(heads), rows=tuple(table), best=best)


def _best(metric: NamedMetric, rows: Sequence[PolicySummary]) -> int | None:
    """The row of the best value among policies that are comparable; None where none is better."""
    known = [
        (row.values[metric.name].value, number)
        for number, row in enumerate(rows)
        if metric.name in row.values and not row.has_caveat
    ]
    if metric.better is Direction.NONE or len({value for value, _ in known}) < 2:
        return None
    return (min if metric.better is Direction.LOW else max)(known)[1]


def starred(summary: ExperimentSummary, policy: str) -> str:
    """The policy, with an asterisk if its figures on some workload are not comparable without a caveat."""
    return policy + (CAVEAT if any(row.has_caveat for row in summary.rows if row.policy == policy) else "")


def differences(summary: ExperimentSummary) -> TextTable:
    """Each policy against the baseline over all workloads and seeds, pair by pair."""
    rows = []
    for metric in summary.metrics:
        for policy, pair in summary.overall[metric.name].items():
            p_value = summary.p_values[metric.name][policy]
            scale, unit = scale_of(metric, [pair.difference])
            unit = "points" if metric.unit is MetricUnit.FRACTION else unit  # a change of 2% could be one of the ratio
            rows.append(
                (
                    starred(summary, policy),
                    metric.title,
                    "-" if pair.ratio is None else shown(pair.ratio, 1.0),
                    f"{shown(pair.difference, scale)} {unit}".strip(),
                    f"{pair.lower} of {pair.pairs}",
                    "-" if p_value is None else f"{p_value:.3f}" if p_value >= 0.001 else "< 0.001",
                )
            )
    heads = ("policy", "metric", "ratio", "difference", "lower in", "p (Holm)")
    return TextTable(title=f"Against {summary.experiment.reference}, on the same jobs", heads=heads, rows=tuple(rows))


def rank_table(summary: ExperimentSummary) -> TextTable:
    """Mean ranks over all workloads and seeds, with the critical difference: of the table where it is one for all."""
    found = {metric: summary.ranks[metric.name] for metric in summary.metrics if metric.name in summary.ranks}
    differences = {_critical(ranks) for ranks in found.values()}
    (shared,) = differences if len(differences) == 1 else ("",)
    heads = ["policy", "workloads"]
    heads += [metric.title + ("" if shared else _critical(ranks)) for metric, ranks in found.items()]
    rows = [
        (
            starred(summary, policy),
            str(next(iter(found.values())).blocks),
            *(f"{ranks.ranks[policy]:.2f}" for ranks in found.values()),
        )
        for policy in summary.experiment.policies
        if found
    ]
    return TextTable(title=f"Mean rank, 1 is best{shared}", heads=tuple(heads), rows=tuple(rows))


def _critical(ranks: RankComparison) -> str:
    return "" if ranks.critical_difference is None else f" (CD {ranks.critical_difference:.2f})"


def latex_file(summary: ExperimentSummary, tables: Sequence[TextTable]) -> str:
    """All tables, with the notes that limit what they say as comments: a table that is copied shows the asterisks."""
    comments = [f"% {line}" for line in note_lines(summary)]
    if any(row.has_caveat for row in summary.rows):
        comments.append(f"% {CAVEAT} compare this policy only with its note in mind")
    head = "% For a document with \\usepackage{booktabs}.\n"
    return "\n".join([head + "".join(f"{line}\n" for line in comments), *(table.latex() for table in tables)])
