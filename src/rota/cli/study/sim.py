"""`rota sim`: a trace, a cluster and some policies in, their metrics out."""

from __future__ import annotations

import gc
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from rota.cli.render import OutputFormat, emit, progress, refuse_figures
from rota.cli.study.sim_options import SimOptions, given_options, on_command_line, signature
from rota.cli.terminal import echo
from rota.core.errors import RotaError
from rota.core.garbage import collection_paused

if TYPE_CHECKING:
    from rota.cli.study.runs import Finished
    from rota.drivers.simulator.load import LoadedScenario
    from rota.drivers.simulator.notes import RunNote
    from rota.scenario import Scenario


def sim(ctx: typer.Context, **given: Any) -> int:
    """Run a trace through one or more policies and compare them.

    Examples:

      rota sim --trace philly.csv --cluster gpu=440/8 --policy fifo --policy srtf --policy las

      rota sim --trace jobs.csv --cluster v100=8/4,k80=24/4 --policy tiresias:promote=4 --out results

      rota sim --trace jobs.csv --cluster lab.yaml --policy ./mine.py:my_policy --restart-cost 30 -o json

      rota sim --trace jobs.csv --cluster gpu=64/8 --policy fifo --policy srtf --figures paper/figures

      rota sim --trace jobs.csv --cluster v100=8/4,k80=8/4 --policy gavel/max_min_fairness_perf --known-profiles 0.3

      rota sim --trace jobs.csv --cluster gpu=64/8 --policy fifo --failures rsc-1:spares=1 --checkpoint-interval 1h

      rota sim --scenario shared.yaml --policy antman

      rota sim --replay results/journal.jsonl
    """
    options = SimOptions(**given)
    if options.replay is not None:
        _refuse_beside_replay(ctx)
        from rota.cli.study.replay import replay_journal

        return replay_journal(options.replay, options.output)
    with collection_paused():
        scenario = _scenario(ctx, options)
        if scenario.trace is None:
            raise RotaError("state which workload to simulate with --trace FILE (or --replay JOURNAL)")
        if not scenario.policies:
            raise RotaError("state which policies to compare with --policy NAME; `rota policies` lists them")
        _run(scenario, options)
    gc.freeze()  # nothing is left to collect, and the end of the process would look for it
    return 0


sim.__signature__ = signature()  # type: ignore[attr-defined] # Typer reads the options from it


def _refuse_beside_replay(ctx: typer.Context) -> None:
    """Refuse options that a replay would ignore: all but the form of its output."""
    ignored = [name for name in on_command_line(ctx) if name not in ("replay", "output")]
    if ignored:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in ignored)
        raise RotaError(f"--replay takes the whole scenario from the journal and writes no files; leave out {names}")


def _scenario(ctx: typer.Context, options: SimOptions) -> Scenario:
    """The scenario of the file, if there is one, with what the command line gives over it."""
    from rota.files.scenario_file import merged, read_scenario_file, scenario_from

    given = given_options(ctx)
    if options.scenario is None:
        return scenario_from(given, Path("rota sim"))
    return scenario_from(merged(read_scenario_file(options.scenario), given), options.scenario)


def _run(scenario: Scenario, options: SimOptions) -> None:
    from rota.cli.study.out_folder import claimed
    from rota.cli.study.parallel import run_all
    from rota.cli.study.runs import Keep, prepare
    from rota.drivers.simulator.notes import scenario_notes
    from rota.drivers.simulator.study import scheduler
    from rota.report.user_metrics import user_metrics

    out, figures, output = options.out, options.figures, options.output
    if figures is not None:
        refuse_figures(figures)
    metrics = tuple(options.metric or ())
    user_metrics(metrics)
    loaded = prepare(scenario)
    for policy in scenario.policies:
        scheduler(policy, loaded.setting)
    _print_left_out(loaded)
    notes = scenario_notes(loaded)
    for note in notes:
        if note.is_printed:
            echo(note.text, err=True)
    keep = Keep.SKETCH if output is OutputFormat.TABLE else Keep.FIGURES
    if out is not None or figures is not None:
        keep = Keep.ALL
    total = len(loaded.workload.submissions) * len(scenario.policies)
    with claimed(out, scenario.policies) as folders:
        with progress("simulating", total) as bar:
            finished = list(run_all(loaded, folders, keep, metrics, lambda done: bar.update(done)))
        _print_results(loaded, finished, notes, output)
        if keep is Keep.ALL:
            from rota.cli.study.results import write_results

            texts = [note.text for note in notes]
            write_results(out, figures, finished, folders, shlex.join(["rota", *sys.argv[1:]]), texts)
    if out is not None:
        echo(f"report: {out / 'report.html'}", err=True)
    if figures is not None:
        echo(f"figures: {figures}", err=True)


def _print_results(
    loaded: LoadedScenario, finished: Sequence[Finished], notes: Sequence[RunNote], output: OutputFormat
) -> None:
    from rota.cli.study.failures import print_causes
    from rota.cli.study.sketch import sketch_lines
    from rota.cli.study.summary import columns_with, summary_row

    scenario = loaded.scenario
    shared = {"restart_cost_s": scenario.costs.restart_s, "seed": scenario.seed} | _knowledge(loaded)
    rows = [
        summary_row(run.scenario.policy, run.metrics, run.tenants, events=run.events, wall_s=run.wall_s)
        | {"placement": run.scenario.placement}
        | shared
        | {"notes": [note.text for note in notes if note.is_about(run.scenario.policy)]}
        | dict(run.more)
        | ({} if run.failures is None else {"failures": run.failures.encode()})
        for run in finished
    ]
    emit(rows, columns_with(finished[0].more), output)
    if output in (OutputFormat.TABLE, OutputFormat.WIDE):
        print_causes([(run.scenario.policy, run.failures) for run in finished])
    if output is OutputFormat.TABLE:
        sketches = {run.scenario.policy: run.sketch for run in finished if run.sketch is not None}
        for line in sketch_lines(sketches, encoding=sys.stdout.encoding or "utf-8"):
            echo(line)
    if not scenario.costs.restart_s:
        echo("restart cost: 0 s (preemption is free; set it with --restart-cost)", err=True)


def _knowledge(loaded: LoadedScenario) -> dict[str, object]:
    """The fraction of the profiles that policies knew, and the error of the rest on held-out figures."""
    spec, estimate = loaded.scenario.estimate, loaded.speeds.estimate
    if spec is None or estimate is None:
        return {"known_profiles": None, "profile_error": None}
    error = estimate.speeds.error
    return {"known_profiles": spec.known, "profile_error": None if error is None else error.median}


def _print_left_out(loaded: LoadedScenario) -> None:
    for count, what in (
        (loaded.workload.skipped, "skipped: a line that can't be read"),
        (loaded.workload.left_out, "left out: a job without a whole run in the trace"),
        (loaded.left_out, "left out: a job larger than the cluster"),
    ):
        if count:
            echo(f"{count:,} x {what}", err=True)
