"""What was seen of running jobs: who was where, and how fast each ran. The only thing that is learned from."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rota.core.errors import RotaError
from rota.core.model.job import Job
from rota.core.model.placement import Placement
from rota.core.state.job_record import LiveJob
from rota.mechanisms.learned.interval_placement import Chooser
from rota.mechanisms.learned.server_arrays import Chosen, ServerArrays, counted
from rota.perf.speed.network import is_server
from rota.perf.speed.shared_servers import kind_of

VERSION = 1
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Experience:
    """Moments: of each the jobs that ran, their kind, tasks by server and speed; rows of zeros are no jobs."""

    kinds: tuple[str, ...]
    kind: Ints
    workers: Floats
    servers: Floats
    speed: Floats

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def samples(self) -> int:
        """Speeds that were seen."""
        return int((self.speed > 0).sum())

    @property
    def nameless(self) -> int:
        """Those of jobs of kinds that are not known."""
        return int(((self.speed > 0) & (self.kind == len(self.kinds))).sum())

    def save(self, path: Path) -> None:
        """Write it as plain arrays."""
        with path.open("wb") as file:
            np.savez_compressed(
                file,
                version=np.array(VERSION),
                kinds=np.array(self.kinds),
                kind=self.kind.astype(np.int16),
                workers=self.workers.astype(np.int16),
                servers=self.servers.astype(np.int16),
                speed=self.speed.astype(np.float32),
            )

    @classmethod
    def load(cls, path: Path) -> Experience:
        """Read it; nothing in the file is ever run."""
        try:
            zipfile.ZipFile(path).close()
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                if int(file["version"]) != VERSION:
                    raise RotaError(f"experience {path}: version {int(file['version'])} is not known")
                return cls(
                    tuple(str(kind) for kind in file["kinds"]),
                    file["kind"].astype(np.int64),
                    file["workers"].astype(np.float64),
                    file["servers"].astype(np.float64),
                    file["speed"].astype(np.float64),
                )
        except FileNotFoundError:
            raise RotaError(f"experience {path}: there is no such file; make one with `rota learn collect`") from None
        except (OSError, ValueError, KeyError, EOFError, AttributeError, zipfile.BadZipFile) as err:
            raise RotaError(f"experience {path}: it is none: {err}") from None

    def joined(self, other: Experience) -> Experience:
        """Both together; they know the same kinds."""
        slots, servers = (max(self.workers.shape[axis], other.workers.shape[axis]) for axis in (1, 2))

        def wide(array: NDArray[Any]) -> NDArray[Any]:
            room = [(0, 0), (0, slots - array.shape[1]), (0, servers - array.shape[-1])][: array.ndim]
            return np.pad(array, room)

        columns = ("kind", "workers", "servers", "speed")
        return Experience(
            self.kinds, *(np.concatenate([wide(getattr(each, name)) for each in (self, other)]) for name in columns)
        )


@dataclass(slots=True)
class SpeedSnapshot:
    """The jobs that ran at a time: their kinds, workers and parameter servers by server, and speeds; 0 if not known."""

    kind: list[int] = field(default_factory=list)
    tasks: list[tuple[dict[int, int], dict[int, int]]] = field(default_factory=list)
    speed: list[float] = field(default_factory=list)


class Recorder:
    """A chooser that leaves the choice to another and remembers what ran how fast before each batch."""

    def __init__(self, inner: Chooser, kinds: tuple[str, ...]) -> None:
        self._inner = inner
        self._known = kinds
        self.moments: list[SpeedSnapshot] = []

    @property
    def kinds(self) -> tuple[str, ...]:
        """Those of the other."""
        return self._inner.kinds

    def choose(self, room: ServerArrays, live: LiveJob, now_s: float) -> Chosen | None:
        """As the other does."""
        return self._inner.choose(room, live, now_s)

    def seen(self, running: dict[int, LiveJob], now_s: float) -> None:
        """Write down who runs where and how fast."""
        self._inner.seen(running, now_s)
        moment = SpeedSnapshot()
        for live in running.values():
            if live.placement is not None and live.rate > 0:
                moment.kind.append(kind_number(kind_of(live.job), self._known))
                moment.tasks.append(by_side(live.job, live.placement))
                moment.speed.append(live.rate / live.nominal_rate)
        self.moments.append(moment)

    def history(self, servers: int) -> Experience:
        """All moments as arrays."""
        return pack(self.moments, self._known, servers)


def kind_number(model: str | None, kinds: tuple[str, ...]) -> int:
    """The number of a kind; one more than there are for all others."""
    return kinds.index(model) if model in kinds else len(kinds)


def by_side(job: Job, placement: Placement) -> tuple[dict[int, int], dict[int, int]]:
    """A job's workers and parameter servers by server."""
    sides: tuple[dict[int, int], dict[int, int]] = ({}, {})
    for (role, node), tasks in counted(placement).items():
        side = sides[is_server(job, role)]
        side[node] = side.get(node, 0) + tasks
    return sides


def pack(moments: list[SpeedSnapshot], kinds: tuple[str, ...], servers: int) -> Experience:
    """Moments as arrays."""
    slots = max((len(moment.kind) for moment in moments), default=0)
    kind = np.zeros((len(moments), slots), np.int64)
    workers, parameter_servers = np.zeros((2, len(moments), slots, servers))
    speed = np.zeros((len(moments), slots))
    for at, moment in enumerate(moments):
        for job, (number, sides, rate) in enumerate(zip(moment.kind, moment.tasks, moment.speed, strict=True)):
            kind[at, job], speed[at, job] = number, rate
            for array, side in zip((workers, parameter_servers), sides, strict=True):
                for node, tasks in side.items():
                    array[at, job, node] = tasks
    return Experience(kinds, kind, workers, parameter_servers, speed)
