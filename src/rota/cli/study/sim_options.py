"""The options of `rota sim` in one place: each a field, with its help, in the order in which the help lists them."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.models import OptionInfo

from rota.cli.completion import policy_names
from rota.cli.render import FiguresOption, MetricOption, OutputFormat, OutputOption
from rota.core.errors import RotaError


def _seconds(value: object) -> float:
    """Seconds from a length of time as users write it."""
    from rota.files.quantities import NotAQuantity, parse_duration

    try:
        return parse_duration(value)
    except NotAQuantity as error:
        raise typer.BadParameter(str(error)) from None


def _time(help: str) -> OptionInfo:
    """An option that takes a length of time."""
    option: OptionInfo = typer.Option(parser=_seconds, metavar="TIME", help=help)
    return option


def _option(help: str, metavar: str | None = None, **more: Any) -> OptionInfo:
    option: OptionInfo = typer.Option(help=help, metavar=metavar, **more)
    return option


def _flag(name: str, help: str) -> OptionInfo:
    option: OptionInfo = typer.Option(name, help=help)
    return option


@dataclass(frozen=True, slots=True, kw_only=True)
class SimOptions:
    """What a user may give to `rota sim`. Defaults are those of the scenario file, and shown by the help."""

    scenario: Annotated[
        Path | None, _option("Any of these options from a file; those given here win.", "FILE", exists=True)
    ] = None
    trace: Annotated[str | None, _option("The workload.", "FILE")] = None
    format: Annotated[
        str | None, _option("The trace's format, or FILE.py:FUNCTION that reads it; recognised if not given.")
    ] = None
    columns: Annotated[
        str | None,
        _option(
            "The columns of any other CSV: submit=COLUMN,duration=COLUMN,gpus=COLUMN and more, as `rota trace convert` "
            "takes them.",
            "NAME=COLUMN,...",
        ),
    ] = None
    cluster: Annotated[
        str | None, _option("A cluster file, or TYPE=GPUS/PER_NODE,... such as v100=8/4,k80=24/4.", "SPEC")
    ] = None
    policy: Annotated[
        list[str] | None,
        _option(
            "NAME[:key=value,...] or FILE.py:FUNCTION[:key=value,...]; may be given several times.",
            "P",
            autocompletion=policy_names,
        ),
    ] = None
    placement: Annotated[
        str | None,
        _option(
            "any, consolidate[:relax_after=S], spread, best-fit, even, attempts[:every=S], skew, liquid[:h=H], "
            "links:FILE, cassini:FILE; "
            "FILE.py:FUNCTION; default: the policy's."
        ),
    ] = None
    tenancy: Annotated[str, _option("How devices are divided among tenants: none, quota or cells.")] = "none"
    profiles: Annotated[
        str | None,
        _option(
            "Speeds by model and device type: a file in Gavel's or Rota's form, catalogue, plans, plans:fixed, "
            "or none.",
            "FILE",
        ),
    ] = None
    reference: Annotated[
        str | None, _option("The device type in whose seconds work is counted; v100 if not given.", "TYPE")
    ] = None
    known_profiles: Annotated[
        float | None, _option("Fraction of the profiles that policies know; the rest is estimated for them.")
    ] = None
    estimate: Annotated[
        str | None, _option("How unknown speeds are estimated: completion, nearest or mean.", "METHOD")
    ] = None
    observe: Annotated[bool, _option("Correct the estimates by the speeds of running jobs.")] = True
    restart_cost: Annotated[float, _time("Time lost at every start but the first.")] = 0.0
    resume_cost: Annotated[float, _time("Time lost whenever a suspended job is resumed.")] = 0.0
    move_cost: Annotated[float | None, _time("Time lost whenever a job is moved; as a restart unless given.")] = None
    resize_cost: Annotated[float | None, _time("Time lost whenever a job is resized; as a restart unless given.")] = (
        None
    )
    checkpoint_interval: Annotated[
        float, _time("Running time that a node failure can undo; 0: none; inf: never saved, a stopped job starts over.")
    ] = 0.0
    checkpoint_time: Annotated[float, _time("Time that a stopped job takes to save its state, on its devices.")] = 0.0
    checkpoint_write: Annotated[
        float, _time("Time without work at each checkpoint of a running job, one every --checkpoint-interval.")
    ] = 0.0
    load_time: Annotated[float, _time("Time for which a job loads its data after every start.")] = 0.0
    save_time: Annotated[
        float, _time("Time for which a job saves after its work; under liquid the next one loads meanwhile.")
    ] = 0.0
    spread: Annotated[
        str, _option("Speed factors over several nodes, e.g. rack=0.9,domain=0.8,cluster=0.7; network=S; or profile.")
    ] = ""
    neighbours: Annotated[
        str,
        _option(
            "Speed factors per neighbour, e.g. device=0.8,node=0.97; turns=0.98 for time-sliced jobs. "
            "Or stages: packed jobs are interleaved."
        ),
    ] = ""
    contention: Annotated[
        bool, _flag("--contention", "Jobs of known kinds contend for the resources of the servers that they share.")
    ] = False
    network: Annotated[
        str | None,
        _option(
            "Links of the cluster: jobs wait for what they send, and slow each other down; "
            "between=fair, cassini or crux divides links.",
            "FILE[:between=NAME]",
        ),
    ] = None
    type_speed: Annotated[str, _option("Speed of device types, e.g. v100=1,k80=0.3.")] = ""
    speed_factor: Annotated[
        str | None, _option("FILE.py:FUNCTION that every speed is multiplied with.", "FILE.py:FUNCTION")
    ] = None
    scaling: Annotated[float, _option("Exponent of an elastic job's speed over its size.")] = 1.0
    uneven_batches: Annotated[
        bool,
        _flag(
            "--uneven-batches", "Jobs divide their work by the speed of each device; else the slowest sets the pace."
        ),
    ] = False
    faults: Annotated[str | None, _option("Node failures and repairs: CSV time_s,node,event.", "FILE")] = None
    change: Annotated[
        list[str] | None,
        _option(
            "Replace the cluster (nodes, tenants, cells) at TIME by FILE; may be given several times.", "TIME=FILE"
        ),
    ] = None
    mttf: Annotated[float | None, _time("A node's mean time to failure.")] = None
    mttr: Annotated[float, _time("A node's mean time to repair.")] = 3600.0
    failures: Annotated[
        str | None,
        _option(
            "How machines fail: rsc-1, rsc-1-measured, rsc-2, llama-3, philly or custom, with parameters as "
            "rsc-1:rate=6.5,spares=4,adaptive=true.",
            "NAME[:key=value,...]",
        ),
    ] = None
    seed: Annotated[int, _option("Seed of everything that is random.")] = 0
    jobs: Annotated[int | None, _option("Take only the first N jobs.", "N", min=1)] = None
    skip_bad_lines: Annotated[bool, _option("Leave out lines that can't be read.")] = False
    skip_oversized: Annotated[bool, _option("Leave out jobs that can never fit.")] = False
    metric: MetricOption = None
    out: Annotated[Path | None, _option("Write journal, tables and report.html here.", "DIR")] = None
    figures: FiguresOption = None
    replay: Annotated[Path | None, _option("Run a journal again and compare every decision.", "JOURNAL")] = None
    output: OutputOption = OutputFormat.TABLE


OUTPUTS = frozenset({"scenario", "columns", "metric", "out", "figures", "replay", "output"})
"""Options that are no fields of the scenario."""
_FACTORS = ("spread", "neighbours", "type_speed")


def signature() -> inspect.Signature:
    """The signature that Typer reads: the context, then one parameter for each field."""
    hints = get_type_hints(SimOptions, include_extras=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    return inspect.Signature(
        [
            context,
            *(inspect.Parameter(f.name, kind, default=f.default, annotation=hints[f.name]) for f in fields(SimOptions)),
        ]
    )


def on_command_line(ctx: typer.Context) -> list[str]:
    """The names of the options that the user gave, in the order of the help."""
    given = {name for name in ctx.params if getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE"}
    return [field.name for field in fields(SimOptions) if field.name in given]


def given_options(ctx: typer.Context) -> dict[str, object]:
    """The scenario's options that are on the command line, with factors parsed."""
    given = {name: ctx.params[name] for name in on_command_line(ctx) if name not in OUTPUTS}
    if (columns := ctx.params.get("columns")) is not None:
        if "format" in given:
            raise RotaError(
                f"--columns names the columns of any CSV, and --format {given['format']} is a known form; "
                "give one of them"
            )
        given["format"] = columns
    for name in _FACTORS:
        if name in given:
            given[name] = _factors(name, given[name])
    if "change" in given:
        from rota.files.scenario_file import changes

        try:
            given["change"] = changes(given["change"])
        except RotaError as error:
            raise RotaError(f"--change {error}") from None
    return given


def _factors(name: str, text: object) -> object:
    from rota.files.scenario_file import FILE_ONLY, factors, neighbour_factors, spread_factors

    option = f"--{name.replace('_', '-')}"
    parse = {"spread": spread_factors, "neighbours": neighbour_factors}.get(name, factors)
    try:
        found = parse(text)
    except RotaError as error:
        raise RotaError(f"{option}: {error}") from None
    for factor in FILE_ONLY:
        if name == "neighbours" and not isinstance(found, str) and factor in found:
            raise RotaError(
                f"{option}: {factor} is set in a scenario file; write `neighbours: {{{factor}: {found[factor]:g}}}` "
                "into FILE.yaml and give it with --scenario FILE.yaml"
            )
    return found
