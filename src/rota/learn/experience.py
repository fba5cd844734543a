"""Experience: observed placements and speeds of running jobs, the only training data."""

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
    """Snapshots: running jobs with kind, tasks by server and speed; rows of zeros are padding."""

    kinds: tuple[str, ...]
    kind: Ints
    workers: Floats
    servers: Floats
    speed: Floats

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def samples(self) -> int:
        """Number of observed speeds."""
        return int((self.speed > 0).sum())

    @property
    def nameless(self) -> int:
        """Number of speeds of jobs of unknown kinds."""
        return int(((self.speed > 0) & (self.kind == len(self.kinds))).sum())

    def save(self, path: Path) -> None:
        """Write plain arrays."""
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
        """Read plain arrays; nothing in the file is executed."""
        try:
            zipfile.ZipFile(path).close()
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                if int(file["version"]) != VERSION:
                    raise RotaError(f"experience {path}: version {int(file['version'])} is not supported")
                return cls(
                    tuple(str(kind) for kind in file["kinds"]),
                    file["kind"].astype(np.int64),
                    file["workers"].astype(np.float64),
                    file["servers"].astype(np.float64),
                    file["speed"].astype(np.float64),
                )
        except FileNotFoundError:
            raise RotaError(f"experience {path}: there is no such file; create one with `rota learn collect`") from None
        except (OSError, ValueError, KeyError, EOFError, AttributeError, zipfile.BadZipFile) as err:
            raise RotaError(f"experience {path}: can't be read: {err}") from None

    def joined(self, other: Experience) -> Experience:
        """Return both together; they have the same kinds."""
        slots, servers = (max(self.workers.shape[axis], other.workers.shape[axis]) for axis in (1, 2))

        def wide(array: NDArray[Any]) -> NDArray[Any]:
            arrays = [(0, 0), (0, slots - array.shape[1]), (0, servers - array.shape[-1])][: array.ndim]
            return np.pad(array, arrays)

        columns = ("kind", "workers", "servers", "speed")
        return Experience(
            self.kinds, *(np.concatenate([wide(getattr(each, name)) for each in (self, other)]) for name in columns)
        )


@dataclass(slots=True)
class SpeedSnapshot:
    """Running jobs at one time: kinds, workers and parameter servers by server, and speeds, 0 if unknown."""

    kind: list[int] = field(default_factory=list)
    tasks: list[tuple[dict[int, int], dict[int, int]]] = field(default_factory=list)
    speed: list[float] = field(default_factory=list)


class Recorder:
    """Chooser that records snapshots before each batch and delegates the choice."""

    def __init__(self, inner: Chooser, kinds: tuple[str, ...]) -> None:
        self._inner = inner
        self._known = kinds
        self.moments: list[SpeedSnapshot] = []

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of the inner chooser."""
        return self._inner.kinds

    def choose(self, arrays: ServerArrays, live: LiveJob, now_s: float) -> Chosen | None:
        """Delegate to the inner chooser."""
        return self._inner.choose(arrays, live, now_s)

    def observe(self, running: dict[int, LiveJob], now_s: float) -> None:
        """Record placements and speeds."""
        self._inner.observe(running, now_s)
        moment = SpeedSnapshot()
        for live in running.values():
            if live.placement is not None and live.rate > 0:
                moment.kind.append(kind_number(kind_of(live.job), self._known))
                moment.tasks.append(by_side(live.job, live.placement))
                moment.speed.append(live.rate / live.nominal_rate)
        self.moments.append(moment)

    def history(self, servers: int) -> Experience:
        """Return all snapshots as arrays."""
        return pack(self.moments, self._known, servers)


def kind_number(model: str | None, kinds: tuple[str, ...]) -> int:
    """Return the number of a kind; the number of kinds for unknown ones."""
    return kinds.index(model) if model in kinds else len(kinds)


def by_side(job: Job, placement: Placement) -> tuple[dict[int, int], dict[int, int]]:
    """Return a job's workers and parameter servers by server."""
    sides: tuple[dict[int, int], dict[int, int]] = ({}, {})
    for (role, node), tasks in counted(placement).items():
        side = sides[is_server(job, role)]
        side[node] = side.get(node, 0) + tasks
    return sides


def pack(moments: list[SpeedSnapshot], kinds: tuple[str, ...], servers: int) -> Experience:
    """Return snapshots as arrays."""
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
