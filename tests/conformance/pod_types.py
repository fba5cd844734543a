"""What a pod asks of the scheduler, and the answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from rota.core.errors import RotaError
from rota.core.model.cells import CellTypeName
from rota.core.model.job import JobId, NodeId
from rota.core.model.placement import Placement


class Question(Enum):
    """Whether a question may start a preemption, or only asks for its victims."""

    FILTERING = "Filtering"
    PREEMPTING = "Preempting"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSpec:
    """What a pod asks for. `members` are (pods, devices each) of its whole gang; empty means a gang of itself."""

    tenant: str = ""
    priority: int = 0
    devices: int = 0
    leaf_type: str | None = None
    pinned: str | None = None
    group: str | None = None
    members: tuple[tuple[int, int], ...] = ()
    lazy: bool = False
    ignores_suggestions: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Where one pod of a gang runs."""

    node: str
    indexes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """The pod goes here. `records` are the places of the whole gang, `place` is the pod's among them."""

    node: str
    indexes: tuple[int, ...]
    chain: CellTypeName
    group: str
    place: int
    records: tuple[Task, ...]
    placement: Placement = field(repr=False)
    names: tuple[NodeId, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempt:
    """These pods have to go first."""

    victims: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Nothing can be done now, and why."""

    why: str


class PodRefused(RotaError):
    """A pod asks for what can never be."""


Answer = Bind | Preempt | Wait


@dataclass(slots=True, eq=False)
class Gang:
    """A job of the engine, and its pods."""

    name: str
    job: JobId
    spec: PodSpec
    pods: dict[int, str] = field(default_factory=dict)
    """Bound pods by place."""
    waiting: dict[str, None] = field(default_factory=dict)
    """Pods of a gang that is still preempting."""
