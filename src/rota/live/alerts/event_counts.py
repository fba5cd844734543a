"""Events of the journal and of the audit log, counted by rule within a time.

Both logs are read from where the last look ended; that place is written together with what was counted, so that no
event is counted twice or left out, over kills too.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rota.files.alerts.expression import Labels
from rota.files.alerts.settings import AlertRule
from rota.live.alerts.states import owner_of

Json = dict[str, Any]
MOST_GROUPS = 1000
"""Sets of labels of one rule that are counted at a time; the oldest of the user with the most make way."""
MOST_COUNTED = 100
"""Events of one set of labels that are kept, unless a rule asks for more."""
_BY_END = {"succeeded": "job-succeeded", "failed": "job-failed"}
_BY_EVENT = {
    "started": "job-started",
    "interrupted": "job-attempt-failed",
    "start-failed": "job-attempt-failed",
    "node-lost": "node-lost",
    "node-back": "node-back",
    "node-drained": "node-drained",
    "cancelled": "job-cancelled",
}


@dataclass(frozen=True, slots=True)
class Happening:
    """One event, by the name that rules give it."""

    name: str
    at_s: float
    labels: Labels


Titles = Callable[[Sequence[str]], Mapping[str, tuple[str, str, str]]]
"""Returns the name, tenant and user of jobs."""


def happenings(steps: Iterable[Json], titles: Titles) -> list[Happening]:
    """Return the events that rules may name, of steps of the journal."""
    found: list[tuple[str, float, str, str]] = []
    for step in steps:
        for event in step["in"]:
            name = _name_of(event)
            if name is not None:
                found.append((name, float(step["t"]), str(event.get("job_id", "")), str(event.get("node_id", ""))))
        for order in step.get("out", ()):
            if order["order"] == "stop" and order["cause"] == "preempted":
                found.append(("job-preempted", float(step["t"]), str(order["job_id"]), ""))
    known = titles(sorted({job_id for _, _, job_id, _ in found if job_id}))
    return [
        Happening(name, at_s, _job_labels(job_id, known) if job_id else (("node", node_id),))
        for name, at_s, job_id, node_id in found
    ]


def _name_of(event: Json) -> str | None:
    kind = event["event"]
    return _BY_END.get(str(event["end"])) if "end" in event else _BY_EVENT.get(kind)


def _job_labels(job_id: str, known: Mapping[str, tuple[str, str, str]]) -> Labels:
    name, tenant, user = known.get(job_id, ("", "", ""))
    return (("job", job_id), ("name", name), ("tenant", tenant), ("user", user))


def of_audit(rows: Iterable[Any]) -> list[Happening]:
    """Return entries of the audit log as events."""
    return [Happening("audit", row.at_s, (("thing", row.thing), ("what", row.what), ("who", row.who))) for row in rows]


@dataclass(slots=True)
class EventCounts:
    """The moments of counted events, by rule and labels."""

    step: int | None = None
    """The last step of the journal that was read; None before the first look."""
    entry: int | None = None
    """The last entry of the audit log that was read."""
    moments: dict[str, dict[Labels, list[float]]] = field(default_factory=dict)

    def encode(self) -> Json:
        """The counts as JSON values."""
        moments = {
            rule: [[list(map(list, labels)), times] for labels, times in groups.items()]
            for rule, groups in self.moments.items()
        }
        return {"step": self.step, "entry": self.entry, "moments": moments}

    @classmethod
    def decode(cls, value: Mapping[str, Any]) -> EventCounts:
        """Counts from JSON values."""
        moments = {
            rule: {tuple((name, text) for name, text in labels): list(times) for labels, times in groups}
            for rule, groups in value["moments"].items()
        }
        return cls(step=value["step"], entry=value["entry"], moments=moments)

    def add(self, rules: Sequence[AlertRule], found: Iterable[Happening]) -> None:
        """Count events for the rules that name them."""
        owners: dict[str, Counter[tuple[str, str]]] = {}
        for happening in found:
            for rule in rules:
                if rule.counted.name != happening.name or not rule.counted.takes(happening.labels):
                    continue
                kept = tuple(pair for pair in happening.labels if pair[0] in rule.labels)
                groups = self.moments.setdefault(rule.name, {})
                if rule.name not in owners:
                    owners[rule.name] = Counter(map(owner_of, groups))
                times = groups.pop(kept, None)
                if times is None:
                    times = []
                    owners[rule.name][owner_of(kept)] += 1
                groups[kept] = [*times[-max(rule.count, MOST_COUNTED) + 1 :], happening.at_s]
                if len(groups) > MOST_GROUPS:
                    _forget_one(groups, owners[rule.name])

    def within(self, rule: AlertRule, now_s: float) -> dict[Labels, tuple[float, bool]]:
        """Return how many events count by labels, and whether they are enough; forget older ones."""
        groups = self.moments.get(rule.name, {})
        found: dict[Labels, tuple[float, bool]] = {}
        for labels, times in list(groups.items()):
            recent = [at_s for at_s in times if at_s > now_s - rule.within]
            found[labels] = (float(len(recent)), len(recent) >= rule.count)
            if recent:
                groups[labels] = recent
            else:
                del groups[labels]
        return found


def _forget_one(groups: dict[Labels, list[float]], owners: Counter[tuple[str, str]]) -> None:
    """Forget the oldest labels of the user whose jobs have the most."""
    owner = max(owners, key=lambda each: (owners[each], each))
    oldest = next(labels for labels in groups if owner_of(labels) == owner)
    del groups[oldest]
    owners[owner] -= 1


def decode_steps(bodies: Iterable[str]) -> list[Json]:
    """Return steps of the journal as JSON values."""
    return [json.loads(body) for body in bodies]
