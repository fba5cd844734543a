"""What each party has had and should have had of each device type: the books from which a round is drawn.

Kept as arrays, a row per party in order of joining: thousands of pairs are looked through every round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rota.mechanisms.rounds.rule import NOBODY, Floats, Party, Shares, sized

_UNSERVED = 1e9
"""What a share is multiplied by when its party has had no time at all: ahead of all that have had some."""


_COLUMNS = ("members", "tasks", "scale", "runs", "considered", "share", "time_s", "deficit_s", "type_time_s")


class Deficits:
    """Rows of parties by columns of types. `quantum_s`, half a round, is what everyone starts with."""

    def __init__(self, types: int, quantum_s: float) -> None:
        self._quantum_s = quantum_s
        self.members: NDArray[np.int64] = np.zeros((0, 2), dtype=np.int64)
        self.tasks: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        """Of a job that runs with another number of tasks than usual, that number; else 0."""
        self.scale: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.runs: NDArray[np.bool_] = np.zeros((0, types), dtype=np.bool_)
        self.considered: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self.share: Floats = np.zeros((0, types))
        self.time_s: Floats = np.zeros((0, types))
        self.deficit_s: Floats = np.zeros((0, types))
        self.type_time_s: Floats = np.zeros(types)
        self._rows: dict[Party, int] = {}
        self._rooms: dict[str, NDArray[Any]] = {}
        """Columns with room at their end: a thousand jobs that come at once make half a million pairs, one by one."""

    @property
    def memory(self) -> Any:
        """All of the books, as lists."""
        return {name: getattr(self, name).tolist() for name in _COLUMNS}

    def recall(self, memory: Any) -> None:
        """Open the books where they were closed."""
        for name in _COLUMNS:
            kept: NDArray[Any] = getattr(self, name)
            setattr(self, name, np.array(memory[name], dtype=kept.dtype).reshape(len(memory[name]), *kept.shape[1:]))
        self._rows = {self.party(row): row for row in range(len(self.tasks))}

    def party(self, row: int) -> Party:
        """Who a row is of."""
        one, other, tasks = int(self.members[row, 0]), int(self.members[row, 1]), int(self.tasks[row])
        if other != NOBODY:
            return (one, other)
        return sized(one, tasks) if tasks else (one,)

    def __contains__(self, party: Party) -> bool:
        return party in self._rows

    def scale_of(self, party: Party) -> int:
        """Devices that a party uses."""
        return int(self.scale[self._rows[party]])

    @property
    def parties(self) -> list[Party]:
        """All parties, in order of joining."""
        return list(self._rows)

    def join(self, parties: Sequence[Party], scale: int, runs: NDArray[np.bool_]) -> None:
        """New parties; `runs` has a row each. A single starts with half a round on every type, a pair with nothing."""
        if not parties:
            return
        first = len(self._rows)
        for offset, party in enumerate(parties):
            self._rows[party] = first + offset
        count, types = len(parties), self.share.shape[1]
        members = np.array([p[:2] if len(p) > 1 else (*p, NOBODY) for p in parties], dtype=np.int64)
        time_s = np.where(members[:, 1:] == NOBODY, self._quantum_s, 0.0) * np.ones((1, types))
        self._append("members", members)
        self._append("tasks", np.array([p[2] if len(p) > 2 else 0 for p in parties], dtype=np.int64))
        self._append("scale", np.full(count, scale, dtype=np.int64))
        self._append("runs", runs)
        self._append("considered", np.zeros(count, dtype=np.bool_))
        self._append("share", np.zeros((count, types)))
        self._append("time_s", time_s)
        self._append("deficit_s", np.zeros((count, types)))

    def _append(self, name: str, rows: NDArray[Any]) -> None:
        """Rows at the end of a column, in the room that it has there if it is still the column that was given room."""
        kept: NDArray[Any] = getattr(self, name)
        end = len(kept) + len(rows)
        room = self._rooms.get(name)
        if room is None or kept.base is not room or len(room) < end:
            room = self._rooms[name] = np.empty((2 * end, *kept.shape[1:]), dtype=kept.dtype)
            room[: len(kept)] = kept
        room[len(kept) : end] = rows
        setattr(self, name, room[:end])

    def leave(self, gone: set[int]) -> None:
        """Jobs are gone, and every party that they were of."""
        if not gone:
            return
        left = np.isin(self.members, np.fromiter(gone, dtype=np.int64))
        self._keep(~(left[:, 0] | left[:, 1]))

    def forget_idle_pairs(self) -> None:
        """Drop pairs that have no share now: they come back when they get one."""
        keep: NDArray[np.bool_] = (self.share > 0).any(axis=1) | (self.members[:, 1] == NOBODY)
        if not keep.all():
            self._keep(keep)

    def _keep(self, keep: NDArray[np.bool_]) -> None:
        parties = [party for party, stays in zip(self._rows, keep.tolist(), strict=True) if stays]
        self._rows = {party: row for row, party in enumerate(parties)}
        self.members, self.tasks, self.scale = self.members[keep], self.tasks[keep], self.scale[keep]
        self.runs = self.runs[keep]
        self.considered, self.share = self.considered[keep], self.share[keep]
        self.time_s, self.deficit_s = self.time_s[keep], self.deficit_s[keep]

    def served(self, party: Party, at: int, seconds: float) -> None:
        """A party ran on a type for so long."""
        self.type_time_s[at] += seconds
        row = self._rows.get(party)
        if row is not None:
            self.time_s[row, at] += seconds

    def close(self, elapsed_s: float) -> None:
        """A period with the same shares is over: what is owed goes into the deficits, and time starts anew."""
        self.deficit_s += self.share * elapsed_s - (self.time_s - self._quantum_s)
        self.time_s[:] = self._quantum_s
        self.type_time_s[:] = self._quantum_s * len(self._rows)

    def set_shares(self, shares: Shares) -> None:
        """The shares from now on; parties that are not named have none, but they were considered.

        Nobody has a share of a type on which it can't run, whatever the rule says.
        """
        self.share[:] = 0.0
        self.considered[:] = True
        if not shares:
            return
        rows = np.fromiter((self._rows[party] for party in shares), dtype=np.int64, count=len(shares))
        self.share[rows] = np.where(self.runs[rows], np.array(list(shares.values()), dtype=np.float64), 0.0)

    def priorities(self) -> Floats:
        """Share over the part of the type's time that was had; 0 for parties without a share or that can't run."""
        with np.errstate(divide="ignore", invalid="ignore"):
            had = np.where(self.type_time_s > 0, self.time_s / self.type_time_s, 0.0)
            ratio = np.where(had > 0, self.share / had, self.share * _UNSERVED)
        wanted = (self.share > 0) & self.runs
        priority: Floats = np.where(wanted, ratio, 0.0)
        return priority

    def order(self, priority: Floats, at: int) -> NDArray[np.int64]:
        """Rows by falling priority, deficit and share on a type; among equals, who joined first."""
        order: NDArray[np.int64] = np.lexsort((-self.share[:, at], -self.deficit_s[:, at], -priority[:, at]))
        return order
