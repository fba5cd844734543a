"""The files that `rota sim` writes: each policy's tables beside its journal, one report, and figures for papers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rota.cli.study.runs import Finished
from rota.report.html import write_report
from rota.report.runs import RunReport
from rota.report.tables import write_jobs


def write_results(
    out: Path | None,
    figures: Path | None,
    finished: Sequence[Finished],
    folders: Sequence[Path | None],
    command: str,
    notes: Sequence[str],
) -> None:
    """Write tables, report and figures of runs that kept their history."""
    runs = []
    for run, folder in zip(finished, folders, strict=True):
        if run.history is None or run.timeline is None:
            continue
        if folder is not None:
            write_jobs(run.history, folder)
        runs.append(
            RunReport(
                name=run.scenario.policy,
                scenario=run.scenario,
                metrics=run.metrics,
                tenants=run.tenants,
                history=run.history,
                timeline=run.timeline,
                more=run.more,
                failures=run.failures,
            )
        )
    facts = {"notes": "; ".join(notes)} if notes else {}
    write_report(None if out is None else out / "report.html", runs, command, facts, figures=figures)
