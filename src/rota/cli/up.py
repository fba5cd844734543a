"""`rota up`: the manager of this machine."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rota.core.errors import RotaError

if TYPE_CHECKING:
    from rota.core.cluster import Cluster
    from rota.drivers.local.cgroup import Cgroups, NoCgroups


class Cgroup(Enum):
    """Whether tasks get cgroups: where they can be had, or else no manager, or none."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


def up(
    emulate: Annotated[
        str | None,
        typer.Option(help="Pretend to have these devices: TYPE=GPUS/PER_NODE,... or a cluster file.", metavar="SPEC"),
    ] = None,
    policy: Annotated[str, typer.Option(help="NAME[:key=value,...]; `rota policies` lists them.")] = "priority",
    placement: Annotated[str | None, typer.Option(help="Which devices; by default as the policy says.")] = None,
    tenancy: Annotated[str, typer.Option(help="Who may use what.")] = "none",
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes any that is free.", min=0, max=65535)] = 7650,
    data: Annotated[
        Path | None, typer.Option(help="Where database and output are kept.", metavar="DIR", file_okay=False)
    ] = None,
    database: Annotated[
        str | None, typer.Option(help="Another database, e.g. postgresql+psycopg://user@host/rota.", metavar="URL")
    ] = None,
    run_as: Annotated[str | None, typer.Option(help="Whose processes tasks are, if you are root.")] = None,
    keep: Annotated[str, typer.Option(help="How long jobs and their output are kept after their end.")] = "30d",
    require_token: Annotated[
        bool, typer.Option("--require-token", help="Ask for a token on loopback too, where other users may connect.")
    ] = False,
    cgroups: Annotated[
        Cgroup, typer.Option(help="Whether the kernel keeps tasks' limits: if it can, always, or never.")
    ] = Cgroup.AUTO,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate file (PEM).", exists=True)] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The certificate's key (PEM).", exists=True)] = None,
) -> None:
    """Start the manager of this machine; it runs until it is told to stop (Ctrl-C). Jobs run on meanwhile.

    Examples:

      rota up

      rota up --emulate gpu=8/4

      rota up --policy tiresias --data /var/lib/rota
    """
    from rota.api.serve import Options, serve
    from rota.drivers.local.driver import Settings
    from rota.files.quantities import parse_duration
    from rota.live.boot import Scheduling
    from rota.sdk.place import data_folder

    if (tls_cert is None) != (tls_key is None):
        raise RotaError("TLS needs both --tls-cert and --tls-key")
    home = (data or data_folder()).absolute()
    options = Options(
        scheduling=Scheduling(cluster=_cluster(emulate), policy=policy, placement=placement, tenancy=tenancy),
        settings=Settings(home=home, user=None if run_as is None else _user(run_as), limits=_limits(home, cgroups)),
        host=host,
        port=port,
        database=database,
        certificate=tls_cert,
        key=tls_key,
        require_token=require_token,
        keep_s=parse_duration(keep),
    )
    serve(options, lambda line: typer.echo(line, err=True))


def _limits(home: Path, wanted: Cgroup) -> Cgroups | NoCgroups:
    from rota.drivers.local.cgroup import NoCgroups, find

    if wanted is Cgroup.OFF:
        return NoCgroups(why="--cgroups off")
    found = find(home)
    if wanted is Cgroup.ON and isinstance(found, NoCgroups):
        raise RotaError(f"--cgroups on: no cgroups can be made here ({found.why}); leave it out to do without")
    return found


def _cluster(emulate: str | None) -> Cluster:
    if emulate is None:
        from rota.drivers.local.machine import this_machine

        return this_machine()
    from rota.files.cluster import read_cluster

    return read_cluster(emulate)


def _user(name: str) -> tuple[int, int, tuple[int, ...]]:
    import os
    import pwd

    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise RotaError(f"--run-as: there is no user {name!r}") from None
    if os.geteuid() not in (0, found.pw_uid):
        raise RotaError(f"--run-as {name}: only root can run tasks as another user")
    return found.pw_uid, found.pw_gid, tuple(os.getgrouplist(name, found.pw_gid))
