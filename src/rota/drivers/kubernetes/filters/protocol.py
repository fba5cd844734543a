"""The one protocol of filters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from rota.drivers.kubernetes.filters.facts import NodeFacts, PodFacts

if TYPE_CHECKING:
    from rota.drivers.kubernetes.filters.world import World

NodeTest = Callable[[NodeFacts], str | None]
"""Why a node does not suit a pod, in words; None if it does."""


class Filter(Protocol):
    """One kind of constraint."""

    def __call__(self, pod: PodFacts, world: World) -> NodeTest | None:
        """Return the test of a node for a pod; None if no node could fail it. A test holds until the world changes."""
