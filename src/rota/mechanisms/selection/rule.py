"""What selection rules are asked and answer: which jobs lose their devices, and which get what is free."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from rota.core.engine.protocols import Allocator
from rota.core.messages.reasons import Reason
from rota.core.model.job import DeviceType
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.mechanisms.constrained_job import narrowed

_RELAXED_S = 1e300
"""A moment by which every locality that ever relaxes has done so."""


class DeviceRequest(NamedTuple):
    """A job that should have devices: of one type if the rule chose one, on one node if it chose that."""

    live: LiveJob
    kind: DeviceType | None = None
    node: int | None = None


@dataclass(slots=True)
class SelectionContext:
    """What a rule may read: the jobs that wait, hold or are leaving devices, and what is free."""

    now_s: float = 0.0
    waiting: dict[LiveJob, None] = field(default_factory=dict)
    holding: dict[LiveJob, None] = field(default_factory=dict)
    leaving: dict[LiveJob, None] = field(default_factory=dict)
    """Jobs that were preempted, until they have vacated their devices and wait again."""
    inventory: Inventory = field(default_factory=Inventory)
    allocator: Allocator | None = None
    _runs: dict[Hashable, bool] = field(default_factory=dict)

    def can_run(self, live: LiveJob, kind: DeviceType) -> bool:
        """Whether an empty cluster could place the whole job on devices of one type; cached by equivalence key."""
        assert self.allocator is not None
        key = (self.allocator.equivalence_key(live), kind, len(self.inventory.nodes))
        if key not in self._runs:
            empty = Inventory()
            for account in self.inventory.nodes:
                empty.add(account.node)
            self._runs[key] = not isinstance(self.allocator.offer(narrowed(live, kind), empty, _RELAXED_S), Reason)
        return self._runs[key]

    def in_order(self) -> list[LiveJob]:
        """Jobs that wait or hold devices, in order of submission."""
        return sorted([*self.waiting, *self.holding], key=lambda live: live.seq)

    def contending(self) -> list[LiveJob]:
        """Jobs that wait, hold or are leaving devices, in order of submission."""
        return sorted([*self.waiting, *self.holding, *self.leaving], key=lambda live: live.seq)


@dataclass(slots=True)
class Selection:
    """The jobs that get devices, in order: first the requests, then the backfill as far as it fits.

    `passed` holds the rule's own reasons why jobs were passed over.
    """

    requests: Sequence[DeviceRequest] = ()
    backfill: Sequence[DeviceRequest] = ()
    passed: Mapping[LiveJob, Reason] = field(default_factory=dict)


class SelectionRule(Protocol):
    """Chooses which jobs hold devices."""

    def expired(self, context: SelectionContext) -> list[LiveJob]:
        """The holders whose time slice or lease is over: their devices are offered again, to them as well."""

    def select(self, context: SelectionContext) -> Selection:
        """The jobs that get the devices that are free now."""

    def placed(self, context: SelectionContext) -> None:
        """Note that the selected jobs were placed as far as there was room."""

    def wakeup_s(self, context: SelectionContext) -> float:
        """When the next time slice or lease is over; infinity for never."""

    @property
    def memory(self) -> Any:
        """What it must remember between two selections, as a value that JSON can hold."""

    def recall(self, memory: Any) -> None:
        """Restore what `memory` returned."""


class DefaultSelectionRule:
    """What rules do unless they override it: preempt no job, wake at events only, remember nothing."""

    memory: Any = None

    def expired(self, context: SelectionContext) -> list[LiveJob]:
        """No holder loses its devices."""
        return []

    def placed(self, context: SelectionContext) -> None:
        """Nothing is noted."""

    def wakeup_s(self, context: SelectionContext) -> float:
        """Never, unless something happens."""
        return math.inf

    def recall(self, memory: Any) -> None:
        """There is nothing to restore."""
