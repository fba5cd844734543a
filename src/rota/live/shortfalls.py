"""Jobs that ran out of memory: what they had was too little, and so it is for the next job like them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rota.estimate.observations import GROUPS, WHOSE, Observation, Value
from rota.files.quantities import parse_bytes
from rota.live.past_use import asked_of, attributes
from rota.live.raising import FIELD_BY_FAILURE
from rota.store.records import Records


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """The least that is worth a try, in bytes, and why."""

    least: int
    why: str


def least_needed(
    records: Records, spec: Mapping[str, Any], largest: Callable[[str], int | None]
) -> dict[str, Shortfall]:
    """By field, the least memory that a job should ask for after others like it ran out; no more than there is."""
    asked = Observation(attributes=attributes(spec), labels={})
    found: dict[str, Shortfall] = {}
    for row in records.ran_out(tuple(FIELD_BY_FAILURE)):
        known = json.loads(row.spec)
        if not is_at_least(asked, Observation(attributes=attributes(known), labels={})):
            continue
        for field, least in _least_of(known, row.state, row.failure):
            most = largest(field)
            least = least if most is None else min(least, most)
            if field not in found or least > found[field].least:
                found[field] = Shortfall(least=least, why=f"job {row.id}, which is like it, ran out of less")
    return found


def is_at_least(asked: Observation, known: Observation) -> bool:
    """Whether a job is of the same kind as another, and each of its numbers as large or larger."""
    skipped = (*GROUPS, *WHOSE)
    if asked.kind != known.kind:
        return False
    return all(
        _reaches(asked.attributes.get(name), value) for name, value in known.attributes.items() if name not in skipped
    )


def _reaches(asked: Value | None, known: Value) -> bool:
    if isinstance(asked, float) and isinstance(known, float):
        return asked >= known
    return asked == known


def _least_of(spec: Mapping[str, Any], state: str, failure: str | None) -> Iterator[tuple[str, int]]:
    """What the job should have asked for, as far as it shows: what it was tried with last, or twice what failed."""
    for field, told in (spec.get("estimated") or {}).items():
        if told.get("raised"):
            yield field, parse_bytes(told["given"])
    if failure is not None and state == "failed":
        field = FIELD_BY_FAILURE[failure]
        yield field, 2 * int(asked_of(spec)[field])
