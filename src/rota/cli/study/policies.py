"""`rota policies`: what can be named, where it comes from, what it assumes."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from pathlib import Path
from typing import Annotated

import typer

from rota.cli.completion import policy_names
from rota.cli.render import Column, OutputFormat, OutputOption, emit
from rota.cli.terminal import echo
from rota.core.errors import RotaError
from rota.mechanisms.declare import DeclaredPolicy
from rota.mechanisms.parameters import describe_type, show_value
from rota.policies import find_policy, names

SUGGEST = "suggest"
"""The word in place of a policy's name that asks for a recommendation."""
LIST_COLUMNS = (
    Column(key="policy"),
    Column(key="summary"),
    Column(key="parameters", show=lambda params: ", ".join(f"{p['name']}={p['default']}" for p in params) or "-"),
    Column(key="placement"),
    Column(key="cites"),
)


def policies(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Only this policy, with its parameters explained; `suggest`: recommend one.",
            autocompletion=policy_names,
        ),
    ] = None,
    compare: Annotated[bool, typer.Option("--compare", help="What each assumes, side by side.")] = False,
    trace: Annotated[
        Path | None, typer.Option("--trace", help="With suggest: the jobs, as a trace or a journal.", metavar="FILE")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="With suggest: the cluster, as for rota sim.", metavar="SPEC")
    ] = None,
    restart_cost: Annotated[
        float, typer.Option("--restart-cost", help="With suggest: seconds lost at every restart.", min=0.0)
    ] = 30.0,
    jobs: Annotated[
        int | None, typer.Option("--jobs", help="With suggest: take only the first N jobs.", metavar="N", min=1)
    ] = None,
    windows: Annotated[
        int, typer.Option("--windows", help="With suggest: parts of the trace to simulate.", min=1, max=10)
    ] = 5,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List the policies, their parameters and where they come from.

    Examples:

      rota policies

      rota policies tiresias

      rota policies --compare

      rota policies suggest --trace philly.csv --cluster gpu=64/8 --jobs 2000
    """
    if name == SUGGEST:
        from rota.cli.study.suggest import suggest_policy

        suggest_policy(trace, cluster, restart_s=restart_cost, jobs=jobs, windows=windows, output=output)
        return
    if trace is not None or cluster is not None:
        raise RotaError("--trace and --cluster are for `rota policies suggest`; to compare policies, use rota sim")
    wanted = names() if name is None else [name]
    found = [find_policy(each)[0] for each in wanted]
    if compare:
        _compare(found, output)
    elif name is not None:
        _one(found[0], output)
    else:
        emit([describe(declared) for declared in found], LIST_COLUMNS, output)


def describe(declared: DeclaredPolicy) -> dict[str, object]:
    """A policy as a row: everything it declares of itself."""
    hints = typing.get_type_hints(declared.params)
    return {
        "policy": declared.name,
        "summary": declared.summary,
        "parameters": [
            {
                "name": field.name,
                "default": show_value(field.default),
                "type": describe_type(hints[field.name]),
            }
            for field in dataclasses.fields(declared.params)
        ],
        "placement": declared.placement,
        "cites": declared.cites,
        "differs": declared.differs,
        "traits": dataclasses.asdict(declared.traits),
    }


def _one(declared: DeclaredPolicy, output: OutputFormat) -> None:
    row = describe(declared)
    if output is not OutputFormat.TABLE:
        emit([row], (), output)
        return
    echo(f"{declared.name}: {declared.summary}\n", lines=True)
    echo(f"from       {declared.cites or 'not published'}")
    echo(f"placement  {declared.placement}, unless --placement says otherwise\n", lines=True)
    if declared.differs:
        echo(f"Differs from the paper: {declared.differs}\n", lines=True)
    parameters = typing.cast(list[dict[str, str]], row["parameters"])
    if parameters:
        columns = (Column(key="name", title="parameter"), Column(key="default"), Column(key="type"))
        emit(parameters, columns, output)
        echo("\n" + inspect.cleandoc(declared.params.__doc__ or "") + "\n", lines=True)
    _compare([declared], output)


def _compare(found: list[DeclaredPolicy], output: OutputFormat) -> None:
    """One column per policy as a table; one row per policy for programs."""
    if not found:
        raise RotaError("there are no policies to compare")
    if output is not OutputFormat.TABLE:
        rows = [{"policy": each.name} | dataclasses.asdict(each.traits) for each in found]
        emit(rows, (), output)
        return
    rows = []
    for field in dataclasses.fields(found[0].traits):
        row: dict[str, str] = {"trait": field.name.replace("_", " ")}
        for each in found:
            row[each.name] = getattr(each.traits, field.name)
        rows.append(row)
    emit(rows, [Column(key="trait", title=""), *(Column(key=each.name) for each in found)], output)
