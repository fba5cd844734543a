"""Jobs that ran out of memory, as lower bounds for similar jobs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rota.estimate.observations import GROUPS, Observation, Value
from rota.files.quantities import parse_bytes
from rota.live.estimates.oom_retry import FIELD_BY_FAILURE
from rota.live.estimates.past_use import asked_of, attributes
from rota.store import clock
from rota.store.records import Records

WEEK_S = 7 * 86400.0
"""How long a failure counts: its cause may have been fixed since."""
FRESH_S = 1.0
"""How old the list may be: many jobs may be submitted together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OomRecord:
    """A job that ran out: what is known of it, and by field how many bytes one like it should ask for at least."""

    job: str
    run: Observation
    least: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Least:
    """The least that is worth a try, in bytes, and why."""

    amount: int
    why: str


class OomHistory:
    """The jobs of the last week that ran out."""

    def __init__(self, records: Records, largest: Callable[[str], int | None]) -> None:
        self._records = records
        self._largest = largest
        """How much memory there is for a task at most, by field; None where that is not known."""
        self._read_s = float("-inf")
        self._known: list[OomRecord] = []

    def least(self, spec: Mapping[str, Any]) -> dict[str, Least]:
        """By field, what a job should ask for at least after others like it ran out; no more than there is."""
        if time.monotonic() > self._read_s + FRESH_S:
            self._known = list(_read(self._records))
            self._read_s = time.monotonic()
        asked = Observation(attributes=attributes(spec), labels={})
        found: dict[str, Least] = {}
        for short in self._known:
            if not is_at_least(asked, short.run):
                continue
            for field, least in short.least.items():
                most = self._largest(field)
                amount = least if most is None else min(least, most)
                if field not in found or amount > found[field].amount:
                    found[field] = Least(amount=amount, why=f"job {short.job}, which is like it, ran out of less")
        return found


def is_at_least(asked: Observation, known: Observation) -> bool:
    """Whether a job is of the same kind and tenant as another, and each of its numbers as large or larger."""
    if asked.kind != known.kind:
        return False
    return all(
        _reaches(asked.attributes.get(name), value) for name, value in known.attributes.items() if name not in GROUPS
    )


def _reaches(asked: Value | None, known: Value) -> bool:
    if isinstance(asked, float) and isinstance(known, float):
        return asked >= known
    return asked == known


def _read(records: Records) -> Iterator[OomRecord]:
    for row in records.ran_out(tuple(FIELD_BY_FAILURE), clock.now_s() - WEEK_S):
        spec = json.loads(row.spec)
        run = Observation(attributes=attributes(spec), labels={})
        yield OomRecord(job=row.id, run=run, least=dict(_least(spec, row.state, row.failure)))


def _least(spec: Mapping[str, Any], state: str, failure: str | None) -> Iterator[tuple[str, int]]:
    """What the job should have asked for, as far as it shows: what it was tried with last, or twice what failed."""
    for field, estimate in (spec.get("estimated") or {}).items():
        if estimate.get("raised"):
            yield field, parse_bytes(estimate["given"])
    field = FIELD_BY_FAILURE.get(failure or "")
    if field is not None and state == "failed":
        yield field, 2 * int(asked_of(spec)[field])
