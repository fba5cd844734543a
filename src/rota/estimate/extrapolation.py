"""What the runs that were learned from cover. An estimate of anything beyond that is a guess, and says why."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rota.core.errors import RotaError
from rota.estimate.observations import COUNTED, GROUPS, WHOSE, Observation, Value

MARGIN = 0.25
"""How far beyond the least and the most that was seen a number may lie, as a part of that."""
FEWEST_OF_KIND = 3
"""Below so many runs of a kind, all runs count in its place."""
OFTEN = 3
"""Words that were seen so often on average are taken for all that there are; of others (paths, names) any will do."""


class Ranges:
    """The attributes of some runs, for each kind and for all together."""

    def __init__(self, runs: Sequence[Observation]) -> None:
        self._all = list(runs)
        self._by_kind: dict[str, list[Observation]] = {}
        for run in runs:
            self._by_kind.setdefault(run.kind, []).append(run)

    def refuse_nonsense(self, run: Observation) -> None:
        """No number may be infinite, nor below zero where none of those that were seen is."""
        for name, value in run.attributes.items():
            if not isinstance(value, float):
                continue
            seen = [known for known in _values(self._all, name) if isinstance(known, float)]
            if not math.isfinite(value):
                raise RotaError(f"{name} is {value:g}; it must be a finite number")
            if value < 0 and seen and min(seen) >= 0:
                raise RotaError(f"{name} is {value:g}; it must not be negative: past runs have {_span(seen)}")

    def outside(self, run: Observation) -> tuple[str, ...]:
        """What about a run lies beyond those that were seen, in words; nothing if all is within."""
        mine = self._by_kind.get(run.kind, ())
        whose = f"runs of {run.kind}" if len(mine) >= FEWEST_OF_KIND else "runs"
        others = mine if len(mine) >= FEWEST_OF_KIND else self._all
        names = dict.fromkeys(name for other in others for name in other.attributes)
        found = []
        for name in names:
            seen = _values(others, name)
            said = run.attributes.get(name)
            if name in GROUPS or name in WHOSE or (said is None and name in COUNTED):
                continue
            if said is None:
                if len(seen) == len(others) and len(set(seen)) > 1:
                    found.append(f"it does not say {name}; {whose} that were learned from have {_span(seen)}")
            elif not _is_within(said, seen):
                found.append(f"{name} is {_shown(said)}; {whose} that were learned from have {_span(seen)}")
        return tuple(found)


def _values(runs: Sequence[Observation], name: str) -> list[Value]:
    return [run.attributes[name] for run in runs if name in run.attributes]


def _is_within(said: Value, seen: Sequence[Value]) -> bool:
    numbers = [value for value in seen if isinstance(value, float)]
    if isinstance(said, float) and numbers:
        low, high = min(numbers), max(numbers)
        return low - MARGIN * abs(low) <= said <= high + MARGIN * abs(high)
    words = [value for value in seen if isinstance(value, str)]
    return said in seen or 0 < len(words) < OFTEN * len(set(words))


def _span(seen: Sequence[Value]) -> str:
    numbers = [value for value in seen if isinstance(value, float)]
    if len(numbers) < len(seen):
        return ", ".join(sorted(map(_shown, set(seen))))
    low, high = min(numbers), max(numbers)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _shown(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else repr(value)
