"""Dominant resource fairness: the tenant whose largest share of any resource is smallest goes first."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rota.core.inventory import Inventory
from rota.core.live import JobView
from rota.core.model import WHOLE
from rota.mechanisms.declare import Traits, ordering
from rota.mechanisms.ordering import Groups, Turn


class Owner(Enum):
    """Between whom to be fair."""

    TENANT = "tenant"
    USER = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrfParams:
    """Whose shares are compared."""

    by: Owner = Owner.TENANT


def shares(job: JobView, inventory: Inventory) -> tuple[float, ...]:
    """What a job holds of the cluster's devices, CPUs and memory, as fractions."""
    roles = job.job.roles
    cpu = sum(role.count * role.cpu_milli for role in roles)
    memory = sum(role.count * role.memory_bytes for role in roles)
    return (
        job.gpus * WHOLE / max(inventory.devices * WHOLE, 1),
        cpu / inventory.cpu_total if inventory.cpu_total else 0.0,
        memory / inventory.memory_total if inventory.memory_total else 0.0,
    )


def dominant(held: tuple[float, ...], inventory: Inventory) -> float:
    """The largest of a tenant's shares, rounded so that sums of floats taken in another order agree."""
    return round(max(held), 9)


def _groups(params: DrfParams) -> Groups:
    def owner(job: JobView) -> str:
        return job.job.user if params.by is Owner.USER else job.job.tenant

    return Groups(of=owner, share=shares, rank=dominant)


@ordering(
    "drf",
    cites="Ghodsi et al., NSDI 2011",
    groups=_groups,
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
