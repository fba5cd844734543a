"""Ranges of the training runs. An estimate beyond them is an extrapolation and states why."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rota.core.errors import RotaError
from rota.estimate.observations import COUNTED, GROUPS, WHOSE, Observation, Value

MARGIN = 0.25
"""Relative distance beyond the observed range that is still accepted."""
FEWEST_OF_KIND = 3
"""Below this number of runs of a kind, the ranges of all runs apply."""
OFTEN = 3
"""Values seen this often on average are assumed to be complete; of others (paths, names) any is accepted."""


class Ranges:
    """Ranges of the attributes of runs, for each kind and for all together."""

    def __init__(self, runs: Sequence[Observation]) -> None:
        self._all = list(runs)
        self._by_kind: dict[str, list[Observation]] = {}
        for run in runs:
            self._by_kind.setdefault(run.kind, []).append(run)

    def refuse_nonsense(self, run: Observation) -> None:
        """Refuse infinite numbers, and negative ones where none was observed."""
        for name, value in run.attributes.items():
            if not isinstance(value, float):
                continue
            seen = [known for known in _values(self._all, name) if isinstance(known, float)]
            if not math.isfinite(value):
                raise RotaError(f"{name} is {value:g}; it must be a finite number")
            if value < 0 and seen and min(seen) >= 0:
                raise RotaError(f"{name} is {value:g}; it must not be negative: past runs have {_span(seen)}")

    def outside(self, run: Observation) -> tuple[str, ...]:
        """Return sentences about what lies beyond the training runs; empty if nothing does."""
        mine = self._by_kind.get(run.kind, ())
        whose = f"runs of {run.kind}" if len(mine) >= FEWEST_OF_KIND else "runs"
        others = mine if len(mine) >= FEWEST_OF_KIND else self._all
        names = dict.fromkeys(name for other in others for name in other.attributes)
        found = []
        for name in names:
            seen = _values(others, name)
            given = run.attributes.get(name)
            if name in GROUPS or name in WHOSE or (given is None and name in COUNTED):
                continue
            if given is None:
                if len(seen) == len(others) and len(set(seen)) > 1:
                    found.append(f"{name} is not given; known {whose} have {_span(seen)}")
            elif not _is_within(given, seen):
                found.append(f"{name} is {_shown(given)}; known {whose} have {_span(seen)}")
        return tuple(found)


def _values(runs: Sequence[Observation], name: str) -> list[Value]:
    return [run.attributes[name] for run in runs if name in run.attributes]


def _is_within(given: Value, seen: Sequence[Value]) -> bool:
    numbers = [value for value in seen if isinstance(value, float)]
    if isinstance(given, float) and numbers:
        low, high = min(numbers), max(numbers)
        return low - MARGIN * abs(low) <= given <= high + MARGIN * abs(high)
    words = [value for value in seen if isinstance(value, str)]
    return given in seen or 0 < len(words) < OFTEN * len(set(words))


def _span(seen: Sequence[Value]) -> str:
    numbers = [value for value in seen if isinstance(value, float)]
    if len(numbers) < len(seen):
        return ", ".join(sorted(map(_shown, set(seen))))
    low, high = min(numbers), max(numbers)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _shown(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else repr(value)
