"""The options of `rota experiment` in one place: each a field, with its help, in the order of the help."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, get_type_hints

import typer

from rota.cli.completion import policy_names
from rota.cli.render import OutputFormat, OutputOption


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentOptions:
    """What a user may give to `rota experiment`."""

    file: Annotated[Path | None, typer.Argument(help="The experiment; options add to it.", metavar="FILE.yaml")] = None
    policy: Annotated[
        list[str] | None, typer.Option(help="A policy; may be repeated.", metavar="P", autocompletion=policy_names)
    ] = None
    trace: Annotated[
        list[str] | None,
        typer.Option(help="A trace file or a kind of generated workload; may be repeated.", metavar="FILE|KIND"),
    ] = None
    columns: Annotated[
        str | None,
        typer.Option(
            help="The columns of traces in no known format: submit=COLUMN,duration=COLUMN,gpus=COLUMN and more.",
            metavar="NAME=COLUMN,...",
        ),
    ] = None
    cluster: Annotated[list[str] | None, typer.Option(help="A cluster; may be repeated.", metavar="SPEC")] = None
    load: Annotated[
        list[float] | None,
        typer.Option(help="Demand as a fraction of the cluster's devices; may be repeated.", metavar="F"),
    ] = None
    seed: Annotated[list[int] | None, typer.Option(help="A seed; may be repeated.", metavar="N")] = None
    seeds: Annotated[int | None, typer.Option(help="So many seeds, from 0 on.", metavar="N", min=1)] = None
    jobs: Annotated[int | None, typer.Option(help="Jobs of each workload.", metavar="N", min=1)] = None
    warm_up: Annotated[
        str | None, typer.Option(help="Left out at the beginning: 200 jobs, 10% or 2h.", metavar="AMOUNT")
    ] = None
    cool_down: Annotated[str | None, typer.Option(help="Left out at the end, in the same forms.", metavar="AMOUNT")] = (
        None
    )
    option: Annotated[
        list[str] | None,
        typer.Option(
            help="An option of rota sim for all runs, such as restart_cost=30s; may be repeated.", metavar="NAME=VALUE"
        ),
    ] = None
    metric: Annotated[
        list[str] | None,
        typer.Option(help="A metric to show, by name or as FILE.py:FUNCTION; may be repeated.", metavar="NAME"),
    ] = None
    baseline: Annotated[
        str | None, typer.Option(help="The policy that others are compared with; the first if not given.", metavar="P")
    ] = None
    processes: Annotated[int, typer.Option(help="Runs at a time.", metavar="N", min=1)] = 1
    out: Annotated[
        Path | None, typer.Option(help="Where results are kept; NAME-results if not given.", metavar="DIR")
    ] = None
    figures: Annotated[bool, typer.Option("--figures", help="Also write the figures as PDF and SVG.")] = False
    list_metrics: Annotated[bool, typer.Option("--list-metrics", help="Print every metric with its formula.")] = False
    output: OutputOption = OutputFormat.TABLE


def signature() -> inspect.Signature:
    """The signature that Typer reads: one parameter for each field."""
    hints = get_type_hints(ExperimentOptions, include_extras=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature(
        [
            inspect.Parameter(f.name, kind, default=f.default, annotation=hints[f.name])
            for f in fields(ExperimentOptions)
        ]
    )
