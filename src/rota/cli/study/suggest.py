"""`rota policies suggest`: which policy suits a trace and a cluster, by what holds there and by simulation."""

from __future__ import annotations

import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rota.cli.human import duration
from rota.cli.render import Column, OutputFormat, emit
from rota.core.errors import RotaError
from rota.scenario import Scenario

if TYPE_CHECKING:
    from rota.cli.study.suggestion import Suggestion


def suggest_policy(
    trace: Path | None, cluster: str | None, *, restart_s: float, jobs: int | None, windows: int, output: OutputFormat
) -> None:
    """Print which assumptions hold, the comparison and the recommendation with its reasons."""
    if trace is None:
        raise RotaError("state which jobs to suggest a policy for with --trace FILE (a trace or a journal)")
    from rota.cli.study.suggestion import suggest
    from rota.drivers.simulator.load import load, read_workload
    from rota.perf.speed.model import Costs

    scenario = Scenario(
        policies=("rota",),
        trace=str(trace),
        cluster=cluster,
        jobs=jobs,
        skip_oversized=True,
        costs=Costs(restart_s=restart_s),
    )
    loaded = load(scenario, read_workload(scenario))
    shown = (lambda policy: typer.echo(f"simulating {policy}", err=True)) if sys.stderr.isatty() else None
    found = suggest(loaded.workload, loaded.setting, windows=windows, progress=shown)
    if output is not OutputFormat.TABLE:
        emit([_record(found)], (), output)
        return
    rows = [
        {"assumption": each.assumption.value, "holds": "yes" if each.holds else "no", "because": each.evidence}
        for each in found.findings
    ]
    emit(rows, [Column(key="assumption"), Column(key="holds"), Column(key="because")], output)
    typer.echo("")
    compared = [
        {
            "policy": each.policy,
            "jct": duration(each.jct_s),
            "over": f"{each.over_best:.2f}" + (f" ± {each.margin:.2f}" if math.isfinite(each.margin) else ""),
            "p99": f"{each.p99_ftf:.2f}",
            "worst": f"{each.worst_ftf:.2f}",
        }
        for each in found.compared
    ]
    titles = {"policy": "policy", "jct": "mean JCT", "over": "over best", "p99": "p99 FTF", "worst": "worst FTF"}
    emit(compared, [Column(key=key, title=title) for key, title in titles.items()], output)
    for policy, why in found.excluded.items():
        typer.echo(f"not compared: {policy} ({why})")
    typer.echo(f"\nrecommended: {found.recommended}")
    for reason in found.reasons:
        typer.echo(f"- {reason}")


def _record(found: Suggestion) -> dict[str, object]:
    """Return the suggestion as JSON can hold it; an interval of a single window is null."""
    return {
        "recommended": found.recommended,
        "reasons": list(found.reasons),
        "findings": [{**asdict(each), "assumption": each.assumption.value} for each in found.findings],
        "excluded": dict(found.excluded),
        "compared": [
            {**asdict(each), "margin": each.margin if math.isfinite(each.margin) else None} for each in found.compared
        ],
    }
