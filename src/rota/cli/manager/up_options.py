"""Options of `rota up`, among them those that say under which accounts tasks run and how they are kept apart."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class Isolation(Enum):
    """Whether tasks are confined that run as other users: as far as possible, wholly (or no manager starts), or not."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


RunAs = Annotated[
    str | None, typer.Option(help="The account that tasks run as, if you are root: ACCOUNT, or TENANT=ACCOUNT,...")
]
Users = Annotated[
    str | None,
    typer.Option(
        help="Tasks run as the submitting user: `names` (accounts of the same name), `tokens`, or a file.",
        metavar="HOW",
    ),
]
IsolationOption = Annotated[
    Isolation, typer.Option(help="Whether tasks of other users are confined: as far as it can be, wholly, or not.")
]
Seccomp = Annotated[
    bool, typer.Option("--seccomp", help="Refuse confined tasks system calls that reach into the kernel.")
]
Scratch = Annotated[str | None, typer.Option(help="What a job may write to its own folders, e.g. 100Gi; more ends it.")]
MaxProcesses = Annotated[int, typer.Option(help="Processes and threads that a task may have.", min=16)]
DeviceNodes = Annotated[
    str | None,
    typer.Option(help="The devices' nodes, e.g. /dev/accel{index}; for NVIDIA GPUs they are known.", metavar="PATH"),
]
TaskEnv = Annotated[list[str] | None, typer.Option(help="NAME=VALUE for all tasks; a job's own take precedence.")]
Config = Annotated[
    Path | None, typer.Option(help="Settings from a file; options given here win.", metavar="FILE", exists=True)
]
Emulate = Annotated[
    str | None,
    typer.Option(help="Emulate these devices: TYPE=GPUS/PER_NODE,... or a cluster file.", metavar="SPEC"),
]
DataFolder = Annotated[
    Path | None, typer.Option(help="Where database and output are kept.", metavar="DIR", file_okay=False)
]
DatabaseUrl = Annotated[
    str | None, typer.Option(help="Another database, e.g. postgresql+psycopg://user@host/rota.", metavar="URL")
]
EstimateBound = Annotated[
    float, typer.Option(help="An estimate takes the place of `auto` if its measured error is at most this.", min=0)
]
RequireToken = Annotated[
    bool, typer.Option("--require-token", help="Ask for a token on loopback too, where other users may connect.")
]
