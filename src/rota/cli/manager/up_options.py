"""Options of `rota up`, among them those that say under which accounts tasks run and how they are kept apart."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from rota.cli.completion import policy_names


class Cgroup(Enum):
    """Whether tasks get cgroups: where available, always (or no manager starts), or never."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class GpuSuspend(Enum):
    """Whether preempted jobs on GPUs are suspended with their memory on the host: where possible, or never."""

    AUTO = "auto"
    OFF = "off"


class Isolation(Enum):
    """Whether tasks are confined that run as other users: as far as possible, wholly (or no manager starts), or not."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class Protected(Enum):
    """Which running jobs the manager never stops in favour of others."""

    UNSAVED = "unsaved"
    NONE = "none"


Config = Annotated[
    Path | None, typer.Option(help="Settings from a file; options given here win.", metavar="FILE", exists=True)
]
Emulate = Annotated[
    str | None,
    typer.Option(help="Emulate these devices: TYPE=GPUS/PER_NODE,... or a cluster file.", metavar="SPEC"),
]
ProtectOption = Annotated[
    Protected, typer.Option(help="Running jobs that are never stopped for others: those that start over, or none.")
]
PolicyOption = Annotated[
    str, typer.Option(help="NAME[:key=value,...]; `rota policies` lists them.", autocompletion=policy_names)
]
MinRunOption = Annotated[
    str, typer.Option(help="How long a job runs at least before it is stopped for others; grows with each time.")
]
PlacementOption = Annotated[str | None, typer.Option(help="Which devices jobs get; by default the policy's placement.")]
NetworkOption = Annotated[
    str | None,
    typer.Option(help="Links between the nodes, for the order of ranks, turns of jobs and forecasts.", metavar="FILE"),
]
TenantsOption = Annotated[
    str | None, typer.Option(help="Tenants beside those of a cluster file, e.g. nlp,vision.", metavar="NAMES")
]
MaxPriorityOption = Annotated[
    str | None,
    typer.Option(help="The highest priority by role or tenant, e.g. member=0,nlp=5,nlp/maintainer=9; 0 without."),
]
DataFolder = Annotated[
    Path | None, typer.Option(help="Where database and output are kept.", metavar="DIR", file_okay=False)
]
DatabaseUrl = Annotated[
    str | None, typer.Option(help="Another database, e.g. postgresql+psycopg://user@host/rota.", metavar="URL")
]
RunAs = Annotated[
    str | None,
    typer.Option(help="The account that tasks run as, if you are root: ACCOUNT, or TENANT=ACCOUNT,..."),
]
AccountsOption = Annotated[
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
DefaultCpusOption = Annotated[
    str,
    typer.Option(
        help="CPUs of tasks that ask for none, for each GPU: a number, `share` (what others leave) or `none`."
    ),
]
DefaultMemoryOption = Annotated[
    str,
    typer.Option(help="Memory of tasks that ask for none, for each GPU: a size, `share` (by GPUs or CPUs) or `none`."),
]
Scratch = Annotated[
    str,
    typer.Option(help="What a job may write to its own folders: a size, `share` (a tenth of the disk) or `none`."),
]
TaskOutput = Annotated[str, typer.Option(help="Output that is kept of each task; the oldest is dropped first.")]
KeepSize = Annotated[
    str,
    typer.Option(help="What ended jobs' folders may hold: a size, `share` (half of the disk) or `none`."),
]
DeviceNodes = Annotated[
    str | None,
    typer.Option(help="The devices' nodes, e.g. /dev/accel{index}; for NVIDIA GPUs they are known.", metavar="PATH"),
]
GpuSuspendOption = Annotated[
    GpuSuspend, typer.Option(help="Whether preempted jobs that save nothing are suspended, where the driver can.")
]
TaskEnv = Annotated[list[str] | None, typer.Option(help="NAME=VALUE for all tasks; a job's own take precedence.")]
EstimateBound = Annotated[
    float, typer.Option(help="An estimate takes the place of `auto` if its measured error is at most this.", min=0)
]
RequireToken = Annotated[
    bool, typer.Option("--require-token", help="Ask for a token on loopback too, where other users may connect.")
]
UsersOption = Annotated[
    Path | None, typer.Option(help="The file of local users; `rota users` writes it.", metavar="FILE")
]
OidcOption = Annotated[
    Path | None, typer.Option(help="Single sign-on: a file with the OpenID Connect provider.", metavar="FILE")
]
UrlOption = Annotated[
    str | None, typer.Option(help="The address in browsers, e.g. https://rota.example.org.", metavar="URL")
]
TrustProxyOption = Annotated[
    bool, typer.Option("--trust-proxy", help="A reverse proxy on this machine says where requests come from.")
]
ProxyDomainOption = Annotated[
    str | None,
    typer.Option(help="The domain whose names lead here, for pages of jobs: jobs.example.org.", metavar="DOMAIN"),
]
CgroupsOption = Annotated[
    Cgroup, typer.Option(help="Whether the kernel keeps tasks' limits: if it can, always, or never.")
]
