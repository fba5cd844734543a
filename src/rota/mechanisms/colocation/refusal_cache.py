"""Which groups a kind of job has not asked yet as they are now, so that nobody asks twice who is refused for good."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from rota.mechanisms.colocation.groups import Seats


class RefusalCache:
    """Groups by kind of job: those that it has not asked, or that have changed since."""

    def __init__(self) -> None:
        self._by_kind: dict[Hashable, dict[Seats, None]] = {}

    def of(self, kind: Hashable, groups: Iterable[Seats]) -> dict[Seats, None]:
        """The groups that are worth asking, of all there are; whoever asks takes out those that refuse."""
        found = self._by_kind.get(kind)
        if found is None:
            found = self._by_kind[kind] = dict.fromkeys(groups)
        return found

    def changed(self, groups: Iterable[Seats]) -> None:
        """These groups may give another answer than before."""
        for seats in groups:
            for untried in self._by_kind.values():
                untried[seats] = None

    def forget(self) -> None:
        """Nobody asks any more."""
        self._by_kind.clear()
