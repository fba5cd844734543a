"""Cells as the engine's allocator: every tenant is a private cluster to whatever policy orders its jobs.

Cells choose devices themselves; the placement style does not matter. The accounts follow each claim of the engine, in
drafts too, so an offer is made from what holds if the draft is carried out.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

from rota.core.engine.protocols import Offer, Placer
from rota.core.errors import InvariantBroken, RotaError
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.cells import CellPlan, CellTypeName
from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import OPPORTUNISTIC, WHOLE, DeviceType, Job
from rota.core.model.placement import Placement, Slot
from rota.core.model.tenants import TenantPlan
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.tenancy.cells.accounts import CellAccounts
from rota.tenancy.cells.claims import HIGHEST_PRIORITY, Claim, Seat
from rota.tenancy.cells.job_requests import is_lazy, not_owned, pinned_cell, pinned_without_guarantee, unsupported
from rota.tenancy.cells.reasons import reason_for
from rota.tenancy.cells.recovery import HeldDevice, recover, return_to
from rota.tenancy.cells.schedule import GangPlan, GangRequest, Obstacle, Refusal, Scheduler, downgrade, upgrade
from rota.tenancy.cells.shortage import CellReservation, CellShortage
from rota.tenancy.cells.sites import Sites, is_sound

_REMEMBERED = 4096
"""How many released claims are remembered with their bindings, in case a draft is undone."""

_OWN_OBSTACLES = frozenset({Obstacle.QUOTA, Obstacle.SHAPE})
"""Obstacles within the tenant's own cells: they stay until those change."""


class CellAllocator:
    """Decides by cells which devices a job may use; see `rota.tenancy.cells`."""

    def __init__(self, placer: Placer, cluster: Cluster | None) -> None:
        if cluster is None or cluster.cells is None:
            raise RotaError(
                "tenancy 'cells' needs a cluster file with physicalCluster and virtualClusters (HiveD's form)"
            )
        self._open(cluster.cells, cluster.nodes)
        self._shortage = CellShortage(self)
        self._reservation = CellReservation(self)

    def _open(self, plan: CellPlan, nodes: Sequence[Node]) -> None:
        """Start with empty accounts; a plan that does not fit the nodes is refused and changes nothing."""
        accounts = CellAccounts(plan)
        self.sites = Sites(accounts.forest, nodes)
        self._nodes = list(nodes)
        self.accounts = accounts
        self.scheduler = Scheduler(accounts)
        self._is_fresh = True
        self._claims: dict[LiveJob, Claim] = {}
        self._live: dict[Claim, LiveJob] = {}
        self._left: dict[LiveJob, tuple[Placement, Claim]] = {}
        self._undone: dict[LiveJob, list[tuple[Claim, list[Seat]]]] = {}
        self._pending: dict[LiveJob, tuple[Placement, GangPlan]] = {}
        self._memo: dict[Hashable, tuple[int, tuple[int, ...], GangPlan | Refusal]] = {}
        self._stamp = 0

    def refuse(self, job: Job) -> str | None:
        """What cells don't support, or the job's tenant does not own."""
        if job.priority > OPPORTUNISTIC and job.gpu_milli:
            return unsupported(job) or not_owned(job, self.accounts.forest)
        return unsupported(job) or pinned_without_guarantee(job)

    # -- what the engine asks --------------------------------------------------------------------

    @property
    def ledger(self) -> CellAllocator:
        """The accounts, kept by the allocator itself."""
        return self

    @property
    def has_guarantees(self) -> bool:
        """Tenants have cells."""
        return True

    def quota_scope(self, live: LiveJob) -> Hashable:
        """Jobs with a guarantee contend within their tenant; those without contend with each other."""
        return live.job.tenant if live.standing > OPPORTUNISTIC else None

    def equivalence_key(self, live: LiveJob) -> Hashable:
        """Jobs of a tenant with equal requests and priorities are interchangeable."""
        job = live.job
        return (job.tenant, live.standing, job.roles, job.labels, job.preempts)

    def stage(self, live: LiveJob, now_s: float) -> tuple[int, float]:
        """Nothing relaxes: cells are close together by construction."""
        return 0, math.inf

    def offer(self, live: LiveJob, inventory: Inventory, now_s: float) -> Placement | Reason:
        """Idle devices of the job's tenant, or why there are none."""
        if unsupported(live.job) is not None:
            return Reason(code=ReasonCode.NEVER_FITS, need_milli=live.job.gpu_milli)
        if not live.job.gpu_milli:
            return self._anywhere(live.job, inventory)
        found = self._plan(live, inventory)
        if isinstance(found, Refusal):
            return reason_for(found, self.request(live), self.accounts.forest)
        if found.victims:
            return Reason(
                code=ReasonCode.CELLS_LENT,
                need_milli=live.job.gpu_milli,
                tenant=live.job.tenant,
                job=self._live[found.victims[0]].job.id,
            )
        placement = self._placement(live.job, found)
        self._pending[live] = (placement, found)
        return placement

    def place(self, live: LiveJob, inventory: Inventory, now_s: float) -> Placement | None:
        """What is offered, without a reason if nothing is."""
        answer = self.offer(live, inventory, now_s)
        return None if isinstance(answer, Reason) else answer

    def reason(self, live: LiveJob, inventory: Inventory, now_s: float) -> Reason:
        """Not asked, since no refusal is kept."""
        raise InvariantBroken(f"job {live.job.id}: its refusal was kept")

    def displace(self, live: LiveJob, inventory: Inventory, now_s: float) -> Offer | None:
        """Devices of the tenant's own cells that are held without a guarantee or at a lower priority."""
        if unsupported(live.job) is not None or not live.job.gpu_milli:
            return None
        found = self._plan(live, inventory)
        if isinstance(found, Refusal) or not found.victims:
            return None
        placement = self._placement(live.job, found)
        self._pending[live] = (placement, found)
        return Offer(placement=placement, victims=tuple(self._live[claim] for claim in found.victims))

    def keeps_refusal(self, job: Job) -> bool:
        """No: what a job may use follows from accounts that change without any device."""
        return False

    def may_displace(self, live: LiveJob, victim: LiveJob, now_s: float) -> bool:
        """A policy's own preemption stays within a tenant, and among those without a guarantee."""
        claim = self._claims.get(victim)
        if claim is None:
            return False
        if live.standing == OPPORTUNISTIC:
            return not claim.is_guaranteed
        return claim.is_guaranteed and claim.tenant == live.job.tenant and claim.priority <= live.job.priority

    @property
    def shortage(self) -> CellShortage:
        """What the tenant's cells lack by count, as far as an earlier refusal tells."""
        return self._shortage

    @property
    def reservation_shortage(self) -> CellReservation:
        """What has to come back to the tenant's cells."""
        return self._reservation

    # -- accounts -----------------------------------------------------------------------------------

    def promise(self, cells: CellPlan | None, tenants: TenantPlan | None, inventory: Inventory) -> None:
        """Replace the cells, physical ones or tenants'."""
        if cells is None:
            raise RotaError(
                "tenancy 'cells' needs physicalCluster and virtualClusters; the new guarantees have neither"
            )
        self._open(cells, [account.node for account in inventory.nodes])

    def could_hold(self, live: LiveJob) -> bool:
        """Whether the tenant's cells suffice if all of them are free; called while the accounts are empty."""
        if unsupported(live.job) is not None or not live.job.gpu_milli:
            return True
        if not self.is_known(live, live.job.priority):
            return False
        return not isinstance(self.scheduler.plan(self.request(live, live.job.priority)), Refusal)

    def keeps_promise(self, live: LiveJob) -> bool:
        """Whether its tenant's cells hold it, or could."""
        claim = self._claims.get(live)
        if live.job.priority == OPPORTUNISTIC:
            return True
        return not live.demoted and (claim is None or claim.is_guaranteed)

    @property
    def wakeup_s(self) -> float:
        """Never: nothing changes with time alone."""
        return math.inf

    def wake(self) -> None:
        """Not needed."""

    def adopt(self, state: State) -> None:
        """Rebuild the accounts from what jobs hold."""
        nodes = [account.node for account in state.inventory.nodes]
        if not self._is_fresh or nodes != self._nodes:
            self._open(self.accounts.forest.plan, nodes)
        for index, account in enumerate(state.inventory.nodes):
            if not is_sound(account):
                self._turn(index, state.inventory)
        for live in state.jobs.values():
            if live.placement is not None:
                self.moved(live, None, live.placement, undo=False)

    def moved(self, live: LiveJob, before: Placement | None, after: Placement | None, *, undo: bool) -> None:
        """A job's claim changed."""
        self._stamp += 1
        self._is_fresh = False
        if before is not None:
            self._leave(live, before, undo)
        if after is not None:
            self._enter(live, after)
        self._pending.pop(live, None)

    def node_turned(self, index: int, inventory: Inventory) -> None:
        """A node became usable or unusable. One without cells does not matter."""
        self._stamp += 1
        self._is_fresh = False
        self._turn(index, inventory)

    def _turn(self, index: int, inventory: Inventory) -> None:
        machine = self.sites.machine(index)
        if machine is None:
            return
        if all(is_sound(inventory.nodes[at]) for at in self.sites.nodes_of(machine)):
            self.accounts.set_healthy(machine)
        else:
            self.accounts.set_bad(machine)

    def _leave(self, live: LiveJob, before: Placement, undo: bool) -> None:
        claim = self._claims.pop(live, None)
        if claim is None:
            return
        del self._live[claim]
        self.accounts.vacate(claim, claim.seats)
        downgraded = self._undone.pop(live, [])
        if undo:
            for other, seats in reversed(downgraded):
                if other in self._live:
                    upgrade(self.accounts, other, seats)
        self._left[live] = (before, claim)
        if len(self._left) > _REMEMBERED:
            del self._left[next(iter(self._left))]

    def _enter(self, live: LiveJob, after: Placement) -> None:
        placement, claim = self._left.pop(live, ((), None))
        if claim is None or placement != after or not return_to(self.accounts, claim, claim.seats):
            claim = self._claim(live, after)
        self._claims[live] = claim
        self._live[claim] = live

    def _claim(self, live: LiveJob, after: Placement) -> Claim:
        job = live.job
        placement, plan = self._pending.get(live, ((), None))
        claim = Claim(
            name=job.id,
            tenant=job.tenant,
            priority=min(live.standing, HIGHEST_PRIORITY),
            lazy=is_lazy(job),
            pinned=pinned_cell(job),
        )
        if plan is not None and placement == after and _is_vacant(plan.seats):
            self._undone[live] = [
                (other, downgrade(self.accounts, other, job.id)) for other in plan.downgraded if other in self._live
            ]
            claim.seats = plan.seats
            self.accounts.occupy(claim, claim.seats)
        else:
            self._recover(claim, after)
        return claim

    def _recover(self, claim: Claim, after: Placement) -> None:
        """Claim devices that were not offered here: as the tenant's own if they fit its cells, largest first."""
        leaves = self.sites.devices(after)
        forest = self.accounts.forest
        estate = forest.estates.get(claim.tenant)
        types: list[CellTypeName] = []
        if estate is not None and leaves:
            roots = [*estate.roots.get(leaves[0].chain, ()), *estate.pinned.values()]
            types = list(dict.fromkeys(root.type for root in sorted(roots, key=lambda root: -root.level)))
        for kind in [*types, None]:
            held = [
                HeldDevice(chain=leaf.chain, node=leaf.nodes[0], index=leaf.index, root_type=kind) for leaf in leaves
            ]
            recover(self.accounts, claim, held)
            if claim.is_guaranteed or claim.priority == OPPORTUNISTIC or kind is None:
                return
            self.accounts.vacate(claim, claim.seats)
            claim.seats = []
            claim.downgraded_by = None

    # -- plans -----------------------------------------------------------------------------------

    def is_known(self, live: LiveJob, priority: int | None = None) -> bool:
        """Whether the tenant exists, and has the pinned cell of the right type; without a guarantee none is needed."""
        job = live.job
        if (live.standing if priority is None else priority) == OPPORTUNISTIC:
            return True
        forest = self.accounts.forest
        estate = forest.estates.get(job.tenant)
        pinned = pinned_cell(job)
        if estate is None or pinned is None:
            return estate is not None
        root = estate.pinned.get(pinned)
        if root is None:
            return False
        kind = DeviceType(forest.chains[root.chain].leaf_type)
        return all(not role.device_types or kind in role.device_types for role in job.roles)

    def _plan(self, live: LiveJob, inventory: Inventory) -> GangPlan | Refusal:
        job = live.job
        if not self.is_known(live):
            return Refusal(obstacle=Obstacle.QUOTA, need=job.gpu_milli // WHOLE, room=0, owned=0)
        shape = self.equivalence_key(live)
        stamp, _, found = self._memo.get(shape, (-1, (), None))
        if found is None or stamp != self._stamp:
            found = self.known_refusal(live)
        if found is None:
            found = self.scheduler.plan(self.request(live), self._allowed(live.job, inventory), spares=True)
            self._memo[shape] = (self._stamp, self._version(live), found)
        return found

    def _allowed(self, job: Job, inventory: Inventory) -> set[str] | None:
        """The machines that all roles of a job may use by labels, taints and trust; None if nothing restricts it."""
        fits = ~0
        for role in job.roles:
            fits &= inventory.matching(role)
        if fits == ~0:
            return None
        machines = (self.sites.machine(index) for index in range(len(inventory.nodes)) if fits >> index & 1)
        return {machine for machine in machines if machine is not None}

    def known_refusal(self, live: LiveJob) -> Refusal | None:
        """What was found before of a job like this one, if nothing has happened that could change it."""
        _, version, found = self._memo.get(self.equivalence_key(live), (-1, (), None))
        if isinstance(found, Refusal) and found.obstacle in _OWN_OBSTACLES and version == self._version(live):
            return found
        return None

    def _version(self, live: LiveJob) -> tuple[int, ...]:
        """Changes with everything on which it depends whether the tenant's own cells are enough."""
        if live.standing == OPPORTUNISTIC:
            return (self._stamp,)
        version = self.accounts.version
        return tuple(version.get((live.job.tenant, chain), 0) for chain in self.accounts.forest.chains)

    def claim_of(self, live: LiveJob) -> Claim | None:
        """The cells that a job has, if it has any."""
        return self._claims.get(live)

    def request(self, live: LiveJob, priority: int | None = None) -> GangRequest:
        """What a job asks of the cells, with the priority that it has or with another."""
        job = live.job
        standing = live.standing if priority is None else priority
        sizes = sorted(role.device_milli // WHOLE for role in job.roles for _ in range(role.count) if role.device_milli)
        types = next((role.device_types for role in job.roles if role.device_types), ())
        return GangRequest(
            name=job.id,
            tenant=job.tenant,
            priority=min(standing, HIGHEST_PRIORITY),
            sizes=tuple(sizes),
            leaf_types=tuple(CellTypeName(kind) for kind in types),
            pinned=pinned_cell(job) if standing > OPPORTUNISTIC else None,
            lazy=is_lazy(job),
        )

    def _placement(self, job: Job, plan: GangPlan) -> Placement:
        """A plan as slots; tasks of one size are interchangeable, so they fill the roles of that size in order."""
        roles = sorted(
            (role.device_milli // WHOLE, index) for index, role in enumerate(job.roles) for _ in range(role.count)
        )
        bare = [index for size, index in roles if not size]
        slots: dict[tuple[int, int], list[int]] = {}
        for (_, role), task in zip([entry for entry in roles if entry[0]], plan.tasks, strict=True):
            homes = [self.sites.home(leaf) for leaf, _ in task]
            slot = slots.setdefault((homes[0][0], role), [0, 0])
            slot[0] |= sum(1 << bit for _, bit in homes)
            slot[1] += 1
        first = next(iter(slots))[0]
        for index in bare:
            slots.setdefault((first, index), [0, 0])[1] += 1
        return tuple(Slot(node, mask, tasks, role) for (node, role), (mask, tasks) in slots.items())

    def _anywhere(self, job: Job, inventory: Inventory) -> Placement | Reason:
        """Tasks without devices go to the first node that is up."""
        for index, account in enumerate(inventory.nodes):
            if account.usable:
                return tuple(Slot(index, 0, role.count, at) for at, role in enumerate(job.roles))
        return Reason(code=ReasonCode.NODES_DOWN)


def _is_vacant(seats: Sequence[Seat]) -> bool:
    """Whether these devices and the virtual ones that they stand for are free."""
    return all(leaf.claim is None and (virtual is None or not virtual.used) for leaf, virtual in seats)
