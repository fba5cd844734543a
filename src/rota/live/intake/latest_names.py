"""Which jobs a name means: those that were submitted under it last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rota.core.model.job import JobId

MOST_NAMES = 10_000
"""How many names are kept in memory; the jobs of older ones are in the database."""

TenantAndName = tuple[str, str]


class LatestNames:
    """The most recent names, by tenant; several jobs have one name if they were submitted together."""

    def __init__(self, most: int = MOST_NAMES) -> None:
        self._most = most
        self._jobs: dict[TenantAndName, list[JobId]] = {}

    def get(self, name: TenantAndName) -> list[JobId] | None:
        """Return the jobs of a name; None if it is not among the most recent."""
        return self._jobs.get(name)

    def update(self, jobs: Mapping[TenantAndName, list[JobId]]) -> None:
        """Let names mean these jobs from now on."""
        self.forget(jobs)
        self._jobs.update(jobs)
        while len(self._jobs) > self._most:
            del self._jobs[next(iter(self._jobs))]

    def forget(self, names: Iterable[TenantAndName]) -> None:
        """Forget what names mean."""
        for name in names:
            self._jobs.pop(name, None)
