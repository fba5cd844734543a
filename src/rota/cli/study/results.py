"""What `rota sim` leaves behind: each policy's tables beside its journal, one report, and figures for papers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rota.cli.study.request import Finished, SimRequest
from rota.report.html import write_report
from rota.report.runs import RunReport
from rota.report.tables import write_jobs


def write_results(
    out: Path | None,
    figures: Path | None,
    finished: Sequence[Finished],
    folders: Sequence[Path | None],
    command: str,
    request: SimRequest,
    told: Sequence[str],
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
                name=run.policy,
                metrics=run.metrics,
                tenants=run.tenants,
                history=run.history,
                timeline=run.timeline,
                placement=run.placement,
            )
        )
    notes = {
        "trace": str(request.trace),
        "cluster": request.cluster or "the trace's own",
        "seed": str(request.seed),
        "restart cost": f"{request.restart_cost_s:g} s",
        "checkpoint interval": f"{request.checkpoint_interval_s:g} s",
        "checkpoint time": f"{request.checkpoint_s:g} s",
        "load time": f"{request.load_s:g} s",
        "save time": f"{request.save_s:g} s",
    }
    if told:
        notes["notes"] = "; ".join(told)
    write_report(None if out is None else out / "report.html", runs, command, notes, figures=figures)
