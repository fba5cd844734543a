"""Who runs in a round: type by type, whoever has had least of its share, as many as there are devices for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rota.mechanisms.rounds.deficits import Deficits
from rota.mechanisms.rounds.multi_type import divided
from rota.mechanisms.rounds.round_placement import Drawn, parts_of
from rota.mechanisms.rounds.rule import NOBODY, Contender, Floats


def draw(
    ledger: Deficits,
    devices: Sequence[int],
    order: Sequence[int],
    *,
    backfills: bool,
    newcomers: bool,
    spread: Mapping[int, Contender] | None = None,
    taken: Collection[int] = (),
) -> list[Drawn]:
    """The parties of the next round, with their types, in the order in which types are filled.

    With `backfills`, devices that nobody has a claim to go to whoever is next, at its usual size; a party that joined
    after shares were worked out uses up its devices even if it may not run, unless `newcomers` do. Jobs in `spread` may
    run on several types at once: who must does so in its turn, the others on what is left in the end. Who is `taken` is
    not drawn.
    """
    priority = ledger.priorities()
    hand = _Hand(ledger, priority, list(devices), newcomers, spread or {}, set(taken))
    usual = backfills & (ledger.tasks == 0)
    wide = hand.spanning()
    for at in order:
        fits: NDArray[np.bool_] = ledger.runs[:, at] & ((ledger.scale <= devices[at]) | wide)
        fits &= (priority[:, at] > 0) | usual
        rows = ledger.order(priority, at)
        hand.fill(rows[fits[rows]], at)
    if spread:
        claims = priority.max(axis=1, initial=0.0)
        alone: NDArray[np.bool_] = (ledger.members[:, 1] == NOBODY) & (ledger.tasks == 0) & ((claims > 0) | usual)
        rows = np.argsort(-claims, kind="stable")
        hand.spread_out(rows[alone[rows]])
    return hand.drawn


def left_of(devices: Sequence[int], ledger: Deficits, seated: Sequence[Drawn]) -> list[int]:
    """Devices of each type beside those of parties that sit already."""
    left = list(devices)
    for each in seated:
        for at, part in parts_of(each):
            left[at] -= round(ledger.scale_of(each.party) * part)
    return left


class _Hand:
    """What is left of each type while a round is drawn, and who was drawn so far."""

    def __init__(
        self,
        ledger: Deficits,
        priority: Floats,
        left: list[int],
        newcomers: bool,
        spread: Mapping[int, Contender],
        taken: set[int],
    ) -> None:
        self._ledger = ledger
        self._priority = priority
        self._left = left
        self._newcomers = newcomers
        self._spread = spread
        self._taken = taken
        self.drawn: list[Drawn] = []

    def spanning(self) -> NDArray[np.bool_]:
        """The rows of jobs that are too large for every type."""
        seqs = [seq for seq, job in self._spread.items() if job.spans]
        return np.isin(self._ledger.members[:, 0], np.array(seqs, dtype=np.int64))

    def fill(self, rows: NDArray[np.int64], at: int) -> None:
        """Draw from these rows, in their order, for the devices of a type."""
        ledger, taken = self._ledger, self._taken
        scale, considered = ledger.scale[rows].tolist(), ledger.considered[rows].tolist()
        members = ledger.members[rows].tolist()
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
            if other != NOBODY:
                taken.add(other)
            if known or self._newcomers:
                self.drawn.append(Drawn(ledger.party(row), at))
            if not self._left[at]:
                return

    def spread_out(self, rows: NDArray[np.int64]) -> None:
        """Let jobs that were not drawn run on what is left of several types together."""
        for row in rows.tolist():
            seq = int(self._ledger.members[row, 0])
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
        self.drawn.append(Drawn(self._ledger.party(row), used[0], parts if len(used) > 1 else ()))
