"""What a manager's settings say about GPUs."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class IdleAction(Enum):
    """What happens to a job whose GPUs stay idle after the warning."""

    WARN = "warn"
    SUSPEND = "suspend"
    STOP = "stop"


class MpsUse(Enum):
    """Which jobs are clients of MPS: none, those that share a GPU when they start, or all that have one GPU or less."""

    OFF = "off"
    PACKED = "packed"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleRule:
    """When a job counts as idle, and what follows. Off while `below_percent` is 0."""

    below_percent: float = 0.0
    """A job whose GPUs are busy for less than this, in percent of the time, is idle."""
    for_s: float = 1800.0
    """How long it must be idle before it is warned."""
    grace_s: float = 600.0
    """How long after the warning the action follows."""
    action: IdleAction = IdleAction.WARN


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyRates:
    """What a kilowatt-hour costs, and what it emits; None: not known."""

    price_per_kwh: float | None = None
    currency: str = ""
    carbon_g_per_kwh: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSettings:
    """How GPUs are watched, limited and shared."""

    memory_grace_s: float | None = 5.0
    """How long a task may hold more GPU memory than it asked for; None: as long as it likes."""
    every_s: float = 1.0
    """The time between two samples of a GPU; 0: none are taken."""
    energy: EnergyRates = field(default_factory=EnergyRates)
    idle: IdleRule = field(default_factory=IdleRule)
    mps: MpsUse = MpsUse.OFF
    bound: float = 0.0
    """The part of its speed alone that a guaranteed job keeps beside packed opportunistic ones; 0: not controlled."""
