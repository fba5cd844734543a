"""`rota up`: the manager of this machine."""

from __future__ import annotations

import os
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota.api.log import LogFormat, LogLevel, set_up
from rota.cli.manager.up_options import (
    AccountsOption,
    Cgroup,
    CgroupsOption,
    Config,
    DatabaseUrl,
    DataFolder,
    DefaultCpusOption,
    DefaultMemoryOption,
    DeviceNodes,
    Emulate,
    EstimateBound,
    GpuSuspend,
    GpuSuspendOption,
    Isolation,
    IsolationOption,
    KeepSize,
    MaxPriorityOption,
    MinRunOption,
    NetworkOption,
    OidcOption,
    PlacementOption,
    PolicyOption,
    Protected,
    ProtectOption,
    ProxyDomainOption,
    RequireToken,
    RunAs,
    Scratch,
    Seccomp,
    TaskEnv,
    TaskOutput,
    TenantsOption,
    TrustProxyOption,
    UrlOption,
    UsersOption,
)
from rota.cli.terminal import echo
from rota.core.errors import RotaError

if TYPE_CHECKING:
    from rota.api.serve import Options
    from rota.core.model.cluster import Cluster
    from rota.drivers.local.cgroup import Cgroups, NoCgroups
    from rota.drivers.local.confinement.abilities import Confinement
    from rota.drivers.local.confinement.accounts import AccountMap
    from rota.drivers.local.settings import Settings
    from rota.files.up_file import UpFile
    from rota.network.link_guide import LinkGuide


CLUSTER_FILES = (".yaml", ".yml", ".json")
PRIVATE = 0o077
"""The manager's umask: its files are its own unless it says otherwise."""


def up(
    ctx: typer.Context,
    config: Config = None,
    emulate: Emulate = None,
    policy: PolicyOption = "priority",
    protect: ProtectOption = Protected.UNSAVED,
    min_run: MinRunOption = "60s",
    placement: PlacementOption = None,
    network: NetworkOption = None,
    tenancy: Annotated[str, typer.Option(help="How devices are divided among tenants: none, quota or cells.")] = "none",
    tenants: TenantsOption = None,
    max_priority: MaxPriorityOption = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes any that is free.", min=0, max=65535)] = 7650,
    data: DataFolder = None,
    database: DatabaseUrl = None,
    run_as: RunAs = None,
    accounts: AccountsOption = None,
    isolation: IsolationOption = Isolation.AUTO,
    seccomp: Seccomp = False,
    default_cpus: DefaultCpusOption = "share",
    default_memory: DefaultMemoryOption = "share",
    scratch: Scratch = "share",
    task_output: TaskOutput = "128Mi",
    max_processes: Annotated[int, typer.Option(help="Processes and threads that a task may have.", min=16)] = 4096,
    device_nodes: DeviceNodes = None,
    gpu_suspend: GpuSuspendOption = GpuSuspend.AUTO,
    task_env: TaskEnv = None,
    keep: Annotated[str, typer.Option(help="How long jobs and their output are kept after their end.")] = "30d",
    keep_size: KeepSize = "share",
    estimate_bound: EstimateBound = 0.25,
    require_token: RequireToken = False,
    users: UsersOption = None,
    oidc: OidcOption = None,
    url: UrlOption = None,
    trust_proxy: TrustProxyOption = False,
    proxy_domain: ProxyDomainOption = None,
    cgroups: CgroupsOption = Cgroup.AUTO,
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
    settings = _merged(ctx, config)
    verify(settings)
    _warn_of_rounds(settings)
    _run(settings)


def _run(settings: UpFile) -> None:
    """Run a manager with verified settings until it is stopped."""
    from rota.api.serve import serve

    options = _options(settings, umask=os.umask(PRIVATE))
    set_up(LogFormat(settings.log_format), LogLevel(settings.log_level))
    say = (lambda line: echo(line, err=True)) if settings.log_format == "text" else (lambda line: None)
    serve(options, say)


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
    accounts = _accounts(settings)
    accounts.verify()
    _refuse_strangers_as_root(settings, accounts)
    _verify_logins(settings)


def _verify_logins(settings: UpFile) -> None:
    """Refuse a file of users or of single sign-on that can't be used."""
    from rota.api.guard.listening import is_loopback
    from rota.api.identity.setup import need_oidc, read_secret
    from rota.files.oidc_file import read_oidc_file
    from rota.store.user_file import read_users

    if settings.users is not None:
        read_users(settings.users)
    if settings.oidc is None:
        return
    need_oidc()
    read_secret(read_oidc_file(settings.oidc).client_secret_file)
    if settings.url is None and not is_loopback(settings.host):
        raise RotaError("oidc needs url, the address of this manager in browsers: the provider sends them back to it")


def guarded_policy(settings: UpFile) -> str:
    """The policy with the guard's options, unless it never stops a job or can't ask the guard."""
    from rota.core.engine.preemption_guard import PreemptionGuard
    from rota.mechanisms.guarded import with_guard
    from rota.policies import find_policy

    declared, options = find_policy(settings.policy)
    guard = PreemptionGuard(protects_unsaved=settings.protect == "unsaved", min_run_s=settings.min_run)
    if guard.is_open or not declared.asks_guard or not _stops_jobs(settings.policy):
        return settings.policy
    return f"{settings.policy.removesuffix(options).rstrip(':')}:{with_guard(options, guard)}"


def _stops_jobs(policy: str) -> bool:
    from rota.core.messages.decisions import DecisionKind
    from rota.policies import find_policy

    declared, options = find_policy(policy)
    return bool(declared.kinds(declared.live_options(options)) - {DecisionKind.START, DecisionKind.SHARE})


def _warn_of_rounds(settings: UpFile) -> None:
    from rota.policies import find_policy

    if settings.protect == "unsaved" and not find_policy(settings.policy)[0].asks_guard:
        echo(
            f"warning: policy {settings.policy} stops jobs by rounds: those without a checkpoint start over each time",
            err=True,
        )


def _verify_scheduling(settings: UpFile) -> None:
    """Refuse a policy, its options, a placement or a tenancy that is unknown, or that does not fit the others."""
    from rota.drivers.local.driver import CONTRACT
    from rota.placement import on_network, style
    from rota.policies import find_policy
    from rota.tenancy import refuse_unknown

    declared, asked = find_policy(settings.policy)
    declared.refuse_driver(asked, CONTRACT, live=True)
    options = declared.live_options(asked)
    style(on_network(settings.placement or declared.placement_with(options), settings.network))
    refuse_unknown(settings.tenancy)
    declared.refuse_tenancy(settings.tenancy, options)


def _must_be_a_pair(certificate: Path, key: Path | None) -> None:
    import ssl

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as error:
        raise RotaError(f"tls_cert {certificate} and tls_key {key} can't be used together: {error}") from error


def _options(settings: UpFile, *, umask: int) -> Options:
    """The settings as options of the manager."""
    from rota.api.serve import Options
    from rota.cli.manager.up_gpu import with_gpus
    from rota.drivers.local.confinement.default_limits import KEPT_PART, disk_part
    from rota.files.oidc_file import read_oidc_file
    from rota.live.intake.tenant_registry import TenantSettings
    from rota.live.loop.boot import Scheduling
    from rota.sdk.place import data_folder
    from rota.web.gate import Gate

    home = (settings.data or data_folder()).absolute()
    cluster = _cluster(settings.emulate, settings)
    network = _network(settings)
    guide = _guide(network, cluster)
    return Options(
        scheduling=Scheduling(
            cluster=cluster,
            policy=guarded_policy(settings),
            placement=settings.placement,
            tenancy=settings.tenancy,
            has_fixed_nodes=settings.emulate is None,
            network=None if guide is None else network,
        ),
        settings=with_gpus(replace(_task_settings(settings, home, cluster, umask), guide=guide), settings, cluster),
        host=settings.host,
        port=settings.port,
        database=settings.database,
        certificate=settings.tls_cert,
        key=settings.tls_key,
        require_token=settings.asks_for_tokens,
        keep_s=settings.keep,
        keep_bytes=disk_part(settings.keep_size, KEPT_PART, home),
        estimate_bound=settings.estimate_bound,
        call_limits=settings.limits,
        health=settings.health,
        notifications=settings.notifications,
        alerts=settings.alerts,
        most_tasks=settings.limits.tasks,
        tenants=TenantSettings(names=settings.tenants or (), caps=settings.max_priority or {}),
        pages=Gate,
        users=settings.users,
        oidc=None if settings.oidc is None else read_oidc_file(settings.oidc),
        url=settings.url,
        trust_proxy=settings.trust_proxy,
        proxy_domain=settings.proxy_domain,
    )


def _network(settings: UpFile) -> str | None:
    """The network of the settings, or of the cluster file that is emulated; None where neither names any."""
    spec = settings.network
    if spec is None and settings.emulate is not None and settings.emulate.endswith(CLUSTER_FILES):
        from rota.files.cluster_file import network_spec

        spec = network_spec(Path(settings.emulate))
    if spec is None or spec.startswith("{"):
        return spec
    file, colon, options = spec.partition(":")
    return f"{Path(file).absolute()}{colon}{options}"  # forecasts are made in other processes


def _guide(network: str | None, cluster: Cluster) -> LinkGuide | None:
    """What tells jobs about the links of a network; it must connect all nodes."""
    if network is None:
        return None
    from rota.files.network.network_file import network_from_spec
    from rota.network.link_guide import LinkGuide

    names = [str(node.id) for node in cluster.nodes]
    model = network_from_spec(network, names)
    model.topology.check_nodes(names, model.source)
    return LinkGuide(model)


def _task_settings(settings: UpFile, home: Path, cluster: Cluster, umask: int) -> Settings:
    """The settings as those of the driver that runs tasks."""
    from rota.drivers.local.confinement.default_limits import SCRATCH_PART, default_limits, disk_part
    from rota.drivers.local.containers.settings import find_containers
    from rota.drivers.local.interactive.idle_limit import IdleSessionLimit
    from rota.drivers.local.machine import device_nodes
    from rota.drivers.local.settings import LOG_FILES, Settings
    from rota.health.causes import read_causes
    from rota.health.failure_rate import FailureRate

    devices = sum(node.devices for node in cluster.nodes)
    defaults = default_limits(settings.default_cpus, settings.default_memory, devices)
    return Settings(
        home=home,
        accounts=_accounts(settings),
        confinement=_confinement(settings),
        containers=find_containers(settings.containers, maps_accounts=not _accounts(settings).is_empty),
        data_cache_bytes=settings.data_cache,
        idle_sessions=IdleSessionLimit(after_s=settings.idle_sessions.after, warn_s=settings.idle_sessions.warn),
        umask=umask,
        task_env=settings.task_env or {},
        device_nodes=device_nodes(settings.device_nodes, emulated=settings.emulate is not None),
        scratch_bytes=disk_part(settings.scratch, SCRATCH_PART, home),
        log_bytes=settings.task_output // LOG_FILES,
        max_processes=settings.max_processes,
        defaults=defaults,
        causes=read_causes(settings.health.causes),
        failure_rate=FailureRate(prior=settings.health.failure_rate),
        limits=_limits(home, Cgroup(settings.cgroups), defaults.tasks_bytes),
    )


def _limits(home: Path, wanted: Cgroup, tasks_bytes: int) -> Cgroups | NoCgroups:
    from rota.drivers.local.cgroup import NoCgroups
    from rota.drivers.local.cgroup_search import find

    if wanted is Cgroup.OFF:
        return NoCgroups(why="--cgroups off")
    found = find(home)
    if wanted is Cgroup.ON and isinstance(found, NoCgroups):
        raise RotaError(f"--cgroups on: no cgroups can be made here ({found.why}); leave it out to do without")
    return found if isinstance(found, NoCgroups) else replace(found, tasks_bytes=tasks_bytes)


def _cluster(emulate: str | None, settings: UpFile | None = None) -> Cluster:
    if emulate is None:
        from rota.cli.manager.up_gpu import machine_cluster

        return machine_cluster(settings)
    from rota.files.cluster import read_cluster

    return read_cluster(emulate)


def _accounts(settings: UpFile) -> AccountMap:
    from rota.drivers.local.confinement.accounts import ANY, AccountMap

    run_as = {ANY: settings.run_as} if isinstance(settings.run_as, str) else settings.run_as or {}
    return AccountMap(users=settings.accounts, run_as=run_as)


def _confinement(settings: UpFile) -> Confinement:
    """Find out how tasks can be confined, if any may run as another user."""
    from rota.drivers.local.confinement.abilities import Confinement, find_confinement

    if _accounts(settings).is_empty and settings.isolation != "on":
        return Confinement(why="tasks run as the manager does; see accounts and run_as")
    return find_confinement(settings.isolation, seccomp=settings.seccomp)


def _refuse_strangers_as_root(settings: UpFile, accounts: AccountMap) -> None:
    """Refuse to run the jobs of all tokens as root, unless the settings say so explicitly."""
    from rota.api.guard.listening import is_loopback

    if os.geteuid() == 0 and accounts.is_empty and (settings.asks_for_tokens or not is_loopback(settings.host)):
        raise RotaError(
            "this manager is root and gives out tokens: without accounts, every job would run as root; set accounts "
            "(names, tokens or a file) or run_as (TENANT=ACCOUNT,...), or start it as an ordinary user"
        )
