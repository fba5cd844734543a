"""Selection of the contenders of a round: by type, the least served first, until the devices are used up."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rota.mechanisms.arrays import Floats
from rota.mechanisms.rounds.deficits import Deficits
from rota.mechanisms.rounds.multi_type import divided
from rota.mechanisms.rounds.round_placement import Selected, fractions_of
from rota.mechanisms.rounds.rule import NO_PARTNER, RoundJob


def select(
    deficits: Deficits,
    devices: Sequence[int],
    order: Sequence[int],
    *,
    backfills: bool,
    serve_newcomers: bool,
    spread: Mapping[int, RoundJob] | None = None,
    taken: Collection[int] = (),
) -> list[Selected]:
    """The contenders of the next round, with their types, in the order in which types are filled.

    With `backfills`, devices without a claim go to the next contender at its usual size. A contender that joined after
    shares were computed uses up its devices even if it may not run, unless `serve_newcomers`. Jobs in `spread` may run
    on several types at once: those that must do so in their turn, the others on what is left in the end. Jobs in
    `taken` are not selected.
    """
    priority = deficits.priorities()
    selector = _Selector(deficits, priority, list(devices), serve_newcomers, spread or {}, set(taken))
    usual = backfills & (deficits.tasks == 0)
    wide = selector.spanning()
    for at in order:
        fits: NDArray[np.bool_] = deficits.runs[:, at] & ((deficits.scale <= devices[at]) | wide)
        fits &= (priority[:, at] > 0) | usual
        rows = deficits.order(priority, at)
        selector.fill(rows[fits[rows]], at)
    if spread:
        claims = priority.max(axis=1, initial=0.0)
        alone: NDArray[np.bool_] = (
            (deficits.members[:, 1] == NO_PARTNER) & (deficits.tasks == 0) & ((claims > 0) | usual)
        )
        rows = np.argsort(-claims, kind="stable")
        selector.spread_out(rows[alone[rows]])
    return selector.selected


def left_of(devices: Sequence[int], deficits: Deficits, placed: Sequence[Selected]) -> list[int]:
    """Devices of each type that the placed contenders leave."""
    left = list(devices)
    for each in placed:
        for at, part in fractions_of(each):
            left[at] -= round(deficits.scale_of(each.contender) * part)
    return left


class _Selector:
    """The devices left of each type while a round is selected, and the contenders selected so far."""

    def __init__(
        self,
        deficits: Deficits,
        priority: Floats,
        left: list[int],
        serve_newcomers: bool,
        spread: Mapping[int, RoundJob],
        taken: set[int],
    ) -> None:
        self._deficits = deficits
        self._priority = priority
        self._left = left
        self._serve_newcomers = serve_newcomers
        self._spread = spread
        self._taken = taken
        self.selected: list[Selected] = []

    def spanning(self) -> NDArray[np.bool_]:
        """The rows of jobs that are too large for any single type."""
        seqs = [seq for seq, job in self._spread.items() if job.spans]
        return np.isin(self._deficits.members[:, 0], np.array(seqs, dtype=np.int64))

    def fill(self, rows: NDArray[np.int64], at: int) -> None:
        """Select from these rows, in their order, for the devices of a type."""
        deficits, taken = self._deficits, self._taken
        scale, considered = deficits.scale[rows].tolist(), deficits.considered[rows].tolist()
        members = deficits.members[rows].tolist()
        for row, (one, other), size, known in zip(rows.tolist(), members, scale, considered, strict=True):
            if one in taken or other in taken:
                continue
            if one in self._spread and self._spread[one].spans:
                self._divide(row, one)
                continue
            if size > self._left[at]:
                continue
            self._left[at] -= size
            taken.add(one)
            if other != NO_PARTNER:
                taken.add(other)
            if known or self._serve_newcomers:
                self.selected.append(Selected(deficits.contender(row), at))
            if not self._left[at]:
                return

    def spread_out(self, rows: NDArray[np.int64]) -> None:
        """Select jobs for what is left of several types together."""
        for row in rows.tolist():
            seq = int(self._deficits.members[row, 0])
            if seq in self._spread and seq not in self._taken:
                self._divide(row, seq)

    def _divide(self, row: int, seq: int) -> None:
        job = self._spread[seq]
        parts = divided(job, self._left, self._priority[row].tolist())
        if parts is None:
            return
        per_task = job.scale // job.count
        self._left = [left - tasks * per_task for left, tasks in zip(self._left, parts, strict=True)]
        self._taken.add(seq)
        used = [at for at, tasks in enumerate(parts) if tasks]
        self.selected.append(Selected(self._deficits.contender(row), used[0], parts if len(used) > 1 else ()))
