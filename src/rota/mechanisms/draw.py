"""Who runs in a round: type by type, whoever has had least of its share, as many as there are devices for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rota.mechanisms.ledger import Ledger
from rota.mechanisms.seats import Drawn
from rota.mechanisms.shares import NOBODY


def draw(
    ledger: Ledger, devices: Sequence[int], order: Sequence[int], *, backfills: bool, newcomers: bool
) -> list[Drawn]:
    """The parties of the next round, with their types, in the order in which types are filled.

    With `backfills`, devices that nobody has a claim to go to whoever is next, at its usual size; a party that joined
    after shares were worked out uses up its devices even if it may not run, unless `newcomers` do.
    """
    priority = ledger.priorities()
    taken: set[int] = set()
    drawn: list[Drawn] = []
    for at in order:
        fits: NDArray[np.bool_] = ledger.runs[:, at] & (ledger.scale <= devices[at])
        fits &= (priority[:, at] > 0) | (backfills & (ledger.tasks == 0))
        rows = ledger.order(priority, at)
        _fill(ledger, rows[fits[rows]], at, devices[at], taken, drawn, newcomers)
    return drawn


def _fill(
    ledger: Ledger,
    rows: NDArray[np.int64],
    at: int,
    left: int,
    taken: set[int],
    drawn: list[Drawn],
    newcomers: bool,
) -> None:
    scale, considered = ledger.scale[rows].tolist(), ledger.considered[rows].tolist()
    members = ledger.members[rows].tolist()
    for row, (one, other), size, known in zip(rows.tolist(), members, scale, considered, strict=True):
        if one in taken or other in taken or size > left:
            continue
        left -= size
        taken.add(one)
        if other != NOBODY:
            taken.add(other)
        if known or newcomers:
            drawn.append((ledger.party(row), at))
        if not left:
            return
