"""The state of a node's health, with hysteresis: one bad sign makes it suspect, several or severe ones take it out.

healthy -> suspect -> draining -> bad -> in repair -> healthy. A severe sign drains at once. A suspect becomes healthy
after several good checks in a row, and drains after several bad ones. A node in repair is healthy again only after its
tests passed several times. What passes by itself, as a full disk does, needs no repair: good checks bring it back.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

GOOD_TO_CLEAR = 3
"""Good checks in a row that clear a suspect."""
BAD_TO_DRAIN = 3
"""Bad signs in a row, or within the memory of a suspect, that drain it."""
GOOD_TO_RETURN = 2
"""Passed tests in a row that end a repair, or show that what was wrong has passed."""
MOST_EVIDENCE = 20


class NodeHealthState(Enum):
    """How far a node can be trusted."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    DRAINING = "draining"
    BAD = "bad"
    IN_REPAIR = "in-repair"

    @property
    def takes_jobs(self) -> bool:
        """Whether jobs may start there; on a suspect, only those that tolerate it."""
        return self in (NodeHealthState.HEALTHY, NodeHealthState.SUSPECT)


class Severity(Enum):
    """What a check or an error says about its node. The values are the exit codes of checks."""

    GOOD = 0
    WARNING = 1
    SEVERE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSign:
    """One result of a check, an error of a device, or a verdict about a failed job."""

    at_s: float
    source: str
    """The check or the part that reports it, such as `gpu-xid`."""
    severity: Severity
    text: str = ""
    passes: bool = False
    """Whether what is wrong can pass without a repair, as a full disk does."""

    def encode(self) -> dict[str, Any]:
        """The sign as JSON values."""
        told = {"at_s": self.at_s, "source": self.source, "severity": self.severity.name.lower(), "text": self.text}
        return {**told, "passes": True} if self.passes else told


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHealth:
    """A node's state, since when, the counts of the hysteresis, and its last bad signs."""

    state: NodeHealthState = NodeHealthState.HEALTHY
    since_s: float = 0.0
    good: int = 0
    bad: int = 0
    evidence: tuple[HealthSign, ...] = field(default=())

    @property
    def passes(self) -> bool:
        """Whether all that is wrong can pass without a repair."""
        return bool(self.evidence) and all(sign.passes for sign in self.evidence)

    def after(self, sign: HealthSign, *, is_empty: bool = False) -> NodeHealth:
        """The health after a sign; `is_empty` tells whether no job is left on the node."""
        if sign.severity is Severity.GOOD:
            return self._after_good(sign, is_empty)
        evidence = (*self.evidence, sign)[-MOST_EVIDENCE:]
        counted = replace(self, good=0, bad=self.bad + 1, evidence=evidence)
        match self.state:
            case NodeHealthState.HEALTHY | NodeHealthState.SUSPECT:
                if sign.severity is Severity.SEVERE or counted.bad >= BAD_TO_DRAIN:
                    return counted._to(NodeHealthState.DRAINING, sign.at_s).emptied(sign.at_s, is_empty=is_empty)
                return counted._to(NodeHealthState.SUSPECT, sign.at_s)
            case NodeHealthState.DRAINING:
                return counted.emptied(sign.at_s, is_empty=is_empty)
            case NodeHealthState.BAD | NodeHealthState.IN_REPAIR:
                return counted

    def _after_good(self, sign: HealthSign, is_empty: bool) -> NodeHealth:
        counted = replace(self, good=self.good + 1)
        match self.state:
            case NodeHealthState.SUSPECT if counted.good >= GOOD_TO_CLEAR:
                return replace(counted._to(NodeHealthState.HEALTHY, sign.at_s), bad=0, evidence=())
            case NodeHealthState.IN_REPAIR if counted.good >= GOOD_TO_RETURN:
                return replace(counted._to(NodeHealthState.HEALTHY, sign.at_s), bad=0, evidence=())
            case NodeHealthState.DRAINING | NodeHealthState.BAD if self.passes and counted.good >= GOOD_TO_RETURN:
                return counted.cleared(sign.at_s)
            case NodeHealthState.DRAINING:
                return counted.emptied(sign.at_s, is_empty=is_empty)
            case _:
                return counted

    def emptied(self, now_s: float, *, is_empty: bool = True) -> NodeHealth:
        """A node that drains is bad once its last job has left."""
        if self.state is NodeHealthState.DRAINING and is_empty:
            return replace(self._to(NodeHealthState.BAD, now_s), good=self.good)
        return self

    def repairing(self, now_s: float) -> NodeHealth:
        """Repair has begun: passed tests bring the node back from now on."""
        return replace(self._to(NodeHealthState.IN_REPAIR, now_s), good=0)

    def cleared(self, now_s: float) -> NodeHealth:
        """An administrator declares the node healthy."""
        return replace(self._to(NodeHealthState.HEALTHY, now_s), good=0, bad=0, evidence=())

    def _to(self, state: NodeHealthState, now_s: float) -> NodeHealth:
        return self if state is self.state else replace(self, state=state, since_s=now_s, good=0)

    def encode(self) -> dict[str, Any]:
        """The health as JSON values."""
        return {
            "state": self.state.value,
            "since_s": self.since_s,
            "good": self.good,
            "bad": self.bad,
            "evidence": [sign.encode() for sign in self.evidence],
        }


def decode_health(value: dict[str, Any]) -> NodeHealth:
    """The health that `encode` wrote."""
    return NodeHealth(
        state=NodeHealthState(value["state"]),
        since_s=float(value["since_s"]),
        good=int(value["good"]),
        bad=int(value["bad"]),
        evidence=tuple(
            HealthSign(
                at_s=float(each["at_s"]),
                source=str(each["source"]),
                severity=Severity[str(each["severity"]).upper()],
                text=str(each["text"]),
                passes=bool(each.get("passes", False)),
            )
            for each in value["evidence"]
        ),
    )
