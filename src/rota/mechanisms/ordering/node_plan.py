"""A plan of nodes over time, for backfill with several reservations: which nodes are reserved when, and for which job.

A reservation holds its nodes whole, from its start to its end, however few of their devices its job needs.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.state.job_record import LiveJob


@dataclass(slots=True)
class PlannedStart:
    """The nodes that a waiting job is expected to start on, as a bit set, from then to its expected end."""

    live: LiveJob
    starts_s: float
    ends_s: float
    nodes: int

    def reason(self) -> Reason:
        """The reason of a job that may not start because it would still run here then."""
        return Reason(code=ReasonCode.WOULD_DELAY, job=self.live.job.id, until_s=self.starts_s)


class NodePlan:
    """The reservations of one walk down the order; times are rounded down to multiples of the resolution."""

    __slots__ = ("_ends_s", "_resolution_s", "reservations")

    def __init__(self, resolution_s: float) -> None:
        self._resolution_s = resolution_s
        self.reservations: list[PlannedStart] = []
        """All reservations, the first to end first."""
        self._ends_s: list[float] = []
        """Their ends."""

    def rounded(self, at_s: float) -> float:
        """A time as the plan keeps it."""
        step_s = self._resolution_s
        return math.floor(at_s / step_s) * step_s if step_s and at_s < math.inf else at_s

    def reserve(self, live: LiveJob, starts_s: float, expected_s: float, nodes: int) -> bool:
        """Add a reservation, at least one step of the resolution long; False if it overlaps with another."""
        begin_s, end_s = self.rounded(starts_s), self.rounded(starts_s + expected_s)
        if self.taken(begin_s, end_s, inclusive=False) & nodes:
            return False
        end_s = max(end_s, begin_s + self._resolution_s)
        at = bisect_right(self._ends_s, end_s)
        self._ends_s.insert(at, end_s)
        self.reservations.insert(at, PlannedStart(live, begin_s, end_s, nodes))
        return True

    def taken(self, from_s: float, to_s: float, *, inclusive: bool = True) -> int:
        """The nodes that are reserved for some time between two moments; `inclusive`: or from the second on."""
        nodes = 0
        reservations = self.reservations
        for at in range(bisect_right(self._ends_s, from_s), len(reservations)):
            each = reservations[at]
            if each.starts_s < to_s or (inclusive and each.starts_s == to_s):
                nodes |= each.nodes
        return nodes

    def next_end_s(self, from_s: float, to_s: float) -> float:
        """When, after the first moment, a reservation ends that keeps nodes from a job between both; else infinity."""
        reservations = self.reservations
        for at in range(bisect_right(self._ends_s, from_s), len(reservations)):
            each = reservations[at]
            if each.starts_s <= to_s:
                return each.ends_s
        return math.inf


def first_on(reservations: Iterable[PlannedStart], nodes: int, until_s: float) -> PlannedStart | None:
    """The reservation of any of these nodes that starts first, by some moment."""
    found: PlannedStart | None = None
    for each in reservations:
        if each.nodes & nodes and each.starts_s <= until_s and (found is None or each.starts_s < found.starts_s):
            found = each
    return found
