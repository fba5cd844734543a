"""`rota up`: the manager of this machine."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota.api.log import LogFormat, LogLevel, set_up
from rota.core.errors import RotaError

if TYPE_CHECKING:
    from rota.api.serve import Options
    from rota.core.model.cluster import Cluster
    from rota.drivers.local.cgroup import Cgroups, NoCgroups
    from rota.files.up_file import UpFile


class Cgroup(Enum):
    """Whether tasks get cgroups: where available, always (or no manager starts), or never."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


def up(
    ctx: typer.Context,
    config: Annotated[
        Path | None, typer.Option(help="Settings from a file; options given here win.", metavar="FILE", exists=True)
    ] = None,
    emulate: Annotated[
        str | None,
        typer.Option(help="Emulate these devices: TYPE=GPUS/PER_NODE,... or a cluster file.", metavar="SPEC"),
    ] = None,
    policy: Annotated[str, typer.Option(help="NAME[:key=value,...]; `rota policies` lists them.")] = "priority",
    placement: Annotated[
        str | None, typer.Option(help="Which devices jobs get; by default the policy's placement.")
    ] = None,
    tenancy: Annotated[str, typer.Option(help="How devices are divided among tenants: none, quota or cells.")] = "none",
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes any that is free.", min=0, max=65535)] = 7650,
    data: Annotated[
        Path | None, typer.Option(help="Where database and output are kept.", metavar="DIR", file_okay=False)
    ] = None,
    database: Annotated[
        str | None, typer.Option(help="Another database, e.g. postgresql+psycopg://user@host/rota.", metavar="URL")
    ] = None,
    run_as: Annotated[str | None, typer.Option(help="The user that tasks run as, if you are root.")] = None,
    keep: Annotated[str, typer.Option(help="How long jobs and their output are kept after their end.")] = "30d",
    estimate_bound: Annotated[
        float, typer.Option(help="An estimate takes the place of `auto` if its measured error is at most this.", min=0)
    ] = 0.25,
    require_token: Annotated[
        bool, typer.Option("--require-token", help="Ask for a token on loopback too, where other users may connect.")
    ] = False,
    cgroups: Annotated[
        Cgroup, typer.Option(help="Whether the kernel keeps tasks' limits: if it can, always, or never.")
    ] = Cgroup.AUTO,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate file (PEM).", exists=True)] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The certificate's key (PEM).", exists=True)] = None,
    log_format: Annotated[LogFormat, typer.Option(help="One event per line, as text or JSON.")] = LogFormat.TEXT,
    log_level: Annotated[LogLevel, typer.Option(help="How much is logged.")] = LogLevel.INFO,
) -> None:
    """Start the manager of this machine; it runs until it is stopped (Ctrl-C). Jobs keep running meanwhile.

    Examples:

      rota up

      rota up --emulate gpu=8/4

      rota up --policy tiresias --data /var/lib/rota

      rota up --config /etc/rota.yaml --log-format json
    """
    from rota.api.serve import serve

    settings = _merged(ctx, config)
    verify(settings)
    options = _options(settings)
    set_up(LogFormat(settings.log_format), LogLevel(settings.log_level))
    say = (lambda line: typer.echo(line, err=True)) if settings.log_format == "text" else (lambda line: None)
    serve(options, say, typer.echo)


def _merged(ctx: typer.Context, config: Path | None) -> UpFile:
    """The settings: of the command line, else of the file, else the defaults."""
    from rota.files.shape import checked
    from rota.files.up_file import UpFile, read_up_file

    given: dict[str, Any] = {} if config is None else read_up_file(config)
    for name, value in ctx.params.items():
        if name != "config" and getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE":
            given[name] = value.value if isinstance(value, Enum) else value
    return checked(UpFile, given, Path("rota up"))


def verify(settings: UpFile) -> None:
    """Refuse settings that a manager can't start with; nothing is written."""
    from rota.drivers.simulator.guarantees import refuse_broken_guarantees

    _verify_scheduling(settings)
    for field, path in (("tls_cert", settings.tls_cert), ("tls_key", settings.tls_key)):
        if path is not None and not path.is_file():
            raise RotaError(f"{field}: there is no file {path}")
    if settings.tls_cert is not None:
        _must_be_a_pair(settings.tls_cert, settings.tls_key)
    if settings.emulate is not None:
        refuse_broken_guarantees(_cluster(settings.emulate), settings.tenancy, settings.emulate)
    if settings.run_as is not None:
        _user(settings.run_as)


def _verify_scheduling(settings: UpFile) -> None:
    """Refuse a policy, its options, a placement or a tenancy that is unknown, or that does not fit the others."""
    from rota.drivers.local.driver import CONTRACT
    from rota.placement import style
    from rota.policies import find_policy
    from rota.tenancy import refuse_unknown

    declared, asked = find_policy(settings.policy)
    declared.refuse_driver(asked, CONTRACT, live=True)
    options = declared.live_options(asked)
    style(settings.placement or declared.placement_with(options))
    refuse_unknown(settings.tenancy)
    declared.refuse_tenancy(settings.tenancy, options)


def _must_be_a_pair(certificate: Path, key: Path | None) -> None:
    import ssl

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as error:
        raise RotaError(f"tls_cert {certificate} and tls_key {key} can't be used together: {error}") from error


def _options(settings: UpFile) -> Options:
    """The settings as options of the manager."""
    from rota.api.limits.values import Limits
    from rota.api.serve import Options
    from rota.drivers.local.machine import nvml_folder
    from rota.drivers.local.settings import Settings
    from rota.live.loop.boot import Scheduling
    from rota.sdk.place import data_folder
    from rota.web.gate import Gate

    home = (settings.data or data_folder()).absolute()
    return Options(
        scheduling=Scheduling(
            cluster=_cluster(settings.emulate),
            policy=settings.policy,
            placement=settings.placement,
            tenancy=settings.tenancy,
            has_fixed_nodes=settings.emulate is None,
        ),
        settings=Settings(
            home=home,
            user=None if settings.run_as is None else _user(settings.run_as),
            limits=_limits(home, Cgroup(settings.cgroups)),
            nvml=nvml_folder() if settings.emulate is None else None,
        ),
        host=settings.host,
        port=settings.port,
        database=settings.database,
        certificate=settings.tls_cert,
        key=settings.tls_key,
        require_token=settings.require_token,
        keep_s=settings.keep,
        estimate_bound=settings.estimate_bound,
        call_limits=Limits(**settings.limits.model_dump(exclude={"tasks"})),
        most_tasks=settings.limits.tasks,
        pages=Gate,
    )


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
        raise RotaError(f"run_as: there is no user {name!r}") from None
    if os.geteuid() not in (0, found.pw_uid):
        raise RotaError(f"run_as is {name!r}: only root can run tasks as another user")
    return found.pw_uid, found.pw_gid, tuple(os.getgrouplist(name, found.pw_gid))
