"""`rota sweep`: searches over the parameters of a training, as jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from rota.cli import human
from rota.cli.completion import sweep_ids, tenant_names
from rota.cli.jobs.sending import best_value, send_sweep, trial_counts
from rota.cli.manager.connect import ServerOption, TenantOption
from rota.cli.render import Column, OutputFormat, OutputOption, emit
from rota.cli.terminal import echo
from rota.core.errors import RotaError

Json = dict[str, Any]


class _FileFirst(TyperGroup):
    """`rota sweep FILE` is short for `rota sweep start FILE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `start` before a file."""
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            args = ["start", *args]
        return list(super().parse_args(ctx, args))


app = typer.Typer(
    cls=_FileFirst,
    no_args_is_help=True,
    help="Search over the parameters of a training: `rota sweep FILE` starts one.",
)


COLUMNS = (
    *(Column(key=key) for key in ("id", "name", "tenant", "owner", "state", "sampler", "rule")),
    Column(key="begun", title="begun", right=True),
    Column(key="trials", right=True),
    Column(key="states", title="trials now", show=trial_counts),
    Column(key="best", show=best_value, right=True),
)
TRIALS = (
    Column(key="trial", right=True),
    Column(key="job", right=True),
    Column(key="state"),
    Column(key="step", right=True),
    Column(key="value", show=lambda value: "-" if value is None else f"{value:.6g}", right=True),
    Column(key="device_s", title="device time", show=lambda value: "-" if value is None else human.duration(value)),
    Column(key="params", show=lambda params: ", ".join(f"{name}={_short(value)}" for name, value in params.items())),
    Column(key="why"),
)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@app.command("start")
def start(
    file: Annotated[Path, typer.Argument(help="The sweep file.", metavar="FILE")],
    trials: Annotated[int | None, typer.Option(help="The number of trials, instead of the file's.", min=1)] = None,
    parallel: Annotated[int | None, typer.Option(help="Trials that run or wait at once.", min=1)] = None,
    seed: Annotated[int | None, typer.Option(help="Another seed draws other parameters.", min=0)] = None,
    tenant: TenantOption = None,
    snapshot: Annotated[
        bool, typer.Option("--snapshot", help="Pack the code now: all trials run that, whatever changes meanwhile.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Start nothing; print when a trial would start.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Follow it to its end; exit 100 if it failed.")] = False,
    server: ServerOption = None,
) -> int:
    """Start a sweep and print its id; `rota sweep FILE` does the same.

    Examples:

      rota sweep search.yaml

      rota sweep search.yaml --trials 100 --parallel 8 --wait

      rota sweep search.yaml --snapshot
    """
    from rota.sweeps.file import read_sweep_file

    values = read_sweep_file(file)
    given = {"trials": trials, "parallel": parallel, "seed": seed, "tenant": tenant}
    values.update({name: value for name, value in given.items() if value is not None})
    values.setdefault("name", file.stem)
    return send_sweep(values, server, snapshot=snapshot, dry_run=dry_run, wait=wait)


@app.command("list")
def list_sweeps(
    all: Annotated[bool, typer.Option("--all", "-a", help="Include sweeps that have ended.")] = False,
    tenant: Annotated[str | None, typer.Option(help="Only those of a tenant.", autocompletion=tenant_names)] = None,
    server: ServerOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List sweeps, newest first.

    Examples:

      rota sweep list --all
    """
    from rota.sdk.client import Client

    emit(Client(server).sweeps(all=all, tenant=tenant), COLUMNS, output)


@app.command("show")
def show(
    sweep: Annotated[str, typer.Argument(help="The sweep's id.", autocompletion=sweep_ids)],
    sort: Annotated[str, typer.Option(help="Trials by: value, trial, step.")] = "value",
    server: ServerOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show a sweep, its trials, and how much each parameter matters.

    Examples:

      rota sweep show s1

      rota sweep show s1 -o json
    """
    from rota.sdk.client import Client

    if sort not in ("value", "trial", "step"):
        raise RotaError(f"--sort: unknown order {sort!r}; use value, trial or step")
    found = Client(server).sweep(sweep)
    if output is OutputFormat.JSON:
        emit([found], COLUMNS, output)
        return
    runs = sorted(found["runs"], key=lambda run: _order(run, sort, found["goal"]))
    if output is OutputFormat.TABLE:
        words = f"{found['state']}: {found['why']}" if found["why"] else found["state"]
        echo(f"{found['id']} {found['name']}: {words}", err=True)
        echo(f"{trial_counts(found['states'])}; device time {human.duration(found['device_s'])}", err=True)
        if found["best"] is not None:
            best = found["best"]
            echo(f"best {found['metric']} {best_value(best)}: trial {best['trial']} at step {best['step']}", err=True)
        matters = sorted(found["importance"]["by_parameter"].items(), key=lambda pair: -pair[1])
        if matters:
            echo(f"importance: {', '.join(f'{name} {value:.2f}' for name, value in matters)}", err=True)
    emit(runs, TRIALS, output)


def _order(run: Json, sort: str, goal: str) -> tuple[bool, float, int]:
    value = run[sort]
    sign = -1 if sort == "step" or (sort == "value" and goal == "maximize") else 1
    return value is None, 0.0 if value is None else sign * float(value), run["trial"]


@app.command("stop")
def stop(
    sweep: Annotated[str, typer.Argument(help="The sweep's id.", autocompletion=sweep_ids)],
    server: ServerOption = None,
) -> None:
    """End a sweep: its trials are cancelled, and no more begin.

    Examples:

      rota sweep stop s1
    """
    from rota.sdk.client import Client

    Client(server).stop_sweep(sweep)
    echo(f"sweep {sweep} stopped", err=True)
