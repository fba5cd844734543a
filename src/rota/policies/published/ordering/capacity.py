"""Capacity queues, as Philly ran them (YARN's capacity scheduler; Jeon et al., USENIX ATC 2019).

Every tenant has its own queue, first in, first out, and the queue that uses least of its capacity is served first.
With tenancy `quota` a queue's capacity is guaranteed: idle devices are lent, and reclaimed when the queue needs them.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from rota.core.state.decayed_usage import Past
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import JobView
from rota.mechanisms.declare import Traits
from rota.mechanisms.ordering.declare import ordering
from rota.mechanisms.ordering.rule import Backfill, Turn
from rota.mechanisms.parameters import refuse_odd_weights


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityParams:
    """With `out_of_order`, a queue's later jobs may pass one that does not fit.

    `entities` are tenants whose relative capacities are the `weights`; all other tenants have 1.
    """

    out_of_order: bool = True
    entities: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        refuse_odd_weights(self.entities, self.weights, "weights")


class UsedCapacity:
    """Devices that each tenant holds, over its capacity."""

    def __init__(self, params: CapacityParams) -> None:
        self._weights = dict(zip(params.entities, params.weights, strict=True))
        self._held: dict[Hashable, float] = {}

    def open(self, past: dict[str, Past]) -> None:
        """Ignore past usage."""
        self._held = {}

    def of(self, job: JobView) -> Hashable:
        """The tenant's queue."""
        return job.job.tenant

    def share(self, job: JobView, inventory: Inventory) -> tuple[float, ...]:
        """Devices."""
        return (job.gpus,)

    def change(self, group: Hashable, share: tuple[float, ...], sign: int, now_s: float, *, resumes: bool) -> None:
        """Add or remove the devices of a tenant's job."""
        self._held[group] = self._held.get(group, 0.0) + sign * share[0]

    def rank(self, group: Hashable, now_s: float) -> tuple[float, ...]:
        """The capacity in use, rounded so that float sums taken in different orders agree."""
        return (round(self._held.get(group, 0.0) / self._weights.get(str(group), 1.0), 9),)


@ordering(
    "capacity",
    cites="Jeon et al., USENIX ATC 2019 (Philly); Apache Hadoop YARN, capacity scheduler",
    groups=UsedCapacity,
    backfill=lambda params: Backfill.ANY if params.out_of_order else Backfill.NONE,
    placement="attempts",
    traits=Traits(
        scheduling_input="devices held by each tenant",
        priority="least used queue, then arrival order",
        preemption="only to reclaim lent devices (tenancy quota)",
        starvation="possible for large jobs",
        placement="consolidated; relaxes with failed attempts",
    ),
)
def capacity_queues(job: JobView, now_s: float, params: CapacityParams) -> Turn:
    """The queue that uses least of its capacity goes first, its jobs in order of submission."""
    return Turn((job.seq,))
