"""What share rules are asked and answer: the share of time of each contender on each device type."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from rota.core.model.job import WHOLE, DeviceType, Job
from rota.core.state.job_record import LiveJob
from rota.mechanisms.arrays import Floats
from rota.mechanisms.job_length import UNKNOWN_WORK_S
from rota.perf.speed.model import SpeedModel

NO_PARTNER = -1
"""In place of the second job of a contender that is one job."""
Contender = tuple[int, ...]
"""What contends in a round: one job, or two that share devices, by number of submission, the older first.

Three numbers, the second of them `NO_PARTNER`, are one job with another number of tasks than usual (`sized`).
"""
Shares = Mapping[Contender, Sequence[float]]
"""The fraction of time that a contender should run on each type."""


def sized(seq: int, tasks: int) -> Contender:
    """The contender of one job with this many tasks."""
    return (seq, NO_PARTNER, tasks)


def members_of(contender: Contender) -> Contender:
    """The jobs of a contender."""
    return contender[:1] if len(contender) > 2 else contender


def tasks_of_contender(contender: Contender) -> int:
    """The number of tasks of a job that runs with another number than usual; 0 otherwise."""
    return contender[2] if len(contender) > 2 else 0


class Size(NamedTuple):
    """One size of an elastic job: tasks, devices, and speed by type."""

    tasks: int
    scale: int
    speeds: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RoundJob:
    """A job as share rules see it: its size in devices (`scale`) and its speed by type, 0 where it can't run."""

    live: LiveJob
    seq: int
    scale: int
    weight: float
    slo: float | None
    entity: str
    speeds: tuple[float, ...]
    able: tuple[bool, ...]
    """By type, whether it could be placed there."""
    shape: tuple[int, int] | None
    """Tasks and devices per task, for jobs that may share their devices; None for others."""
    kind: tuple[Any, ...]
    """Equal for jobs of equal model, size and speeds."""
    tasks: int = 0
    """Its usual number of tasks, if that differs from the requested number; else 0."""
    sizes: tuple[Size, ...] = ()
    """Other sizes that it may have, where the policy decides the size."""
    able_at: tuple[tuple[int, tuple[bool, ...]], ...] = ()
    """By number of tasks, the types on which it could be placed with that many."""
    rooms: tuple[int, ...] = ()
    """By type, how many of its tasks fit, if it may run on several types at once."""
    part_speeds: tuple[float, ...] = ()
    """By type, its speed if all its devices were of that type, whether or not there are that many."""

    @property
    def spans(self) -> bool:
        """Whether it is too large for any single type, so that it runs on several at once or not at all."""
        return bool(self.rooms) and not any(self.able)

    @property
    def count(self) -> int:
        """Its usual number of tasks."""
        return self.tasks or self.live.job.tasks

    @property
    def fastest(self) -> float:
        """Its speed on its best type at its best size."""
        return max((*self.speeds, *(speed for size in self.sizes for speed in size.speeds)), default=0.0)

    def speed(self, contender: Contender, at: int) -> float:
        """Its speed on a type when it runs alone, at the size of the contender."""
        tasks = tasks_of_contender(contender)
        return next((size.speeds[at] for size in self.sizes if size.tasks == tasks), self.speeds[at])

    def remaining(self, now_s: float) -> float:
        """Work left; for a job of unknown length, what it does in an hour on its best type."""
        total = self.live.job.work
        if total is None:
            estimate = self.live.job.estimate_s
            left_s = UNKNOWN_WORK_S if estimate is None else max(estimate - self.live.run_s(now_s), 1.0)
            return left_s * max(self.speeds, default=1.0)
        return max(total - self.live.work_done(now_s), 0.0)


@dataclass(slots=True)
class ShareQuestion:
    """All jobs in order of submission, the device types with their counts, and the time."""

    now_s: float
    jobs: list[RoundJob]
    types: tuple[DeviceType, ...]
    devices: tuple[int, ...]
    pair_speeds: Callable[[RoundJob, RoundJob], Floats]
    """Speeds of two jobs on the same devices: a row per job, a column per type."""
    mixed: bool = False
    """Whether jobs of different size may share devices, the larger keeping some of its own to itself."""
    speeds: Floats = field(init=False)
    scale: Floats = field(init=False)
    weight: Floats = field(init=False)
    remaining: Floats = field(init=False)

    def __post_init__(self) -> None:
        count = len(self.jobs)
        self.speeds = np.array([job.speeds for job in self.jobs], dtype=np.float64).reshape(count, len(self.types))
        self.scale = np.array([job.scale for job in self.jobs], dtype=np.float64)
        self.weight = np.array([job.weight for job in self.jobs], dtype=np.float64)
        self.remaining = np.array([job.remaining(self.now_s) for job in self.jobs], dtype=np.float64)

    @property
    def capacity(self) -> Floats:
        """Devices by type, as floats."""
        return np.array(self.devices, dtype=np.float64)

    @property
    def age_s(self) -> Floats:
        """Seconds since each job was submitted."""
        return np.array([self.now_s - job.live.submitted_s for job in self.jobs], dtype=np.float64)

    def by_name(self) -> list[int]:
        """The types' numbers in alphabetical order, for rules whose ties are broken by name."""
        return sorted(range(len(self.types)), key=lambda at: self.types[at])


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFeatures:
    """What rounds decide in addition to shares: the number of tasks of elastic jobs (`elastic`), whether jobs run on
    several types at once (`cross_type`), and whether jobs of different size share devices (`mixed_sharing`)."""

    elastic: bool = False
    cross_type: bool = False
    mixed_sharing: bool = False


SHARES_ONLY = RoundFeatures()


class ShareRule(Protocol):
    """Divides the time of each device type among jobs."""

    sees_types: bool
    """Whether it considers that types differ in speed; if not, types are filled in random order."""
    packs: bool
    """Whether two jobs may share devices."""
    backfills: bool
    """Whether devices without a claim go to the next contender by priority."""

    def shares(self, question: ShareQuestion) -> Shares:
        """The shares of all contenders; a contender that is not named gets none."""

    @property
    def memory(self) -> Any:
        """What it must remember between two calls, as a value that JSON can hold."""

    def recall(self, memory: Any) -> None:
        """Restore what `memory` returned."""


class Memoryless:
    """A rule whose answer depends on the question alone."""

    memory: Any = None

    def recall(self, memory: Any) -> None:
        """There is nothing to restore."""


class DefaultShareRule(Memoryless):
    """What rules do unless they override it: one job per contender, idle devices backfilled, nothing remembered."""

    sees_types = True
    packs = False
    backfills = True


def shape_of(job: Job) -> tuple[int, int] | None:
    """Tasks and devices per task; None for jobs that can't share: several roles, fractions, or exclusive nodes."""
    role = job.roles[0]
    if len(job.roles) > 1 or job.exclusive or not role.device_milli or role.device_milli % WHOLE:
        return None
    return role.count, role.device_milli // WHOLE


def round_job(live: LiveJob, speed: SpeedModel, types: Sequence[DeviceType], able: Sequence[bool]) -> RoundJob:
    """The job with its speeds, 0 on types on which it could not be placed."""
    job = live.job
    scale = -(-job.gpu_milli // WHOLE)
    labels = dict(job.labels)
    shape = shape_of(job)
    speeds = tuple(speed.on_type(job, kind) if fits else 0.0 for kind, fits in zip(types, able, strict=True))
    return RoundJob(
        live=live,
        seq=live.seq,
        scale=scale,
        weight=above_zero(labels.get("priority_weight")) or 1.0,
        slo=above_zero(labels.get("slo")),
        entity=labels.get("entity", str(job.tenant)),
        speeds=speeds,
        able=tuple(able),
        shape=shape,
        kind=(job.model, scale, speeds, shape),
    )


def above_zero(text: str | None) -> float | None:
    """The number in a label; None unless it is finite and above 0."""
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < math.inf else None
