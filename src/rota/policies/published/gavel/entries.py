"""Parameters that are lists of `name:value`, such as `v100:2.48/k80:0.45`."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from rota.core.errors import RotaError, did_you_mean


def names_of(entries: Sequence[str]) -> list[str]:
    """All listed names."""
    return [entry.partition(":")[0] for entry in entries]


def unknown_names(field: str, entries: Sequence[str], known: Collection[str], what: str) -> Iterator[str]:
    """Yield a sentence for each listed name that is not known; `what` is what the names should be."""
    for name in names_of(entries):
        if name not in known:
            yield f"{field} names {name!r}, which is no {what}; {did_you_mean(name, known)}"


def entry_of(entries: Sequence[str], name: str) -> str | None:
    """The text that belongs to a name; None if it is not listed."""
    for entry in entries:
        key, _, text = entry.partition(":")
        if key == name:
            return text
    return None


def amount_of(entries: Sequence[str], name: str, what: str) -> float | None:
    """The number above 0 that belongs to a name; `what` says in a message which number that is."""
    text = entry_of(entries, name)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise RotaError(f"{what} is {text!r}; it must be a number above 0")
    return value
