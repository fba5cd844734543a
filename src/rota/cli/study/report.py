"""`rota report`: one page with the figures of journals."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota.cli.render import FiguresOption, MetricOption, OutputFormat, OutputOption, emit, progress, refuse_figures
from rota.cli.terminal import echo
from rota.core.errors import RotaError

if TYPE_CHECKING:
    from rota.plugins import Plugin
    from rota.report.runs import RunReport
    from rota.store.journal import JournalHeader


def report(
    journals: Annotated[list[Path], typer.Argument(help="Journals to compare.", metavar="JOURNAL")],
    out: Annotated[Path, typer.Option(help="Where to write the page.", metavar="FILE")] = Path("report.html"),
    figures: FiguresOption = None,
    metric: MetricOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Draw the figures of one or more journals on one page, and print their summary.

    Examples:

      rota report results/journal.jsonl

      rota report results/fifo/journal.jsonl results/las/journal.jsonl --out compared.html

      rota report results/journal.jsonl --figures paper/figures
    """
    from rota.cli.study.summary import columns_with, summary_row
    from rota.report.html import write_report
    from rota.report.user_metrics import user_metrics
    from rota.store.journal import JournalReader

    _refuse_twins(journals)
    _refuse_lost_work(out)
    if figures is not None:
        refuse_figures(figures)
    metrics = user_metrics(metric or ())
    headers = [JournalReader(path).header for path in journals]
    names = _names([header.scenario.policy for header in headers], journals)
    runs = [
        replace(_replayed(path, header, metrics), name=name)
        for path, header, name in zip(journals, headers, names, strict=True)
    ]
    command = shlex.join(["rota", "report", *map(str, journals), "--out", str(out)])
    about = dict.fromkeys(header.about for header in headers if header.about)
    write_report(out, runs, command, _notes(journals, list(about)), figures=figures)
    rows = [
        _as_journalled(summary_row(run.name, run.metrics, run.tenants, events=run.timeline.events, wall_s=None))
        | {"placement": run.scenario.placement, "journal": str(path)}
        | dict(run.more)
        for run, path in zip(runs, journals, strict=True)
    ]
    emit(
        rows,
        [column for column in columns_with(runs[0].more) if column.key in rows[0] and column.key != "wall_s"],
        output,
    )
    echo(f"report: {out}", err=True)
    if figures is not None:
        echo(f"figures: {figures}", err=True)


def _as_journalled(row: dict[str, Any]) -> dict[str, Any]:
    """The row without `gpu_busy`, which is not in a journal."""
    del row["gpu_busy"]
    for figures in row["tenants"].values():
        del figures["gpu_busy"]
    return row


def _refuse_twins(journals: Sequence[Path]) -> None:
    for index, path in enumerate(journals):
        if path in journals[:index]:
            raise RotaError(f"journal {path} is given twice")


def _refuse_lost_work(out: Path) -> None:
    """Refuse early a page that can't be written, as replaying takes long."""
    if out.is_dir():
        raise RotaError(f"--out {out}: it is a folder; name a file in it, such as {out / 'report.html'}")
    if not out.parent.is_dir():
        raise RotaError(f"--out {out}: there is no folder {out.parent}")


def _names(policies: Sequence[str], journals: Sequence[Path]) -> list[str]:
    """The name of each run: its policy, with the journal's path where policies are equal."""
    return [
        policy if policies.count(policy) == 1 else f"{policy} ({path})"
        for policy, path in zip(policies, journals, strict=True)
    ]


def _replayed(path: Path, header: JournalHeader, metrics: Sequence[Plugin]) -> RunReport:
    from rota.drivers.simulator.replay import replay
    from rota.report.metrics import measure, measure_tenants
    from rota.report.runs import RunReport
    from rota.report.timeline import Timeline
    from rota.report.user_metrics import measure_by

    timeline = Timeline(header.cluster)
    with progress(f"replaying {path}") as bar:
        outcome = replay(path, journal=timeline, progress=bar.update)
    if outcome.mismatch is not None:
        at = outcome.mismatch
        echo(
            f"warning: {path}: {outcome.policy} now decides differently at step {at.step} ({at.now_s:g} s); "
            "the report ends there",
            err=True,
        )
    if not outcome.history.jobs:
        raise RotaError(f"{path}: there is no job in this journal")
    left = sum(row.end_s is None for row in outcome.history.jobs)
    if left and outcome.mismatch is None:
        jobs = len(outcome.history.jobs)
        echo(f"note: {path}: {left:,} of {jobs:,} jobs have no end: the journal is of a part of a run", err=True)
    return RunReport(
        name=outcome.policy,
        scenario=header.scenario,
        metrics=measure(outcome.history),
        tenants=measure_tenants(outcome.history),
        history=outcome.history,
        timeline=timeline,
        more=measure_by(metrics, outcome.history),
    )


def _notes(journals: Sequence[Path], about: Sequence[str]) -> dict[str, str]:
    notes = {"journals" if len(journals) > 1 else "journal": ", ".join(map(str, journals))}
    if about:
        notes["about"] = "; ".join(about)
    return notes
