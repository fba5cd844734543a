"""Cache of permanent refusals: which groups are still worth asking for a class of jobs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from rota.mechanisms.colocation.groups import DeviceSet


class RefusalCache:
    """By class of jobs, the groups that have not refused it since they last changed."""

    def __init__(self) -> None:
        self._by_class: dict[Hashable, dict[DeviceSet, None]] = {}

    def candidates(self, job_class: Hashable, groups: Iterable[DeviceSet]) -> dict[DeviceSet, None]:
        """Return the groups to ask, all of `groups` for a new class; the caller deletes those that refuse."""
        found = self._by_class.get(job_class)
        if found is None:
            found = self._by_class[job_class] = dict.fromkeys(groups)
        return found

    def changed(self, groups: Iterable[DeviceSet]) -> None:
        """Drop the refusals of groups that have changed."""
        for devices in groups:
            for candidates in self._by_class.values():
                candidates[devices] = None

    def clear(self) -> None:
        """Drop all classes."""
        self._by_class.clear()
