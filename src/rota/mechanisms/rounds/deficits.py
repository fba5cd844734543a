"""Time served and time due per contender and device type: what a round is selected by.

Kept as arrays, a row per contender in order of joining: thousands of pairs are scanned every round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rota.mechanisms.arrays import Floats
from rota.mechanisms.rounds.rule import NO_PARTNER, Contender, Shares, sized

_UNSERVED = 1e9
"""Factor on the share of a contender that was never served: it goes ahead of all that were."""


_COLUMNS = ("members", "tasks", "scale", "runs", "considered", "share", "time_s", "deficit_s", "type_time_s")


class Deficits:
    """Rows of contenders by columns of types. Each starts with a credit of `quantum_s`, half a round."""

    def __init__(self, types: int, quantum_s: float) -> None:
        self._quantum_s = quantum_s
        self.members: NDArray[np.int64] = np.zeros((0, 2), dtype=np.int64)
        self.tasks: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        """The number of tasks of a job that runs with another number than usual; else 0."""
        self.scale: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.runs: NDArray[np.bool_] = np.zeros((0, types), dtype=np.bool_)
        self.considered: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self.share: Floats = np.zeros((0, types))
        self.time_s: Floats = np.zeros((0, types))
        self.deficit_s: Floats = np.zeros((0, types))
        self.type_time_s: Floats = np.zeros(types)
        self._rows: dict[Contender, int] = {}
        self._rooms: dict[str, NDArray[Any]] = {}
        """Columns with spare rows at their end: a thousand jobs that arrive together add half a million pairs."""

    @property
    def memory(self) -> Any:
        """All columns, as lists."""
        return {name: getattr(self, name).tolist() for name in _COLUMNS}

    def recall(self, memory: Any) -> None:
        """Restore the columns."""
        for name in _COLUMNS:
            kept: NDArray[Any] = getattr(self, name)
            setattr(self, name, np.array(memory[name], dtype=kept.dtype).reshape(len(memory[name]), *kept.shape[1:]))
        self._rows = {self.contender(row): row for row in range(len(self.tasks))}

    def contender(self, row: int) -> Contender:
        """The contender of a row."""
        one, other, tasks = int(self.members[row, 0]), int(self.members[row, 1]), int(self.tasks[row])
        if other != NO_PARTNER:
            return (one, other)
        return sized(one, tasks) if tasks else (one,)

    def __contains__(self, contender: Contender) -> bool:
        return contender in self._rows

    def scale_of(self, contender: Contender) -> int:
        """Devices that a contender uses."""
        return int(self.scale[self._rows[contender]])

    @property
    def contenders(self) -> list[Contender]:
        """All contenders, in order of joining."""
        return list(self._rows)

    def join(self, contenders: Sequence[Contender], scale: int, runs: NDArray[np.bool_]) -> None:
        """Add contenders; `runs` has a row each. A single job starts with half a round on every type, a pair with 0."""
        if not contenders:
            return
        first = len(self._rows)
        for offset, contender in enumerate(contenders):
            self._rows[contender] = first + offset
        count, types = len(contenders), self.share.shape[1]
        members = np.array([p[:2] if len(p) > 1 else (*p, NO_PARTNER) for p in contenders], dtype=np.int64)
        time_s = np.where(members[:, 1:] == NO_PARTNER, self._quantum_s, 0.0) * np.ones((1, types))
        self._append("members", members)
        self._append("tasks", np.array([p[2] if len(p) > 2 else 0 for p in contenders], dtype=np.int64))
        self._append("scale", np.full(count, scale, dtype=np.int64))
        self._append("runs", runs)
        self._append("considered", np.zeros(count, dtype=np.bool_))
        self._append("share", np.zeros((count, types)))
        self._append("time_s", time_s)
        self._append("deficit_s", np.zeros((count, types)))

    def _append(self, name: str, rows: NDArray[Any]) -> None:
        """Append rows to a column, in its spare rows if the column is still the array that has them."""
        kept: NDArray[Any] = getattr(self, name)
        end = len(kept) + len(rows)
        room = self._rooms.get(name)
        if room is None or kept.base is not room or len(room) < end:
            room = self._rooms[name] = np.empty((2 * end, *kept.shape[1:]), dtype=kept.dtype)
            room[: len(kept)] = kept
        room[len(kept) : end] = rows
        setattr(self, name, room[:end])

    def leave(self, gone: set[int]) -> None:
        """Remove jobs, and every contender that they belong to."""
        if not gone:
            return
        left = np.isin(self.members, np.fromiter(gone, dtype=np.int64))
        self._keep(~(left[:, 0] | left[:, 1]))

    def forget_idle_pairs(self) -> None:
        """Drop pairs without a share; they join again when they get one."""
        keep: NDArray[np.bool_] = (self.share > 0).any(axis=1) | (self.members[:, 1] == NO_PARTNER)
        if not keep.all():
            self._keep(keep)

    def _keep(self, keep: NDArray[np.bool_]) -> None:
        contenders = [contender for contender, stays in zip(self._rows, keep.tolist(), strict=True) if stays]
        self._rows = {contender: row for row, contender in enumerate(contenders)}
        self.members, self.tasks, self.scale = self.members[keep], self.tasks[keep], self.scale[keep]
        self.runs = self.runs[keep]
        self.considered, self.share = self.considered[keep], self.share[keep]
        self.time_s, self.deficit_s = self.time_s[keep], self.deficit_s[keep]

    def served(self, contender: Contender, at: int, seconds: float) -> None:
        """Credit a contender with seconds served on a type."""
        self.type_time_s[at] += seconds
        row = self._rows.get(contender)
        if row is not None:
            self.time_s[row, at] += seconds

    def close(self, elapsed_s: float) -> None:
        """End a period of constant shares: add what is owed to the deficits, and count time from zero again."""
        self.deficit_s += self.share * elapsed_s - (self.time_s - self._quantum_s)
        self.time_s[:] = self._quantum_s
        self.type_time_s[:] = self._quantum_s * len(self._rows)

    def set_shares(self, shares: Shares) -> None:
        """Set the shares; a contender that is not named has none, but was considered.

        A share on a type where the contender can't run is dropped.
        """
        self.share[:] = 0.0
        self.considered[:] = True
        if not shares:
            return
        rows = np.fromiter((self._rows[contender] for contender in shares), dtype=np.int64, count=len(shares))
        self.share[rows] = np.where(self.runs[rows], np.array(list(shares.values()), dtype=np.float64), 0.0)

    def priorities(self) -> Floats:
        """Share over the fraction of the type's time served; 0 for contenders without a share or that can't run."""
        with np.errstate(divide="ignore", invalid="ignore"):
            had = np.where(self.type_time_s > 0, self.time_s / self.type_time_s, 0.0)
            ratio = np.where(had > 0, self.share / had, self.share * _UNSERVED)
        wanted = (self.share > 0) & self.runs
        priority: Floats = np.where(wanted, ratio, 0.0)
        return priority

    def order(self, priority: Floats, at: int) -> NDArray[np.int64]:
        """Rows by descending priority, deficit and share on a type; ties by order of joining."""
        order: NDArray[np.int64] = np.lexsort((-self.share[:, at], -self.deficit_s[:, at], -priority[:, at]))
        return order
