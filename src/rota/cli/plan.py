"""`rota plan`: plans inside a job."""

from __future__ import annotations

import typer

from rota.cli.plan_parallel import parallel

app = typer.Typer(
    help="Plan inside a job: which operator runs on which device, in which stages, and how long a step takes.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def plan() -> None:
    """Plan inside a job: which operator runs on which device, in which stages, and how long a step takes."""


app.command()(parallel)
