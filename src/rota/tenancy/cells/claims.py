"""A gang's hold on devices: which ones, and as which of its tenant's virtual devices."""

from __future__ import annotations

from dataclasses import dataclass, field

from rota.core.model.cells import PinnedId
from rota.core.model.job import OPPORTUNISTIC, TenantId
from rota.tenancy.cells.tree import Physical, Virtual

Seat = tuple[Physical, Virtual | None]
"""A device and the virtual device it stands for; None for work without a guarantee."""


HIGHEST_PRIORITY = 1000
"""Priorities above it count as this one."""


@dataclass(slots=True, eq=False, kw_only=True)
class Claim:
    """One gang's hold. `seats` are its devices, task by task, as far as they exist in this cluster."""

    name: str
    tenant: TenantId
    priority: int
    lazy: bool = False
    """Whether it prefers to lose its guarantee, not its devices."""
    pinned: PinnedId | None = None
    seats: list[Seat] = field(default_factory=list)
    downgraded_by: str | None = None
    """The gang that took its guarantee; its own name if the tenants' guarantees changed."""

    @property
    def is_guaranteed(self) -> bool:
        """Whether its devices are its tenant's own."""
        return self.priority > OPPORTUNISTIC and self.downgraded_by is None

    @property
    def standing(self) -> int:
        """The priority at which its devices are held."""
        return self.priority if self.is_guaranteed else OPPORTUNISTIC
