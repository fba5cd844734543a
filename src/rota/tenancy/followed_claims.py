"""Accounts without guarantees: they only pass every claim on to a placement that depends on the other jobs."""

from __future__ import annotations

import math

from rota.core.engine.protocols import ClaimFollower
from rota.core.model.cells import CellPlan
from rota.core.model.placement import Placement
from rota.core.model.tenants import TenantPlan
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State


class FollowedClaims:
    """The accounts of tenancy `none` under such a placement."""

    def __init__(self, follower: ClaimFollower) -> None:
        self._follower = follower

    def adopt(self, state: State) -> None:
        """Pass on the claims of a state."""
        self._follower.adopt(state)

    def moved(self, live: LiveJob, before: Placement | None, after: Placement | None, *, undo: bool) -> None:
        """Pass on a claim that changed."""
        self._follower.moved(live, before, after, undo=undo)

    def node_turned(self, index: int, inventory: Inventory) -> None:
        """Nothing: claims stay as they are."""

    def promise(self, cells: CellPlan | None, tenants: TenantPlan | None, inventory: Inventory) -> None:
        """Nothing: no tenant has a guarantee."""

    def could_hold(self, live: LiveJob) -> bool:
        """Always: every job may use everything."""
        return True

    def keeps_promise(self, live: LiveJob) -> bool:
        """Always: nothing is promised."""
        return True

    @property
    def wakeup_s(self) -> float:
        """Never: only events make room."""
        return math.inf

    def wake(self) -> None:
        """Nothing is due."""
