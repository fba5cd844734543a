"""The two-machine flow shop: each job first on one machine, then on the other, all in one order.

Johnson's rule (1954) gives an order with the least makespan: jobs that are shorter on the first machine, ascending by
it, then the others, descending by the second.
"""

from __future__ import annotations

from collections.abc import Sequence

FlowJob = tuple[float, float]
"""Times on the first and on the second machine."""


def johnson_order(jobs: Sequence[FlowJob]) -> list[int]:
    """Positions of the jobs in an order with the least makespan."""
    early = [number for number, (first, second) in enumerate(jobs) if first < second]
    late = [number for number, (first, second) in enumerate(jobs) if first >= second]
    early.sort(key=lambda number: (jobs[number][0], number))
    late.sort(key=lambda number: (-jobs[number][1], number))
    return [*early, *late]


def makespan_ms(jobs: Sequence[FlowJob], order: Sequence[int]) -> float:
    """When the last job leaves the second machine."""
    first_ms = second_ms = 0.0
    for number in order:
        first_ms += jobs[number][0]
        second_ms = max(first_ms, second_ms) + jobs[number][1]
    return second_ms


def best_makespan_ms(jobs: Sequence[FlowJob]) -> float:
    """The least makespan over all orders."""
    return makespan_ms(jobs, johnson_order(jobs))
