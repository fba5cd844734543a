"""What a job is short of under tenancy `cells`: to start now, and to start when holders end by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.core.model.job import OPPORTUNISTIC, WHOLE
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.tenancy.cells.schedule import Obstacle

if TYPE_CHECKING:
    from rota.tenancy.cells.allocator import CellAllocator


class CellShortage:
    """What a tenant's cells lack by count for a job to start now."""

    def __init__(self, allocator: CellAllocator) -> None:
        self._allocator = allocator

    def milli(self, live: LiveJob, inventory: Inventory) -> int:
        """What is known to be missing from an earlier refusal; 0 means that an offer has to be asked for."""
        found = self._allocator.known_refusal(live)
        if found is None or found.obstacle is not Obstacle.QUOTA:
            return 0
        return (found.need - found.room) * WHOLE

    def freed_by(self, holder: LiveJob, live: LiveJob, inventory: Inventory) -> int:
        """The holder's devices, if the policy may preempt it for the job."""
        return holder.gpu_milli if self._allocator.may_displace(live, holder, 0.0) else 0


class CellReservation:
    """What has to come back to a tenant's cells for a job; without a guarantee, to the whole cluster."""

    def __init__(self, allocator: CellAllocator) -> None:
        self._allocator = allocator

    def milli(self, live: LiveJob, inventory: Inventory) -> int:
        """What the tenant's own cells lack; without a guarantee, what the whole cluster lacks."""
        if not self._allocator.is_known(live):
            return live.job.gpu_milli
        request = self._allocator.request(live)
        return max(request.devices - self._allocator.scheduler.room(request), 0) * WHOLE

    def freed_by(self, holder: LiveJob, live: LiveJob, inventory: Inventory) -> int:
        """What a holder has of the tenant's cells where the job may go, unless the job's priority gives it that now."""
        allocator = self._allocator
        claim = allocator.claim_of(holder)
        if claim is None or not claim.seats or not allocator.is_known(live):
            return 0
        chains = allocator.scheduler.chains(allocator.request(live))
        leaf, virtual = claim.seats[0]
        if live.standing == OPPORTUNISTIC:
            return holder.gpu_milli if leaf.chain in chains else 0
        if virtual is None or claim.tenant != live.job.tenant or claim.priority < live.job.priority:
            return 0
        where = claim.pinned if virtual.root.is_pinned else leaf.chain
        return holder.gpu_milli if where in chains else 0
