"""`rota sim`: a trace, a cluster, some policies; what became of the jobs."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.models import OptionInfo

from rota.cli.render import FiguresOption, OutputFormat, OutputOption, emit, progress, refuse_figures
from rota.core.errors import RotaError, did_you_mean

if TYPE_CHECKING:
    from rota.cli.study.request import Finished, Ready, SimRequest
    from rota.cli.study.speeds import StudySpeeds
    from rota.perf.profiles.partial_profiles import EstimateSpec


def seconds(value: object) -> float:
    """Seconds from a length of time as people write it."""
    from rota.files.quantities import NotAQuantity, parse_duration

    try:
        return parse_duration(value)
    except NotAQuantity as error:
        raise typer.BadParameter(str(error)) from None


def lasts(help: str) -> OptionInfo:
    """An option that takes a length of time."""
    option: OptionInfo = typer.Option(parser=seconds, metavar="TIME", help=help)
    return option


def sim(
    trace: Annotated[Path | None, typer.Option("--trace", help="The workload.", metavar="FILE")] = None,
    trace_format: Annotated[
        str | None, typer.Option("--format", help="The trace's format; found out by itself if not given.")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="A cluster file, or TYPE=GPUS/PER_NODE,... such as v100=8/4,k80=24/4.", metavar="SPEC"),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME[:key=value,...] or FILE.py:FUNCTION[:key=value,...]; may be given several times.",
            metavar="P",
        ),
    ] = None,
    placement: Annotated[
        str | None,
        typer.Option(
            help="any, consolidate[:relax_after=S], spread, best-fit, even, attempts[:every=S], skew, liquid[:h=H]; "
            "default: the policy's."
        ),
    ] = None,
    tenancy: Annotated[str, typer.Option(help="Who may use what.")] = "none",
    profiles: Annotated[
        str | None,
        typer.Option(
            help="Speeds by model and device type: a file in Gavel's or Rota's form, catalogue, or none.",
            metavar="FILE",
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(help="The device type in whose seconds work is counted; v100 if not given.", metavar="TYPE"),
    ] = None,
    known_profiles: Annotated[
        float | None, typer.Option(help="Part of the profiles that policies know; the rest is estimated for them.")
    ] = None,
    estimate: Annotated[
        str | None,
        typer.Option(
            help="How speeds that are not known are estimated: completion, nearest or mean.", metavar="METHOD"
        ),
    ] = None,
    observe: Annotated[bool, typer.Option(help="Let speeds seen while jobs run correct the estimates.")] = True,
    restart_cost: Annotated[float, lasts("Time lost at every start but the first.")] = 0.0,
    resume_cost: Annotated[float, lasts("Time lost whenever a suspended job is resumed.")] = 0.0,
    move_cost: Annotated[
        float | None,
        lasts("Time lost whenever a job goes on elsewhere; as a restart unless given."),
    ] = None,
    checkpoint_interval: Annotated[
        float,
        lasts("Running time that a node failure can undo; 0: none, inf: the whole run."),
    ] = 0.0,
    checkpoint_time: Annotated[
        float,
        lasts("Time that a job told to stop takes to save its state, on its devices."),
    ] = 0.0,
    load_time: Annotated[
        float,
        lasts("Time that a job loads its data for after every start."),
    ] = 0.0,
    save_time: Annotated[
        float,
        lasts("Time that a job saves for after its work; under liquid the next one loads meanwhile."),
    ] = 0.0,
    spread: Annotated[
        str,
        typer.Option(
            help="Speed factors over several nodes, e.g. rack=0.9,domain=0.8,cluster=0.7; network=S; or profile."
        ),
    ] = "",
    neighbours: Annotated[
        str,
        typer.Option(
            help="Speed factors per neighbour, e.g. device=0.8,node=0.97; turns=0.98 for jobs in turn; spilled=0.1 for "
            "memory on the host; gaps=1: jobs held back use idle time first. Or stages: packed jobs are interleaved."
        ),
    ] = "",
    contention: Annotated[
        bool,
        typer.Option(
            "--contention",
            help="Jobs of known kinds slow each other down by what they need of the servers that they share.",
        ),
    ] = False,
    type_speed: Annotated[str, typer.Option(help="Speed of device types, e.g. v100=1,k80=0.3.")] = "",
    scaling: Annotated[float, typer.Option(help="Exponent of an elastic job's speed over its size.")] = 1.0,
    uneven_batches: Annotated[
        bool,
        typer.Option(
            "--uneven-batches",
            help="Jobs divide their work by the speed of each device; else the slowest sets the pace.",
        ),
    ] = False,
    faults: Annotated[
        Path | None, typer.Option(help="Node failures and repairs: CSV time_s,node,event.", metavar="FILE")
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(
            help="From TIME on the cluster (nodes, tenants, cells) is what FILE says; may be given several times.",
            metavar="TIME=FILE",
        ),
    ] = None,
    mttf: Annotated[float | None, typer.Option(help="A node's mean time to failure, seconds.")] = None,
    mttr: Annotated[float, typer.Option(help="A node's mean time to repair, seconds.")] = 3600.0,
    seed: Annotated[int, typer.Option(help="Seed of everything that is left to chance.")] = 0,
    jobs: Annotated[int | None, typer.Option(help="Take only the first so many jobs.", min=1)] = None,
    skip_bad_lines: Annotated[bool, typer.Option(help="Leave out lines that can't be read.")] = False,
    skip_oversized: Annotated[bool, typer.Option(help="Leave out jobs that can never fit.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write journal, tables and report.html here.", metavar="DIR")] = None,
    figures: FiguresOption = None,
    replay: Annotated[
        Path | None,
        typer.Option(help="Run a journal again and compare every decision.", metavar="JOURNAL"),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> int:
    """Run a trace through one or more policies and compare them.

    Examples:

      rota sim --trace philly.csv --cluster gpu=440/8 --policy fifo --policy srtf --policy las

      rota sim --trace jobs.csv --cluster v100=8/4,k80=24/4 --policy tiresias:promote=4 --out results

      rota sim --trace jobs.csv --cluster lab.yaml --policy ./mine.py:my_policy --restart-cost 30 -o json

      rota sim --trace jobs.csv --cluster gpu=64/8 --policy fifo --policy srtf --figures paper/figures

      rota sim --trace jobs.csv --cluster v100=8/4,k80=8/4 --policy gavel/max_min_fairness_perf --known-profiles 0.3

      rota sim --replay results/journal.jsonl
    """
    if replay is not None:
        if trace is not None or policy:
            raise RotaError("--replay takes the trace and the policy from the journal; give neither beside it")
        from rota.cli.study.replay import replay_journal

        return replay_journal(replay, output)
    if trace is None:
        raise RotaError("say which workload to simulate with --trace FILE (or --replay JOURNAL)")
    from rota.cli.study.request import SimRequest

    request = SimRequest(
        trace=trace,
        format=trace_format,
        cluster=cluster,
        placement=placement,
        tenancy=tenancy,
        profiles=profiles,
        reference=reference,
        estimate=_estimate(known_profiles, estimate, observe, seed),
        restart_cost_s=restart_cost,
        checkpoint_interval_s=checkpoint_interval,
        checkpoint_s=checkpoint_time,
        load_s=load_time,
        save_s=save_time,
        resume_cost_s=resume_cost,
        move_cost_s=move_cost,
        seed=seed,
        jobs=jobs,
        skip_bad_lines=skip_bad_lines,
        skip_oversized=skip_oversized,
        faults=faults,
        changes=tuple(change or ()),
        mttf_s=mttf,
        mttr_s=mttr,
        spread=spread,
        neighbours=neighbours,
        contention=contention,
        type_speed=type_speed,
        scaling=scaling,
        uneven=uneven_batches,
        spreads=_all_spread(policy or []),
    )
    if not policy:
        raise RotaError("say which policies to compare with --policy NAME; `rota policies` lists them")
    _study(request, policy, out, figures, output)
    return 0


def _all_spread(policies: list[str]) -> bool:
    """Whether every policy may run one job on several device types at once."""
    from rota.policies import find_policy

    asked = [find_policy(spec) for spec in policies]
    return all(declared.can_span_types(options) for declared, options in asked)


def _study(
    request: SimRequest, policies: list[str], out: Path | None, figures: Path | None, output: OutputFormat
) -> None:
    from rota.cli.study.notes import study_notes
    from rota.cli.study.parallel import run_all
    from rota.cli.study.request import Keep, prepare
    from rota.cli.study.summary import SUMMARY_COLUMNS, summary_row
    from rota.drivers.simulator.study import scheduler

    _refuse_twins(policies)
    if figures is not None:
        refuse_figures(figures)
    ready = prepare(request)
    for spec in policies:
        scheduler(spec, ready.setting)
    _say_what_was_left_out(ready)
    notes = (*ready.speeds.notes, *study_notes(ready, request, policies))
    for note in notes:
        typer.echo(note, err=True)
    folders = _folders(out, policies)
    keep = Keep.SKETCH if output is OutputFormat.TABLE else Keep.FIGURES
    if out is not None or figures is not None:
        keep = Keep.ALL
    total = len(ready.workload.submissions) * len(policies)
    with progress("simulating", total) as bar:
        finished = list(run_all(ready, request, policies, folders, keep, lambda done: bar.update(done)))
    rows = [
        summary_row(run.policy, run.metrics, run.tenants, events=run.events, wall_s=run.wall_s)
        | {"placement": run.placement, "restart_cost_s": request.restart_cost_s, "seed": request.seed}
        | _told(ready.speeds)
        for run in finished
    ]
    emit(rows, SUMMARY_COLUMNS, output)
    if output is OutputFormat.TABLE:
        _draw(finished)
    if not request.restart_cost_s:
        typer.echo("restart cost: 0 s (preemption is free; set it with --restart-cost)", err=True)
    if keep is Keep.ALL:
        from rota.cli.study.results import write_results

        write_results(out, figures, finished, folders, shlex.join(["rota", *sys.argv[1:]]), request, notes)
    if out is not None:
        typer.echo(f"report: {out / 'report.html'}", err=True)
    if figures is not None:
        typer.echo(f"figures: {figures}", err=True)


def _draw(finished: Sequence[Finished]) -> None:
    from rota.cli.study.sketch import sketch_lines

    sketches = {run.policy: run.sketch for run in finished if run.sketch is not None}
    for line in sketch_lines(sketches, encoding=sys.stdout.encoding or "utf-8"):
        typer.echo(line)


def _told(speeds: StudySpeeds) -> dict[str, object]:
    """What policies knew of the speeds: of which part, and how far off the rest was on hidden figures."""
    if speeds.spec is None or speeds.estimate is None:
        return {"known_profiles": None, "profile_error": None}
    error = speeds.estimate.speeds.error
    return {"known_profiles": speeds.spec.known, "profile_error": None if error is None else error.median}


def _estimate(known: float | None, method: str | None, observe: bool, seed: int) -> EstimateSpec | None:
    """What of the profiles policies are told, if not simply all."""
    if known is None and method is None:
        return None
    from rota.perf.profiles.matrix_completion import Fill
    from rota.perf.profiles.partial_profiles import EstimateSpec

    methods = {fill.value: fill for fill in Fill}
    if method is not None and method not in methods:
        raise RotaError(f"--estimate: unknown method {method!r}; {did_you_mean(method, methods)}")
    return EstimateSpec(
        known=1.0 if known is None else known, fill=methods[method or "completion"], observes=observe, seed=seed
    )


def _say_what_was_left_out(ready: Ready) -> None:
    for count, what in (
        (ready.workload.skipped, "skipped: a line that can't be read"),
        (ready.workload.left_out, "left out: a job without a whole run in the trace"),
        (ready.left_out, "left out: a job larger than the cluster"),
    ):
        if count:
            typer.echo(f"{count:,} x {what}", err=True)


def _refuse_twins(policies: list[str]) -> None:
    for index, spec in enumerate(policies):
        if spec in policies[:index]:
            raise RotaError(f"policy {spec!r} is given twice")


def _folders(out: Path | None, policies: list[str]) -> list[Path | None]:
    """Where each policy's files go: into the folder itself if there is only one."""
    if out is None:
        return [None] * len(policies)
    if out.exists() and not out.is_dir():
        raise RotaError(f"--out {out}: it exists and is not a folder")
    out.mkdir(parents=True, exist_ok=True)
    if len(policies) == 1:
        return [out]
    from rota.report.look import slug

    return [out / slug(spec) for spec in policies]
