"""The settings of a manager as a file: every option of `rota up`, under the same name with underscores."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from rota.core.errors import RotaError
from rota.core.model.job import OPPORTUNISTIC
from rota.files.alerts.settings import AlertsPart
from rota.files.document import read_document
from rota.files.durations import Seconds
from rota.files.job_shape import MOST_PRIORITY, Bytes, Name
from rota.files.notify.settings import NotificationsPart
from rota.files.quantities import NotAQuantity, parse_bytes, parse_cpus
from rota.files.shape import FileModel, checked

Text = Annotated[str, Field(min_length=1)]
Named = Annotated[dict[Text, Text], Field(min_length=1)]
_OTHER_FILES = frozenset({"nodes", "run", "roles", "physicalCluster", "taskRoles"})
"""Fields by which another kind of file is known."""


Rate = Annotated[float, Field(gt=0, le=1e6)]
Most = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]


def _switch(value: object) -> object:
    """The words `on` and `off`, which YAML takes for truth values."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


Switch = BeforeValidator(_switch)


class LimitsPart(FileModel):
    """What each caller may take; rates and numbers are for each token."""

    requests_per_second: Rate = 100.0
    requests_burst: Most = 1000
    requests_at_once: Most = 6
    """Requests of a token that are worked on together; others of it wait."""
    requests_waiting: Most = 64
    streams: Most = 64
    """Followed logs, event streams and open pages of a token."""
    jobs_per_second: Rate = 20.0
    jobs_burst: Most = 10_000
    jobs_at_once: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 1000
    waiting_jobs: Most = 20_000
    """Unfinished jobs of a token that do not run."""
    connections: Annotated[int, Field(strict=True, ge=8, le=60_000)] = 2000
    tasks: Most | None = None
    """Tasks without devices that run at once; without it, 16 for each CPU, at least 256."""


def _named(value: object) -> object:
    """The mapping in `nlp=ada,vision=bob`, as options write it; other values as they are."""
    if not isinstance(value, str) or "=" not in value:
        return value
    pairs = [part.partition("=") for part in value.split(",")]
    if not all(key.strip() and account.strip() for key, _, account in pairs):
        raise ValueError(f"{value[:60]!r}; write it as NAME, or as NAME=ACCOUNT,NAME=ACCOUNT")
    return {key.strip(): account.strip() for key, _, account in pairs}


def _variables(value: object) -> object:
    """The mapping in a list of `NAME=VALUE`, as options write it; other values as they are."""
    if not isinstance(value, list):
        return value
    pairs = [str(each).partition("=") for each in value]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise ValueError(f"{name[:60]!r}; write it as NAME=VALUE")
    return {name: text for name, _, text in pairs}


def _names(value: object) -> object:
    """A list of names, also as text with commas between them."""
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


def _caps(value: object) -> object:
    """Numbers by role or tenant, also as text: `member=0,nlp=5`."""
    if not isinstance(value, str):
        return value
    pairs = [part.partition("=") for part in value.split(",")]
    for key, equals, number in pairs:
        if not equals or not _WHOLE.fullmatch(number.strip()):
            raise ValueError(f"{key.strip()!r} is not ROLE=NUMBER or TENANT=NUMBER")
    return {key.strip(): int(number) for key, _, number in pairs}


_WHOLE = re.compile(r"-?[0-9]{1,10}", re.ASCII)
Tenants = Annotated[
    tuple[Name, ...], BeforeValidator(_names, json_schema_input_type=str | list[str]), Field(max_length=10_000)
]
PriorityCaps = Annotated[
    dict[Text, Annotated[int, Field(strict=True, ge=OPPORTUNISTIC, le=MOST_PRIORITY)]],
    BeforeValidator(_caps, json_schema_input_type=str | dict[str, int]),
]


DOMAIN = r"^(?i:(\*\.)?[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?){0,20})$"
Percent = Annotated[float, Field(ge=0, le=100)]
MIG_PROFILE = r"^[1-9][0-9]?g\.[0-9]+gb(\+[a-z0-9.]+)?$"
PerKwh = Annotated[float, Field(ge=0, le=1e6)]


class IdlePart(FileModel):
    """When a job's GPUs count as idle, and what follows."""

    below: Percent = 0.0
    for_: Annotated[Seconds, Field(alias="for", gt=0)] = 1800.0
    then: Literal["warn", "suspend", "stop"] = "warn"
    after: Seconds = 600.0


class MigPart(FileModel):
    """The GPUs that may be repartitioned when waiting jobs ask for it, and into what."""

    gpus: Annotated[tuple[Annotated[int, Field(ge=0, le=255)], ...], Field(min_length=1)]
    profiles: Annotated[tuple[Annotated[str, Field(pattern=MIG_PROFILE)], ...], Field(min_length=1)]


class GpuPart(FileModel):
    """How GPUs are watched, limited and shared."""

    nvml: Path | None = None
    memory_limit: Annotated[Literal["end", "off"], Switch] = "end"
    memory_grace: Seconds = 5.0
    sample: Annotated[Seconds, Field(le=3600)] = 1.0
    energy_price: PerKwh | None = None
    currency: Annotated[str, Field(max_length=8)] = ""
    carbon: PerKwh | None = None
    idle: IdlePart = IdlePart()
    mps: Annotated[Literal["off", "packed", "all"], Switch] = "off"
    bound: Annotated[float, Field(ge=0, lt=1)] = 0.0
    to_disk: Seconds | None = None
    mig: MigPart | None = None


def _by_default(parse: Callable[[object], int]) -> BeforeValidator:
    """`share`, `none`, or an amount, which is checked and kept as text."""

    def read(value: object) -> object:
        if value in ("share", "none"):
            return value
        try:
            amount = parse(value)
        except NotAQuantity as error:
            raise ValueError(f"{error}; or `share`, or `none`") from error
        if not 0 < amount <= MOST_BY_DEFAULT:
            raise ValueError(f"{str(value)[:40]!r} is not an amount above 0; write `none` for no limit")
        return str(value)

    return BeforeValidator(read)


MOST_BY_DEFAULT = 1 << 62
DefaultBytes = Annotated[str, _by_default(parse_bytes)]
DefaultCpus = Annotated[str, _by_default(parse_cpus)]


CheckName = Literal[
    "disk", "memory", "time", "cgroup", "gpu", "xid", "dcgm", "dcgm-diag", "matmul", "bandwidth", "all-reduce"
]


class HealthPart(FileModel):
    """How the health of nodes is checked."""

    every: Annotated[Seconds, Field(le=86400)] = 300.0
    checks: tuple[CheckName, ...] = ("disk", "memory", "time", "cgroup", "gpu", "xid", "dcgm")
    programs: Path | None = None
    causes: Path | None = None
    timeout: Annotated[Seconds, Field(gt=0)] = 60.0
    failure_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 6.5
    large: Annotated[int, Field(strict=True, ge=1)] = 8
    proven_after: Seconds = 86400.0
    spares: Annotated[int, Field(strict=True, ge=0)] = 0
    stall: Literal["warn", "restart"] = "warn"
    straggler: Literal["warn", "swap"] = "warn"
    stall_after: Annotated[Seconds, Field(gt=0)] = 600.0


class ContainersPart(FileModel):
    """What runs the containers of jobs, where their images are, and what may be mounted."""

    runtime: Annotated[Literal["auto", "podman", "docker", "apptainer", "off"], Switch] = "auto"
    pull: Literal["never", "missing", "always"] = "never"
    images: tuple[Path, ...] = ()
    volumes: tuple[Annotated[str, Field(pattern=r"^/.*[^/]$|^/$")], ...] | None = None


class IdleSessionsPart(FileModel):
    """When terminals in jobs end in which nothing happens."""

    after: Annotated[Seconds, Field(gt=0)] | None = None
    warn: Annotated[Seconds, Field(gt=0)] = 600.0

    @model_validator(mode="after")
    def _agree(self) -> IdleSessionsPart:
        if self.after is not None and self.warn >= self.after:
            raise ValueError(f"warn must be less than after, by which time they end ({self.after:g} s)")
        return self


class UpFile(FileModel):
    """How a manager is run. What is not given is as `rota up` says."""

    emulate: Text | None = None
    policy: Text = "priority"
    protect: Literal["unsaved", "none"] = "unsaved"
    min_run: Seconds = 60.0
    placement: Text | None = None
    network: Text | None = None
    tenancy: Text = "none"
    tenants: Tenants | None = None
    max_priority: PriorityCaps | None = None
    host: Text = "127.0.0.1"
    port: Annotated[int, Field(strict=True, ge=0, le=65535)] = 7650
    data: Path | None = None
    database: Text | None = None
    run_as: Annotated[Text | Named | None, BeforeValidator(_named)] = None
    accounts: Annotated[Text | Named | None, BeforeValidator(_named)] = None
    isolation: Annotated[Literal["auto", "on", "off"], Switch] = "auto"
    seccomp: Annotated[bool, Field(strict=True)] = False
    default_cpus: DefaultCpus = "share"
    default_memory: DefaultBytes = "share"
    scratch: DefaultBytes = "share"
    task_output: Annotated[Bytes, Field(ge=1 << 20)] = 128 << 20
    keep_size: DefaultBytes = "share"
    max_processes: Annotated[int, Field(strict=True, ge=16, le=1 << 22)] = 4096
    device_nodes: Text | None = None
    gpu_suspend: Annotated[Literal["auto", "off"], Switch] = "auto"
    task_env: Annotated[
        dict[Text, str] | None, BeforeValidator(_variables, json_schema_input_type=list[str] | dict[str, str] | None)
    ] = None
    keep: Annotated[Seconds, Field(gt=0)] = 30 * 86400.0
    estimate_bound: Annotated[float, Field(ge=0)] = 0.25
    require_token: Annotated[bool, Field(strict=True)] = False
    users: Path | None = None
    oidc: Path | None = None
    url: Annotated[str, Field(pattern=r"^https?://[^\s/?#@]+/?$")] | None = None
    trust_proxy: Annotated[bool, Field(strict=True)] = False
    proxy_domain: Annotated[str, Field(pattern=DOMAIN)] | None = None
    cgroups: Annotated[Literal["auto", "on", "off"], Switch] = "auto"
    tls_cert: Path | None = None
    tls_key: Path | None = None
    log_format: Literal["text", "json"] = "text"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    limits: LimitsPart = LimitsPart()
    gpu: GpuPart = GpuPart()
    health: HealthPart = HealthPart()
    containers: ContainersPart = ContainersPart()
    idle_sessions: IdleSessionsPart = IdleSessionsPart()
    data_cache: Annotated[Bytes, Field(ge=1 << 20)] = 64 << 30
    notifications: NotificationsPart = NotificationsPart()
    alerts: AlertsPart = AlertsPart()

    @model_validator(mode="after")
    def _agree(self) -> UpFile:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("TLS needs both tls_cert and tls_key")
        try:
            self.alerts.refuse(self.notifications)
        except RotaError as error:
            raise ValueError(str(error)) from error
        return self

    @property
    def asks_for_tokens(self) -> bool:
        """Whether a token is needed on loopback too: as for all that a proxy on this machine lets through."""
        return self.require_token or self.trust_proxy


def is_up_file(document: object) -> bool:
    """Whether a file's values are settings of a manager."""
    if not isinstance(document, Mapping) or _OTHER_FILES & document.keys():
        return False
    return bool(UpFile.model_fields.keys() & document.keys())


def read_up_file(path: Path) -> dict[str, object]:
    """The settings in a file that are given there; names of files in it are seen from where it lies."""
    return settings_from(read_document(path), path)


def settings_from(document: object, path: Path) -> dict[str, object]:
    """The settings in a document that was read from `path`."""
    values = {} if document is None else document
    file = checked(UpFile, values, path)
    given = {name: getattr(file, name) for name in file.model_fields_set}
    beside = path.absolute().parent
    for name in ("data", "tls_cert", "tls_key", "users", "oidc"):
        if isinstance(given.get(name), Path):
            given[name] = beside / given[name]
    part = given.get("gpu")
    if isinstance(part, GpuPart) and part.nvml is not None:
        given["gpu"] = part.model_copy(update={"nvml": beside / part.nvml})
    health = given.get("health")
    if isinstance(health, HealthPart):
        named = {name: getattr(health, name) for name in ("programs", "causes")}
        update = {name: beside / value for name, value in named.items() if value is not None}
        given["health"] = health.model_copy(update=update)
    containers = given.get("containers")
    if isinstance(containers, ContainersPart):
        given["containers"] = containers.model_copy(
            update={"images": tuple(beside / each for each in containers.images)}
        )
    notifications = given.get("notifications")
    if isinstance(notifications, NotificationsPart):
        given["notifications"] = notifications.seen_from(beside)
    accounts = given.get("accounts")
    if isinstance(accounts, str) and accounts not in ("names", "tokens"):
        given["accounts"] = str(beside / accounts)
    spec = given.get("emulate")
    if isinstance(spec, str) and spec.endswith((".yaml", ".yml", ".json")):
        given["emulate"] = str(beside / spec)
    return given
