"""The shape of a job file, which is also the body of a submission: its fields, and what each may be."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from rota.core.errors import did_you_mean
from rota.core.model.job import OPPORTUNISTIC, WHOLE, Level
from rota.files.durations import Seconds
from rota.files.quantities import NotAQuantity, parse_bytes, parse_cpus
from rota.files.shape import FileModel

MOST_TASKS = 4096
MOST_TEXT = 65536
MOST_PRIORITY = 1_000_000
MOST_RESTARTS = 1000
LONGEST_RUN_S = 1e10
"""Three hundred years: more is a mistake."""
LONGEST_INTERVAL_S = 1e9
"""Between two checkpoints that a job writes unasked."""
STOP_SIGNALS = ("SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGQUIT")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}", re.ASCII)


def _read(parse: Callable[[object], Any]) -> BeforeValidator:
    def read(value: object) -> Any:
        try:
            return parse(value)
        except NotAQuantity as error:
            raise ValueError(str(error)) from error

    return BeforeValidator(read)


def _amount(parse: Callable[[object], int]) -> BeforeValidator:
    """Reads what can also be left to the manager."""

    def read(value: object) -> int:
        try:
            return parse(value)
        except NotAQuantity as error:
            is_word = isinstance(value, str) and value.strip().isalpha()
            raise NotAQuantity(f"{error}, or auto" if is_word else str(error)) from error

    return _read(read)


def name_of(value: object) -> object:
    """A name as files write it, also as a number; raises a `ValueError` for what is none."""
    if value is None:
        raise ValueError("it is given without a value (null); write a name, or leave it out")
    if isinstance(value, bool):
        raise ValueError(f"it is {str(value).lower()}, as YAML reads yes, no, on and off; put the name in quotes")
    text = str(value) if isinstance(value, int) else value
    if not isinstance(text, str) or not _NAME.fullmatch(text):
        raise ValueError(
            f"not a name: {_short(value)}; use up to 128 letters, digits, dots, dashes and underscores, "
            "and begin with a letter or digit"
        )
    return text


def _types(value: object) -> object:
    if value == "auto":
        raise ValueError("it names types of devices; write gpus: auto to leave their number to the manager")
    return value


def _devices(value: object) -> int:
    """Thousandths of a device from `4` or `0.5`."""
    try:
        milli = parse_cpus(value)
    except NotAQuantity:
        raise NotAQuantity(f"not a number of GPUs: {_short(value)}; write it like 4 or 0.5") from None
    if milli > WHOLE and milli % WHOLE:
        raise NotAQuantity(f"{_short(value)} GPUs: above one it must be a whole number")
    return milli


def _text(value: object) -> object:
    if isinstance(value, str) and "\0" in value:
        raise ValueError("it holds a NUL character, which no command or variable can")
    return value


def _moment(value: object) -> object:
    """A moment as ISO 8601; without an offset it is UTC."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(f"not a date and time: {_short(value)}; write it like 2026-12-01T08:00") from None
    if not isinstance(value, datetime):
        raise ValueError(f"not a date and time: {_short(value)}; write it like 2026-12-01T08:00")
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value


def _level(value: object) -> object:
    words = {level.name.lower(): level for level in Level}
    if isinstance(value, str) and value in words:
        return words[value]
    raise ValueError(f"unknown level {_short(value)}; {did_you_mean(str(value)[:40], words)}")


def _plan(value: object) -> object:
    if isinstance(value, str):
        raise ValueError(
            f"not a plan: {_short(value)}; give its fields here, or the file to `rota submit`, which reads it"
        )
    if value is not None and len(json.dumps(value, default=str)) > MOST_TEXT:
        raise ValueError(f"it is longer than {MOST_TEXT} characters; keep it in a file that the job reads")
    return value


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


Name = Annotated[str, BeforeValidator(name_of, json_schema_input_type=str | int)]
Types = Annotated[tuple[Name, ...] | Name, BeforeValidator(_types)]
Text = Annotated[str, BeforeValidator(_text), Field(max_length=MOST_TEXT)]
Count = Annotated[int, Field(strict=True, ge=1, le=MOST_TASKS)]
Bytes = Annotated[int, _amount(parse_bytes), Field(le=1 << 62)]
Cpus = Annotated[int, _amount(parse_cpus), Field(le=1 << 40), PlainSerializer(lambda milli: milli / 1000)]
Gpus = Annotated[int, _amount(_devices), Field(le=1 << 30), PlainSerializer(lambda milli: milli / WHOLE)]
Moment = Annotated[datetime, BeforeValidator(_moment)]
LevelWord = Literal["device", "socket", "node", "rack", "domain", "cluster"]
LevelName = Annotated[
    Level, BeforeValidator(_level, json_schema_input_type=LevelWord), PlainSerializer(lambda level: level.name.lower())
]
Command = Text | Annotated[tuple[Text, ...], Field(min_length=1, max_length=4096)]
"""A text is for the task's shell; a list is a program and its arguments, taken as they are."""


class Secret(FileModel):
    """A value that is handed to the task and never shown."""

    secret: Text


class ResourcesPart(FileModel):
    """What each task needs."""

    gpus: Gpus = 0
    gpu: Types = ()
    gpu_memory: Bytes = 0
    cpus: Cpus = 0
    memory: Bytes = 0


class LocalityPart(FileModel):
    """How near to each other the tasks want to be."""

    level: LevelName = Level.NODE
    hard: bool = False
    relax_after: Seconds | None = None


class ElasticPart(FileModel):
    """Between how many tasks the scheduler may choose."""

    min: Count
    max: Count


class CheckpointPart(FileModel):
    """Where progress is kept, how the job is told to save it, how long that may take, and how often it does unasked."""

    path: Text | None = None
    interval: Annotated[Seconds, Field(le=LONGEST_INTERVAL_S)] = 0.0
    grace: Seconds = 60.0
    signal: Literal["SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGQUIT"] = "SIGTERM"


class InteractivePart(FileModel):
    """That users type to the first task: through a terminal, or pipes."""

    tty: bool = True
    idle: Annotated[Seconds, Field(gt=0)] | None = None
    """The job ends when nothing was typed or written for so long."""

    @model_validator(mode="after")
    def _agree(self) -> InteractivePart:
        if self.idle is not None and not self.tty:
            raise ValueError("idle is for terminals; leave it out, or tty: false")
        return self


class CompletionPart(FileModel):
    """How many tasks of a role must fail, or succeed, for the job to be over."""

    min_failed: Count = 1
    min_succeeded: Count | None = None


class MemberPart(FileModel):
    """Which task of a job without gang this is."""

    rank: Annotated[int, Field(strict=True, ge=0, le=MOST_TASKS)]
    role_rank: Annotated[int, Field(strict=True, ge=0, le=MOST_TASKS)]
    tasks: Count
    role_tasks: Count


class RolePart(FileModel):
    """A kind of task."""

    count: Count = 1
    gpus: Gpus = 0
    gpu: Types = ()
    gpu_memory: Bytes = 0
    cpus: Cpus = 0
    memory: Bytes = 0
    run: Command | None = None
    env: Annotated[dict[Text, Text | Secret], Field(default_factory=dict)]
    completion: CompletionPart = CompletionPart()


class SnapshotPart(FileModel):
    """The code that a job runs, as `rota submit --snapshot` packed it, and where it came from."""

    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    files: Annotated[int, Field(strict=True, ge=1)] | None = None
    commit: Annotated[Text, Field(max_length=64)] | None = None
    dirty: bool = False
    branch: Annotated[Text, Field(max_length=256)] | None = None
    remote: Annotated[Text, Field(max_length=1024)] | None = None


class EstimatedPart(FileModel):
    """What an `auto` became, and whether an estimate or the usual; how often it was raised since, and why."""

    given: float | Text
    trusted: bool
    error: float | None = None
    raised: Annotated[int, Field(strict=True, ge=0)] = 0
    why: Text | None = None


Labels = Annotated[dict[Name, Text], Field(max_length=64)]
Roles = Annotated[dict[Name, RolePart], Field(default_factory=dict, max_length=64)]
Estimated = Annotated[dict[Name, EstimatedPart], Field(default_factory=dict, max_length=8)]


class AmountsPart(FileModel):
    """The fields of a job file that estimates change."""

    resources: ResourcesPart = ResourcesPart()
    labels: Labels = {}
    roles: Roles
    estimated: Estimated


class JobFile(FileModel):
    """The whole file. Every field is optional but `run`."""

    run: Command | None = None
    name: Name | None = None
    tenant: Name = "default"
    priority: Annotated[int, Field(strict=True, ge=OPPORTUNISTIC, le=MOST_PRIORITY)] | None = None
    class_: Annotated[Literal["guaranteed", "opportunistic"] | None, Field(alias="class")] = None
    workers: Count = 1
    gang: bool = True
    resources: ResourcesPart = ResourcesPart()
    locality: LocalityPart | None = None
    exclusive: bool = False
    elastic: ElasticPart | None = None
    depends_on: Annotated[tuple[Name, ...], Field(max_length=1000)] = ()
    deadline: Moment | None = None
    time_limit: Annotated[Seconds, Field(gt=0, le=LONGEST_RUN_S)] | None = None
    estimate: Annotated[Seconds, Field(le=LONGEST_RUN_S)] | None = None
    max_restarts: Annotated[int, Field(strict=True, ge=0, le=MOST_RESTARTS)] | None = None
    checkpoint: CheckpointPart | None = None
    interactive: InteractivePart | None = None
    """Users attach to the first task, as `rota run` does."""
    preemptible: bool = False
    tolerate_suspects: bool = False
    exclude_nodes: Annotated[tuple[Name, ...], Field(max_length=100)] = ()
    completion: CompletionPart = CompletionPart()
    model: Annotated[Text, Field(min_length=1, max_length=256)] | None = None
    """The model that it trains; with a name of the planner's catalogue it is placed by plans and gets one."""
    plan: Annotated[dict[Text, Any], BeforeValidator(_plan), Field(max_length=1000)] | None = None
    """A plan of its own, handed to its tasks unchanged."""
    image: Text | None = None
    volumes: tuple[Text, ...] = ()
    data: Annotated[tuple[Name, ...], Field(max_length=32)] = ()
    """Data sets that it uses, by name."""
    workdir: Text | None = None
    snapshot: SnapshotPart | None = None
    """The code that it runs in place of a working directory; the command line sets it."""
    env: Annotated[dict[Text, Text | Secret], Field(default_factory=dict, max_length=1000)]
    notify: Annotated[tuple[Literal["start", "end", "fail", "preempted"], ...], Field(max_length=4)] = ()
    """Of what messages are sent."""
    notify_to: Annotated[tuple[Name, ...], Field(min_length=1, max_length=8)] = ("email",)
    """Channels of the manager's settings; `email` is the owner's own address."""
    labels: Labels = {}
    """Requests that tenancy reads: `pinned_cell`, `lazy_preemption`."""
    roles: Roles
    array: Annotated[int, Field(strict=True, ge=0)] | None = None
    """Which member of an array this is; the command line sets it."""
    array_limit: Annotated[int, Field(strict=True, ge=1)] | None = None
    """How many jobs of the array may run at once; the same in all of them."""
    member: MemberPart | None = None
    """Which task of a job without gang this is; the manager sets it."""
    estimated: Estimated
    """What each `auto` became; the manager sets it."""

    @model_validator(mode="after")
    def _agree(self) -> JobFile:
        if self.roles:
            if "workers" in self.model_fields_set or "resources" in self.model_fields_set:
                raise ValueError("roles say how many tasks there are and what they need; drop workers and resources")
            for name, role in self.roles.items():
                if role.run is None and self.run is None:
                    raise ValueError(f"roles.{name}.run is missing; add it, or a run for all roles")
        elif self.run is None:
            raise ValueError("run is missing; say what to run")
        self._check_sizes()
        if self.array_limit is not None and self.array is None:
            raise ValueError("array_limit is of an array; give array, the job's number in it, or drop it")
        if self.snapshot is not None and self.workdir is not None:
            raise ValueError("a snapshot is the working directory; drop workdir, or snapshot")
        opportunistic = self.class_ == "opportunistic"
        if self.class_ and self.priority is not None and opportunistic != (self.priority == OPPORTUNISTIC):
            raise ValueError(f"class is {self.class_!r} and priority is {self.priority}; give one of them")
        for name in (*self.env, *(name for role in self.roles.values() for name in role.env)):
            if not _VARIABLE.fullmatch(name):
                raise ValueError(f"env: not a variable name: {_short(name)}")
        if sum(role.count for role in self.roles.values()) > MOST_TASKS:
            raise ValueError(f"the roles have more than {MOST_TASKS} tasks together")
        return self

    def _check_sizes(self) -> None:
        if self.elastic is not None:
            low, high = self.elastic.min, self.elastic.max
            if low > high:
                raise ValueError(f"elastic: min is {low} and max is {high}; it needs min <= max")
            if self.roles:
                raise ValueError(
                    "elastic needs a job of one kind of task; drop it, or give run and resources, no roles"
                )
            if not low <= self.full_size <= high:
                raise ValueError(f"workers is {self.full_size}; with elastic it must be from {low} to {high}")
            if not self.gang:
                raise ValueError("gang is false and elastic is given; keep one of them")
        if not self.gang and any(part != CompletionPart() for part in self._completions()):
            raise ValueError("completion needs tasks that start together; drop it, or gang: false")

    def _completions(self) -> list[CompletionPart]:
        return [self.completion, *(role.completion for role in self.roles.values())]

    @property
    def full_size(self) -> int:
        """How many tasks of one kind are wanted; an elastic job that does not say wants as many as it may have."""
        if self.elastic is not None and "workers" not in self.model_fields_set:
            return self.elastic.max
        return self.workers
