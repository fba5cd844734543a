"""`rota experiment`: a grid of simulations, resumed where it stopped, with intervals and paired comparisons."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rota.cli.render import Column, OutputFormat, emit, progress
from rota.cli.study.experiment_options import ExperimentOptions, signature
from rota.cli.terminal import echo
from rota.core.errors import RotaError

if TYPE_CHECKING:
    from rota.experiments.runner import ExperimentOutcome
    from rota.experiments.summary import ExperimentSummary
    from rota.scenario import Experiment

FAILED_SHOWN = 5


def experiment(**given: Any) -> int:
    """Run a grid of simulations over policies, workloads, clusters, loads and seeds.

    Results are kept in a folder as each run ends. The same command continues where it was stopped.

    Examples:

      rota experiment study.yaml --processes 8

      rota experiment --trace philly-like --cluster gpu=64/8 --policy fifo --policy las --load 0.7 --load 0.9 --seeds 5

      rota experiment study.yaml --option restart_cost=60s --out slow-restarts --figures

      rota experiment study.yaml --metric avg_jct_s --metric p99_ftf_fluid -o csv

      rota experiment --list-metrics
    """
    options = ExperimentOptions(**given)
    if options.list_metrics:
        _print_metrics(options.output)
        return 0
    fields = {
        "policies": options.policy,
        "traces": options.trace,
        "clusters": options.cluster,
        "loads": options.load,
        "seeds": _seeds(options.seed, options.seeds),
        "jobs": options.jobs,
        "warm_up": options.warm_up,
        "cool_down": options.cool_down,
        "baseline": options.baseline,
        **_metrics(options.metric or []),
    }
    named = {name: value for name, value in fields.items() if value}
    given = _options([*(options.option or []), *([f"format={options.columns}"] if options.columns else [])])
    defined = _defined(options.file, named, given)
    folder = options.out or Path(f"{defined.name}-results")
    return _run(defined, folder, options.processes, with_figures=options.figures, output=options.output)


experiment.__signature__ = signature()  # type: ignore[attr-defined] # Typer reads the options from it


def _seeds(seed: list[int] | None, seeds: int | None) -> object:
    if seed and seeds:
        raise RotaError(f"--seeds {seeds} counts seeds from 0, and --seed {seed[0]} names one; give one of them")
    return tuple(seed) if seed else seeds


def _metrics(names: list[str]) -> dict[str, tuple[str, ...]]:
    """Metrics by name, and those of the user's own, which are files."""
    own = tuple(name for name in names if ".py:" in name)
    return {"metrics": tuple(name for name in names if name not in own), "own_metrics": own}


def _options(texts: list[str]) -> dict[str, str | bool]:
    found: dict[str, str | bool] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise RotaError(f"--option {text}: write it as NAME=VALUE, such as restart_cost=30s")
        if name in found:
            raise RotaError(f"--option {name} is given twice; to compare both, name them as variants in a file")
        found[name] = {"true": True, "false": False}.get(value, value)
    return found


def _defined(file: Path | None, given: Mapping[str, Any], options: Mapping[str, Any]) -> Experiment:
    """The experiment of the file, if there is one, with what the command line gives over it."""
    from rota.experiments.experiment_file import experiment_from, read_experiment_file

    fields: dict[str, Any] = dict(read_experiment_file(file)) if file is not None else {"name": "experiment"}
    for name, way_out in (("policies", "--policy NAME"), ("traces", "--trace FILE"), ("clusters", "--cluster SPEC")):
        if not fields.get(name) and not given.get(name):
            raise RotaError(
                f"state the {name} of the experiment with {way_out}, or in a file: rota experiment FILE.yaml"
            )
    fields |= given
    fields["options"] = {**fields.get("options", {}), **options}
    return experiment_from(fields, file or Path("rota experiment"))


def _run(defined: Experiment, folder: Path, processes: int, *, with_figures: bool, output: OutputFormat) -> int:
    from rota.experiments.report import write_experiment_report
    from rota.experiments.runner import run_experiment
    from rota.experiments.summary import summarise

    if with_figures:
        from rota.report.paper import refuse_without_matplotlib

        refuse_without_matplotlib()
    with progress("simulating", 1.0, show_after_s=1.0) as bar:
        outcome = run_experiment(
            defined, folder, processes=processes, progress=lambda done, total: bar.update(done, total=total)
        )
    _tell(outcome)
    if outcome.table.height:
        summary = summarise(defined, outcome.table, folder)
        command = shlex.join(["rota", *sys.argv[1:]])
        write_experiment_report(folder, summary, command, with_figures=with_figures)
        _print(summary, outcome, output)
        echo(
            f"report: {folder / 'report.html'}, tables: {folder / 'tables.md'}, rows: {folder / 'results.parquet'}",
            err=True,
        )
    return 1 if outcome.failed else 0


def _tell(outcome: ExperimentOutcome) -> None:
    if outcome.reused:
        echo(f"{outcome.reused:,} of {outcome.runs:,} runs were there already", err=True)
    if outcome.other_versions:
        echo(
            f"note: some rows are of other versions ({', '.join(outcome.other_versions)}); "
            "for rows of one version use a new --out",
            err=True,
        )
    for point, error in outcome.failed[:FAILED_SHOWN]:
        place = point.setting
        echo(f"failed: {point.policy} on {place.trace}, load {place.load}, seed {place.seed}: {error}", err=True)
    if len(outcome.failed) > FAILED_SHOWN:
        echo(f"failed: {len(outcome.failed) - FAILED_SHOWN:,} more runs", err=True)


def _print(summary: ExperimentSummary, outcome: ExperimentOutcome, output: OutputFormat) -> None:
    """Print the tables for people, or every row for programs."""
    if output in (OutputFormat.JSON, OutputFormat.CSV):
        emit(outcome.table.to_dicts(), [], output)
        return
    from rota.experiments.summary import note_lines
    from rota.experiments.text_tables import CAVEAT, tables_of

    for number, table in enumerate(tables_of(summary)):
        if number:
            echo()
        echo(table.title)
        columns = [Column(key=str(at), title=head, right=at > 1) for at, head in enumerate(table.heads)]
        emit([{str(at): cell for at, cell in enumerate(row)} for row in table.rows], columns, output)
    for line in note_lines(summary):
        echo(f"note: {line}", err=True)
    if any(row.has_caveat for row in summary.rows):
        echo(f"{CAVEAT} compare this policy only with its note in mind", err=True)


def _print_metrics(output: OutputFormat) -> None:
    from rota.report.named_metrics import METRICS_BY_NAME

    rows = [
        {"metric": each.name, "formula": each.formula, "unit": each.unit.value, "better": each.better.value}
        for each in METRICS_BY_NAME.values()
    ]
    emit(rows, [Column(key="metric"), Column(key="formula"), Column(key="unit"), Column(key="better")], output)
