"""Dominant resource fairness: the tenant whose largest share of any resource is smallest goes first."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from rota.core.model.job import WHOLE
from rota.core.state.decayed_usage import Past
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import JobView
from rota.mechanisms.declare import Traits
from rota.mechanisms.ordering.declare import ordering
from rota.mechanisms.ordering.owner import FairnessOwner
from rota.mechanisms.ordering.rule import Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class DrfParams:
    """The owners whose shares are compared."""

    by: FairnessOwner = FairnessOwner.TENANT


class DominantShares:
    """The fraction of each resource that each owner holds now."""

    def __init__(self, params: DrfParams) -> None:
        self._by = params.by
        self._held: dict[Hashable, tuple[float, ...]] = {}

    def open(self, past: dict[str, Past]) -> None:
        """Ignore past usage."""
        self._held = {}

    def of(self, job: JobView) -> Hashable:
        """The owner."""
        return job.job.user if self._by is FairnessOwner.USER else job.job.tenant

    def share(self, job: JobView, inventory: Inventory) -> tuple[float, ...]:
        """The fractions of the cluster's devices, CPUs and memory that a job holds."""
        roles = job.job.roles
        cpu = sum(role.count * role.cpu_milli for role in roles)
        memory = sum(role.count * role.memory_bytes for role in roles)
        return (
            job.gpus * WHOLE / max(inventory.devices * WHOLE, 1),
            cpu / inventory.cpu_total if inventory.cpu_total else 0.0,
            memory / inventory.memory_total if inventory.memory_total else 0.0,
        )

    def change(self, group: Hashable, share: tuple[float, ...], sign: int, now_s: float, *, resumes: bool) -> None:
        """Add or remove the share of an owner's job."""
        held = self._held.get(group, (0.0,) * len(share))
        self._held[group] = tuple(a + sign * b for a, b in zip(held, share, strict=True))

    def rank(self, group: Hashable, now_s: float) -> tuple[float, ...]:
        """The largest of an owner's shares, rounded so that float sums taken in different orders agree."""
        return (round(max(self._held.get(group, (0.0,))), 9),)


@ordering(
    "drf",
    cites="Ghodsi et al., NSDI 2011",
    groups=DominantShares,
    traits=Traits(
        scheduling_input="dominant share of each tenant",
        dimensions="space (several resources)",
        priority="least dominant share",
        starvation="possible for large jobs",
        placement="consolidated",
    ),
)
def dominant_resource_fairness(job: JobView, now_s: float, params: DrfParams) -> Turn:
    """The tenant with the smallest dominant share goes first, its jobs in submission order."""
    return Turn((job.seq,))
