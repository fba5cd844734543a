"""Cells as the engine's allocator: every tenant is a private cluster to whatever policy orders its jobs.

Cells choose devices themselves; the placement style has no say. The books follow each claim of the engine, in
drafts too, so an offer is always made from what would be true if the draft were carried out.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

from rota.core.cells import CellTypeName, PinnedId
from rota.core.cluster import Cluster
from rota.core.errors import RotaError
from rota.core.inventory import Inventory
from rota.core.live import LiveJob
from rota.core.model import OPPORTUNISTIC, WHOLE, DeviceType, Job
from rota.core.placement import Placement, Slot, device_indexes
from rota.core.policy import Offer, Placer
from rota.core.reasons import Reason, ReasonCode
from rota.core.state import State
from rota.tenancy.cells.books import Books
from rota.tenancy.cells.claims import Claim, Seat
from rota.tenancy.cells.groups import HIGHEST_PRIORITY
from rota.tenancy.cells.recovery import HeldDevice, recover, return_to
from rota.tenancy.cells.schedule import Obstacle, Plan, Refusal, Request, Scheduler, downgrade, upgrade
from rota.tenancy.cells.tree import Physical

PINNED_LABEL = "pinned_cell"
"""The label with which a job asks for a pinned cell."""
LAZY_LABEL = "lazy_preemption"
"""The label (`true`) of a job that would rather lose its guarantee than its devices."""

_REMEMBERED = 4096
"""Claims given up lately of which it is remembered how they were bound, in case a draft takes them back."""

_CODES = {
    Obstacle.QUOTA: ReasonCode.QUOTA_USED,
    Obstacle.SHAPE: ReasonCode.CELLS_SCATTERED,
    Obstacle.BAD: ReasonCode.BAD_HARDWARE,
    Obstacle.NOT_SUGGESTED: ReasonCode.BAD_HARDWARE,
    Obstacle.BUSY: ReasonCode.DEVICES_BUSY,
}


_OWN_OBSTACLES = frozenset({Obstacle.QUOTA, Obstacle.SHAPE})
"""Obstacles that lie in the tenant's own cells: whatever others do, they stay until those change."""


class CellAllocator:
    """Who may use what is decided by cells; see `rota.tenancy.cells`."""

    def __init__(self, placer: Placer, cluster: Cluster | None) -> None:
        if cluster is None or cluster.cells is None:
            raise RotaError(
                "tenancy 'cells' needs a cluster file with physicalCluster and virtualClusters (HiveD's form)"
            )
        self._cluster = cluster
        self._open()

    def _open(self) -> None:
        assert self._cluster.cells is not None
        self.books = Books(self._cluster.cells)
        self._scheduler = Scheduler(self.books)
        forest = self.books.forest
        index_by_id = {node.id: index for index, node in enumerate(self._cluster.nodes)}
        self._devices: list[list[Physical]] = [[] for _ in self._cluster.nodes]
        self._machines: list[str] = [""] * len(self._cluster.nodes)
        self._home: dict[Physical, tuple[int, int]] = {}
        for machine, cells in forest.cells_by_node.items():
            for at, cell in enumerate(cells):
                name = machine if not at else f"{machine}+{forest.chains[cell.chain].leaf_type}"
                node = index_by_id[name]  # type: ignore[index]  # a node's id is its name
                self._machines[node] = machine
        for device in forest.devices.values():
            cells = forest.cells_by_node[device.nodes[0]]
            at = next(at for at, cell in enumerate(cells) if cell.chain == device.chain)
            name = device.nodes[0] if not at else f"{device.nodes[0]}+{forest.chains[device.chain].leaf_type}"
            self._devices[index_by_id[name]].append(device)  # type: ignore[index]  # as above
        for node, devices in enumerate(self._devices):
            devices.sort(key=lambda device: device.index)
            for bit, device in enumerate(devices):
                self._home[device] = (node, bit)
        self._claims: dict[LiveJob, Claim] = {}
        self._live: dict[Claim, LiveJob] = {}
        self._left: dict[LiveJob, tuple[Placement, Claim]] = {}
        self._undone: dict[LiveJob, list[tuple[Claim, list[Seat]]]] = {}
        self._pending: dict[LiveJob, tuple[Placement, Plan]] = {}
        self._memo: dict[Hashable, tuple[int, tuple[int, ...], Plan | Refusal]] = {}
        self._stamp = 0

    # -- what the engine asks --------------------------------------------------------------------

    @property
    def ledger(self) -> CellAllocator:
        """These are the books."""
        return self

    def realm(self, live: LiveJob) -> Hashable:
        """Jobs with a guarantee contend within their tenant; those without, with each other."""
        return live.job.tenant if live.job.priority > OPPORTUNISTIC else None

    def shape(self, live: LiveJob) -> Hashable:
        """Jobs of a tenant that ask for the same with the same right are alike."""
        job = live.job
        return (job.tenant, job.priority, job.roles, job.labels)

    def stage(self, live: LiveJob, now_s: float) -> tuple[int, float]:
        """Wishes do not relax: the cells see to nearness."""
        return 0, math.inf

    def offer(self, live: LiveJob, inventory: Inventory, now_s: float) -> Placement | Reason:
        """Idle devices of the job's tenant, or why there are none."""
        odd = _odd_wish(live.job)
        if odd is not None:
            return Reason(code=ReasonCode.NEVER_FITS, need_milli=live.job.gpu_milli)
        if not live.job.gpu_milli:
            return self._anywhere(live.job, inventory)
        found = self._plan(live)
        if isinstance(found, Refusal):
            return self._reason(live.job, found)
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

    def displace(self, live: LiveJob, inventory: Inventory, now_s: float) -> Offer | None:
        """Devices of the tenant's own cells that others are on: work without a guarantee, or of lower priority."""
        if _odd_wish(live.job) is not None or not live.job.gpu_milli:
            return None
        found = self._plan(live)
        if isinstance(found, Refusal) or not found.victims:
            return None
        placement = self._placement(live.job, found)
        self._pending[live] = (placement, found)
        return Offer(placement=placement, victims=tuple(self._live[claim] for claim in found.victims))

    def may_displace(self, live: LiveJob, victim: LiveJob, now_s: float) -> bool:
        """A policy's own pre-emption stays within a tenant, and among those without a guarantee."""
        claim = self._claims.get(victim)
        if claim is None:
            return False
        if live.job.priority == OPPORTUNISTIC:
            return not claim.is_guaranteed
        return claim.is_guaranteed and claim.tenant == live.job.tenant and claim.priority <= live.job.priority

    def missing_milli(self, live: LiveJob, inventory: Inventory) -> int:
        """What its tenant's cells lack by mere count, where that is known already; nought means: ask for an offer."""
        found = self._known_refusal(live)
        if found is None or found.obstacle is not Obstacle.QUOTA:
            return 0
        return (found.need - found.room) * WHOLE

    def yields_milli(self, live: LiveJob, victim: LiveJob, inventory: Inventory) -> int:
        """The victim's devices, if the job may have them."""
        return victim.gpu_milli if self.may_displace(live, victim, 0.0) else 0

    def short_milli(self, live: LiveJob, inventory: Inventory) -> int:
        """What the tenant's own cells lack; without a guarantee, what the whole cluster lacks."""
        if not self._is_known(live.job):
            return live.job.gpu_milli
        request = self._request(live.job)
        return max(request.devices - self._scheduler.room(request), 0) * WHOLE

    def returns_milli(self, live: LiveJob, holder: LiveJob, inventory: Inventory) -> int:
        """What a holder has of the tenant's cells where the job may go, unless its priority gives it to the job now."""
        claim = self._claims.get(holder)
        if claim is None or not claim.seats or not self._is_known(live.job):
            return 0
        chains = self._scheduler.chains(self._request(live.job))
        leaf, virtual = claim.seats[0]
        if live.job.priority == OPPORTUNISTIC:
            return holder.gpu_milli if leaf.chain in chains else 0
        if virtual is None or claim.tenant != live.job.tenant or claim.priority < live.job.priority:
            return 0
        where = claim.pinned if virtual.root.is_pinned else leaf.chain
        return holder.gpu_milli if where in chains else 0

    # -- books -----------------------------------------------------------------------------------

    def adopt(self, state: State) -> None:
        """Open the books anew and enter what jobs hold."""
        self._open()
        for index, books in enumerate(state.inventory.nodes[: len(self._machines)]):
            if not books.up or books.drained:
                self.books.set_bad(self._machines[index])
        for live in state.jobs.values():
            if live.placement is not None:
                self.moved(live, None, live.placement, undo=False)

    def moved(self, live: LiveJob, before: Placement | None, after: Placement | None, *, undo: bool) -> None:
        """A job's claim changed."""
        self._stamp += 1
        if before is not None:
            self._leave(live, before, undo)
        if after is not None:
            self._enter(live, after)
        self._pending.pop(live, None)

    def node_turned(self, index: int, inventory: Inventory) -> None:
        """A node came to be usable, or ceased to be."""
        if index >= len(self._machines):
            return
        self._stamp += 1
        machine = self._machines[index]
        twins = [inventory.nodes[at] for at, name in enumerate(self._machines) if name == machine]
        if all(books.up and not books.drained for books in twins):
            self.books.set_healthy(machine)
        else:
            self.books.set_bad(machine)

    def _leave(self, live: LiveJob, before: Placement, undo: bool) -> None:
        claim = self._claims.pop(live, None)
        if claim is None:
            return
        del self._live[claim]
        self.books.vacate(claim, claim.seats)
        downgraded = self._undone.pop(live, [])
        if undo:
            for other, seats in reversed(downgraded):
                if other in self._live:
                    upgrade(self.books, other, seats)
        self._left[live] = (before, claim)
        if len(self._left) > _REMEMBERED:
            del self._left[next(iter(self._left))]

    def _enter(self, live: LiveJob, after: Placement) -> None:
        placement, claim = self._left.pop(live, ((), None))
        if claim is None or placement != after or not return_to(self.books, claim, claim.seats):
            claim = self._claim(live, after)
        self._claims[live] = claim
        self._live[claim] = live

    def _claim(self, live: LiveJob, after: Placement) -> Claim:
        job = live.job
        placement, plan = self._pending.get(live, ((), None))
        claim = Claim(
            name=job.id,
            tenant=job.tenant,
            priority=min(job.priority, HIGHEST_PRIORITY),
            lazy=_label(job, LAZY_LABEL) == "true",
            pinned=_pinned(job),
        )
        if plan is not None and placement == after and _is_vacant(plan.seats):
            self._undone[live] = [
                (other, downgrade(self.books, other, job.id)) for other in plan.downgraded if other in self._live
            ]
            claim.seats = plan.seats
            self.books.occupy(claim, claim.seats)
        else:
            self._recover(claim, after)
        return claim

    def _recover(self, claim: Claim, after: Placement) -> None:
        """Devices that were not offered by us: the tenant's if they fit any of its cells, the largest first."""
        leaves = [self._devices[slot.node][bit] for slot in after for bit in device_indexes(slot.devices)]
        forest = self.books.forest
        estate = forest.estates.get(claim.tenant)
        types: list[CellTypeName] = []
        if estate is not None and leaves:
            roots = [*estate.roots.get(leaves[0].chain, ()), *estate.pinned.values()]
            types = list(dict.fromkeys(root.type for root in sorted(roots, key=lambda root: -root.level)))
        for kind in [*types, None]:
            held = [
                HeldDevice(chain=leaf.chain, node=leaf.nodes[0], index=leaf.index, root_type=kind) for leaf in leaves
            ]
            recover(self.books, claim, held)
            if claim.is_guaranteed or claim.priority == OPPORTUNISTIC or kind is None:
                return
            self.books.vacate(claim, claim.seats)
            claim.seats = []
            claim.downgraded_by = None

    # -- plans -----------------------------------------------------------------------------------

    def _is_known(self, job: Job) -> bool:
        """Whether the tenant exists, and has the pinned cell of the right type; without a guarantee none is needed."""
        if job.priority == OPPORTUNISTIC:
            return True
        forest = self.books.forest
        estate = forest.estates.get(job.tenant)
        pinned = _pinned(job)
        if estate is None or pinned is None:
            return estate is not None
        root = estate.pinned.get(pinned)
        if root is None:
            return False
        kind = DeviceType(forest.chains[root.chain].leaf_type)
        return all(not role.device_types or kind in role.device_types for role in job.roles)

    def _plan(self, live: LiveJob) -> Plan | Refusal:
        job = live.job
        if not self._is_known(job):
            return Refusal(obstacle=Obstacle.QUOTA, need=job.gpu_milli // WHOLE, room=0, owned=0)
        shape = self.shape(live)
        stamp, _, found = self._memo.get(shape, (-1, (), None))
        if found is None or stamp != self._stamp:
            found = self._known_refusal(live)
        if found is None:
            found = self._scheduler.plan(self._request(job))
            self._memo[shape] = (self._stamp, self._version(job), found)
        return found

    def _known_refusal(self, live: LiveJob) -> Refusal | None:
        """What was found before of a job like this one, if nothing has happened that could change it."""
        _, version, found = self._memo.get(self.shape(live), (-1, (), None))
        if isinstance(found, Refusal) and found.obstacle in _OWN_OBSTACLES and version == self._version(live.job):
            return found
        return None

    def _version(self, job: Job) -> tuple[int, ...]:
        """Changes with everything on which it depends whether the tenant's own cells are enough."""
        if job.priority == OPPORTUNISTIC:
            return (self._stamp,)
        version = self.books.version
        return tuple(version.get((job.tenant, chain), 0) for chain in self.books.forest.chains)

    def _request(self, job: Job) -> Request:
        sizes = sorted(role.device_milli // WHOLE for role in job.roles for _ in range(role.count) if role.device_milli)
        types = next((role.device_types for role in job.roles if role.device_types), ())
        return Request(
            name=job.id,
            tenant=job.tenant,
            priority=min(job.priority, HIGHEST_PRIORITY),
            sizes=tuple(sizes),
            leaf_types=tuple(CellTypeName(kind) for kind in types),
            pinned=_pinned(job),
            lazy=_label(job, LAZY_LABEL) == "true",
        )

    def _placement(self, job: Job, plan: Plan) -> Placement:
        """A plan as slots; tasks of one size are interchangeable, so they fill the roles of that size in order."""
        roles = sorted(
            (role.device_milli // WHOLE, index) for index, role in enumerate(job.roles) for _ in range(role.count)
        )
        bare = [index for size, index in roles if not size]
        slots: dict[tuple[int, int], list[int]] = {}
        for (_, role), task in zip([entry for entry in roles if entry[0]], plan.tasks, strict=True):
            homes = [self._home[leaf] for leaf, _ in task]
            slot = slots.setdefault((homes[0][0], role), [0, 0])
            slot[0] |= sum(1 << bit for _, bit in homes)
            slot[1] += 1
        first = next(iter(slots))[0]
        for index in bare:
            slots.setdefault((first, index), [0, 0])[1] += 1
        return tuple(Slot(node, mask, tasks, role) for (node, role), (mask, tasks) in slots.items())

    def _anywhere(self, job: Job, inventory: Inventory) -> Placement | Reason:
        """Tasks without devices go to the first node that is up."""
        for index, books in enumerate(inventory.nodes):
            if books.usable:
                return tuple(Slot(index, 0, role.count, at) for at, role in enumerate(job.roles))
        return Reason(code=ReasonCode.NODES_DOWN)

    def _reason(self, job: Job, refusal: Refusal) -> Reason:
        code = _CODES[refusal.obstacle]
        if code is ReasonCode.QUOTA_USED and refusal.owned < refusal.need:
            code = ReasonCode.QUOTA_TOO_SMALL
        return Reason(
            code=code,
            need_milli=refusal.need * WHOLE,
            free_milli=refusal.room * WHOLE,
            owned_milli=refusal.owned * WHOLE,
            tenant=job.tenant,
        )


def _is_vacant(seats: Sequence[Seat]) -> bool:
    """Whether nobody holds these devices, nor the virtual ones that they are to stand for."""
    return all(leaf.claim is None and (virtual is None or not virtual.used) for leaf, virtual in seats)


def _label(job: Job, name: str) -> str | None:
    return next((value for key, value in job.labels if key == name), None)


def _pinned(job: Job) -> PinnedId | None:
    label = _label(job, PINNED_LABEL)
    return PinnedId(label) if label and job.priority > OPPORTUNISTIC else None


def _odd_wish(job: Job) -> str | None:
    """What cells can't give: parts of devices, whole nodes, types by role."""
    if any(role.is_fraction for role in job.roles):
        return "gpus"
    if job.exclusive:
        return "exclusive"
    types = {role.device_types for role in job.roles if role.device_milli and role.device_types}
    return "gpu" if len(types) > 1 else None
