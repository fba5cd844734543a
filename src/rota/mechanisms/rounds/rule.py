"""What share rules are asked and answer: which part of the time each job, or pair of jobs, gets on each device type."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from rota.core.model.job import WHOLE, DeviceType, Job
from rota.core.state.job_record import LiveJob
from rota.perf.speed.model import SpeedModel

Floats = NDArray[np.float64]
NOBODY = -1
"""The second member of a party of one."""
Party = tuple[int, ...]
"""Who runs together on the same devices: one job or two, by number of submission, the older first.

Three numbers, the second of them `NOBODY`, are one job with so many tasks, other than it usually has (`sized`).
"""
Shares = Mapping[Party, Sequence[float]]
"""The part of the time that a party should have on each type."""

UNKNOWN_WORK_S = 3600.0
"""How much longer a job is taken to run that says nothing of its length."""


def sized(seq: int, tasks: int) -> Party:
    """A job alone, with this many tasks."""
    return (seq, NOBODY, tasks)


def members_of(party: Party) -> Party:
    """The jobs of a party, whatever its size."""
    return party[:1] if len(party) > 2 else party


def tasks_of_party(party: Party) -> int:
    """With how many tasks a job runs that has another size than usual; 0 for all others."""
    return party[2] if len(party) > 2 else 0


class Size(NamedTuple):
    """An elastic job at one of its sizes."""

    tasks: int
    scale: int
    speeds: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Contender:
    """A job as share rules see it: its size in devices and its speed on each type, 0 where it can't run."""

    live: LiveJob
    seq: int
    scale: int
    weight: float
    slo: float | None
    entity: str
    speeds: tuple[float, ...]
    able: tuple[bool, ...]
    """On which types it could be placed."""
    shape: tuple[int, int] | None
    """Tasks and devices of a task, for jobs that may share their devices with one of the same shape."""
    kind: tuple[Any, ...]
    """Equal for jobs that are alike in model and size."""
    tasks: int = 0
    """Its usual number of tasks, if that is not the one it asks for."""
    sizes: tuple[Size, ...] = ()
    """Other sizes that it may have, if that is for the policy to decide."""
    able_at: tuple[tuple[int, tuple[bool, ...]], ...] = ()
    """By number of tasks, on which types it could be placed with so many."""
    rooms: tuple[int, ...] = ()
    """By type, how many of its tasks there could be, if it may run on several types at once."""
    part_speeds: tuple[float, ...] = ()
    """By type, the speed that it would have if all its devices were of that type, be there so many or not."""

    @property
    def spans(self) -> bool:
        """Whether it is too large for every type, and runs on several at once or not at all."""
        return bool(self.rooms) and not any(self.able)

    @property
    def count(self) -> int:
        """Tasks that it usually has."""
        return self.tasks or self.live.job.tasks

    @property
    def fastest(self) -> float:
        """Its speed on its best type at its best size."""
        return max((*self.speeds, *(speed for size in self.sizes for speed in size.speeds)), default=0.0)

    def speed(self, party: Party, at: int) -> float:
        """Its speed on a type when it runs alone, at the size that a party stands for."""
        tasks = tasks_of_party(party)
        return next((size.speeds[at] for size in self.sizes if size.tasks == tasks), self.speeds[at])

    def remaining(self, now_s: float) -> float:
        """Work still to do; for a job of unknown length, an hour's worth on its best type."""
        total = self.live.job.work
        if total is None:
            estimate = self.live.job.estimate_s
            left_s = UNKNOWN_WORK_S if estimate is None else max(estimate - self.live.run_s(now_s), 1.0)
            return left_s * max(self.speeds, default=1.0)
        return max(total - self.live.work_done(now_s), 0.0)


@dataclass(slots=True)
class Question:
    """All contenders in order of submission, the types with their device counts, and what time it is."""

    now_s: float
    jobs: list[Contender]
    types: tuple[DeviceType, ...]
    devices: tuple[int, ...]
    beside: Callable[[Contender, Contender], Floats]
    """Speeds of two jobs on the same devices: a row each, a column per type."""
    mixed: bool = False
    """Whether two of different size may share devices, the larger with some of its own to itself."""
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
        """Devices by type, as numbers for a program."""
        return np.array(self.devices, dtype=np.float64)

    @property
    def age_s(self) -> Floats:
        """Seconds since each job was submitted."""
        return np.array([self.now_s - job.live.submitted_s for job in self.jobs], dtype=np.float64)

    def by_name(self) -> list[int]:
        """The types' numbers in alphabetical order, for rules whose ties are broken by name."""
        return sorted(range(len(self.types)), key=lambda at: self.types[at])


@dataclass(frozen=True, slots=True, kw_only=True)
class Freedoms:
    """What is decided in rounds beside shares: the number of tasks of elastic jobs (`elastic`), whether jobs run on
    several types at once (`cross_type`), and whether two of different size share devices (`mixed_sharing`)."""

    elastic: bool = False
    cross_type: bool = False
    mixed_sharing: bool = False


SHARES_ONLY = Freedoms()


def nests(large: tuple[int, int] | None, small: tuple[int, int] | None) -> bool:
    """Whether tasks of one shape (their number, devices of each) can share the devices of whole tasks of another."""
    if large is None or small is None:
        return False
    return small[0] * small[1] < large[0] * large[1] and small[1] % large[1] == 0


class PairSpeeds:
    """The speeds of two jobs on the same devices, looked up once for all that are alike."""

    def __init__(self, speed: SpeedModel, types: tuple[DeviceType, ...], mixed: bool = False) -> None:
        self._speed = speed
        self._types = types
        self._mixed = mixed
        self._found: dict[tuple[Any, Any], Floats] = {}
        self._run: dict[tuple[Any, Any], NDArray[np.bool_]] = {}

    def run_together(self, one: Contender, other: Contender) -> NDArray[np.bool_]:
        """By type, whether both of them run."""
        key = (one.kind, other.kind)
        found = self._run.get(key)
        if found is None:
            found = self._run[key] = self(one, other).min(axis=0) > 0
        return found

    def __call__(self, one: Contender, other: Contender) -> Floats:
        """A row each, a column per type; 0 where one of them can't run, or where they can't share devices."""
        key = (one.kind, other.kind)
        found = self._found.get(key)
        if found is None:
            a, b = one.live.job, other.live.job
            fit = one.shape is not None and one.shape == other.shape
            if self._mixed and not fit:
                fit = nests(one.shape, other.shape) or nests(other.shape, one.shape)
            fit &= not one.spans and not other.spans
            may = [fit and x > 0 and y > 0 for x, y in zip(one.speeds, other.speeds, strict=True)]
            rows = [
                (self._speed.beside(a, b, kind), self._speed.beside(b, a, kind)) if fits else (0.0, 0.0)
                for kind, fits in zip(self._types, may, strict=True)
            ]
            found = self._found[key] = np.array(rows, dtype=np.float64).reshape(-1, 2).T
        return found


class Mates:
    """Those who are there, by size, with the number of their kind: who runs beside whom is asked once for all alike."""

    def __init__(self, beside: PairSpeeds, jobs: Iterable[Contender]) -> None:
        self._beside = beside
        self._kinds: dict[Any, int] = {}
        self._heads: list[Contender] = []
        self._by_scale: dict[int, tuple[list[int], list[int]]] = {}
        for job in jobs:
            self.add(job)

    def add(self, job: Contender) -> None:
        """One more is there."""
        number = self._kinds.setdefault(job.kind, len(self._heads))
        if number == len(self._heads):
            self._heads.append(job)
        seqs, numbers = self._by_scale.setdefault(job.scale, ([], []))
        seqs.append(job.seq)
        numbers.append(number)

    def pairs(self, job: Contender) -> tuple[list[Party], NDArray[np.bool_]]:
        """All pairs of a newcomer with one of its size, and by type whether both of them run: a row each."""
        seqs, numbers = self._by_scale.get(job.scale, ([], []))
        parties: list[Party] = [(seq, job.seq) if seq < job.seq else (job.seq, seq) for seq in seqs]
        runs = np.zeros((len(self._heads), len(job.speeds)), dtype=np.bool_)
        for number in set(numbers):
            runs[number] = self._beside.run_together(self._heads[number], job)
        return parties, runs[numbers]


class ShareRule(Protocol):
    """A published way to divide time on device types among jobs."""

    sees_types: bool
    """Whether it knows that types differ in speed; if not, the order in which types are filled is left to chance."""
    packs: bool
    """Whether two jobs may get a share of the same devices."""
    backfills: bool
    """Whether devices that nobody has a share of go to whoever is next."""

    def shares(self, question: Question) -> Shares:
        """The shares of all contenders; one who is not named gets none."""

    @property
    def memory(self) -> Any:
        """What it must remember between two questions, as a value that JSON can hold."""

    def recall(self, memory: Any) -> None:
        """Take up what `memory` said."""


class Memoryless:
    """A rule whose answer hangs on the question alone."""

    memory: Any = None

    def recall(self, memory: Any) -> None:
        """There is nothing to take up."""


def chance_of(rng: random.Random) -> Any:
    """The state of a random generator, as lists."""
    version, numbers, gauss = rng.getstate()
    return [version, list(numbers), gauss]


def set_chance(rng: random.Random, memory: Any) -> None:
    """Put a random generator into a state that `chance_of` gave."""
    version, numbers, gauss = memory
    rng.setstate((version, tuple(numbers), gauss))


def shape_of(job: Job) -> tuple[int, int] | None:
    """Tasks and devices of a task; None if the job can't share: it has fractions of devices, roles, or a node alone."""
    role = job.roles[0]
    if len(job.roles) > 1 or job.exclusive or not role.device_milli or role.device_milli % WHOLE:
        return None
    return role.count, role.device_milli // WHOLE


def contender(live: LiveJob, speed: SpeedModel, types: Sequence[DeviceType], able: Sequence[bool]) -> Contender:
    """A job with its speeds, 0 on types on which it could not be placed."""
    job = live.job
    scale = -(-job.gpu_milli // WHOLE)
    labels = dict(job.labels)
    shape = shape_of(job)
    speeds = tuple(speed.on_type(job, kind) if fits else 0.0 for kind, fits in zip(types, able, strict=True))
    return Contender(
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
    """The number that a label says; None where it says none above 0."""
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < math.inf else None
