"""Guarantees by count: devices of each type for tenants, which may contain other tenants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rota.core.errors import RotaError, did_you_mean
from rota.core.model.job import DeviceType, TenantId

ANY_TYPE = DeviceType("*")
"""Stands for devices of all types together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A tenant's share: devices it may claim at any time, and how many it may borrow while others leave theirs idle."""

    guaranteed: Mapping[DeviceType, int] = field(default_factory=dict)
    limit: Mapping[DeviceType, int] = field(default_factory=dict)
    """The most it may hold, borrowed devices included; a type that is not named has no limit."""
    parent: TenantId | None = None
    weight: float = 1.0
    """Its weight, against its siblings, in what is left over."""
    per_user: int | None = None
    """The most devices that one of its users may hold."""

    def __post_init__(self) -> None:
        if not self.weight > 0:
            raise RotaError(f"weight is {self.weight:g}; it must be above 0")
        for kind, most in self.limit.items():
            if most < self.guaranteed.get(kind, 0):
                raise RotaError(f"limit.{kind} is {most}, less than the {self.guaranteed[kind]} guaranteed; raise it")


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantPlan:
    """All tenants with their shares, and the rules between them."""

    shares: Mapping[TenantId, Share]
    half_life_s: float = 7 * 86400.0
    """After so long, past use counts half when what is left over is shared out."""
    min_run_s: float = 0.0
    """The minimum run time before which no job is preempted."""

    def __post_init__(self) -> None:
        if not self.half_life_s > 0 or not self.min_run_s >= 0:
            raise RotaError("half_life must be above 0 and min_run 0 or more")
        for name, share in self.shares.items():
            above, seen = share.parent, {name}
            while above is not None:
                if above not in self.shares:
                    raise RotaError(f"tenants.{name}.parent is {above!r}; {did_you_mean(above, self.shares)}")
                if above in seen:
                    raise RotaError(f"tenants.{name}.parent: {above!r} is above itself; tenants must form a tree")
                seen.add(above)
                above = self.shares[above].parent
