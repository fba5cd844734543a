"""Tenancy `none`: every job may use everything; only placement decides."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from functools import lru_cache

from rota.core.engine.protocols import Ledger, Offer, Placer
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import WHOLE, DeviceType, Job, Locality, Role
from rota.core.model.placement import Placement
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.core.state.node_accounts import Pool
from rota.tenancy.followed_claims import FollowedClaims


class CountShortage:
    """What the whole cluster lacks by count."""

    def milli(self, live: LiveJob, inventory: Inventory) -> int:
        """Devices short of, for the role that is shortest or for all roles together."""
        job = live.job
        roles = job.roles
        if len(roles) == 1 and job.elastic is None:
            return _short_of(roles[0], job.gpu_milli, inventory)
        return _lacks(job, inventory, _free)

    def freed_by(self, holder: LiveJob, live: LiveJob, inventory: Inventory) -> int:
        """Devices that the job can use: whole ones for fractions, all of a node that the holder has to itself."""
        wanted = None if len(inventory.pools) == 1 else _types_wanted(live.job)
        devices = 0
        for slot in holder.placement or ():
            node = inventory.nodes[slot.node].node
            if wanted is None or node.device_type in wanted:
                devices += node.devices if holder.job.exclusive else slot.devices.bit_count()
        return devices * WHOLE


class OpenAllocator:
    """The whole cluster for all jobs."""

    def __init__(self, placer: Placer) -> None:
        self._placer = placer
        self.shortage = CountShortage()
        self.reservation_shortage = self.shortage
        self._ledger: Ledger | None = None if placer.neighbours is None else FollowedClaims(placer.neighbours)

    @property
    def ledger(self) -> Ledger | None:
        """None beyond the engine's, unless the placement depends on which jobs hold what."""
        return self._ledger

    @property
    def has_guarantees(self) -> bool:
        """No tenant has any."""
        return False

    def refuse(self, job: Job) -> str | None:
        """Nothing; what does not fit now may fit when nodes join."""
        return None

    def quota_scope(self, live: LiveJob) -> Hashable:
        """All jobs contend with each other."""
        return None

    def displace(self, live: LiveJob, inventory: Inventory, now_s: float) -> Offer | None:
        """None: no job has a guarantee; only the policy's order counts."""
        return None

    def may_displace(self, live: LiveJob, victim: LiveJob, now_s: float) -> bool:
        """Always: the policy's order decides."""
        return True

    def keeps_refusal(self, job: Job) -> bool:
        """Whether the placement never finds devices for a refused job unless a task of it fits on a node again."""
        return self._placer.keeps_refusal(job)

    def equivalence_key(self, live: LiveJob) -> Hashable:
        """Jobs that are placed in the same way are interchangeable."""
        alike = self._placer.alike(live.job)
        return alike if live.job.preempts else (alike, False)

    def stage(self, live: LiveJob, now_s: float) -> tuple[int, float]:
        """Which of its required localities a job is at, and when it relaxes to the next."""
        step, _, until_s = self._step(live, now_s)
        return step, until_s

    def _step(self, live: LiveJob, now_s: float) -> tuple[int, Locality | None, float]:
        """The number of the required locality that holds now, the locality, and until when."""
        ladder = self._placer.ladder(live.job, live.ran_s)
        for step, (waited_s, locality) in enumerate(ladder):
            until_s = live.since_s + waited_s
            if now_s < until_s:
                return step, locality, until_s
        return len(ladder), None, math.inf

    def offer(self, live: LiveJob, inventory: Inventory, now_s: float) -> Placement | Reason:
        """Free devices for the job, or why there are none."""
        job = live.job
        if self.shortage.milli(live, inventory):
            return self._count_reason(job, inventory)
        _, insist, _ = self._step(live, now_s)
        placement = self._placer.find(inventory, job, insist)
        return self._reason(live, inventory, insist) if placement is None else placement

    def place(self, live: LiveJob, inventory: Inventory, now_s: float) -> Placement | None:
        """Free devices for the job, if there are any."""
        if self.shortage.milli(live, inventory):
            return None
        return self._placer.find(inventory, live.job, self._step(live, now_s)[1])

    def reason(self, live: LiveJob, inventory: Inventory, now_s: float) -> Reason:
        """Why the job finds no devices, without a search for them."""
        if self.shortage.milli(live, inventory):
            return self._count_reason(live.job, inventory)
        return self._reason(live, inventory, self._step(live, now_s)[1])

    def _reason(self, live: LiveJob, inventory: Inventory, insist: Locality | None) -> Reason:
        """Why the job finds no place though the number of free devices suffices."""
        job = live.job
        if (never := _never(job, inventory)) is not None:
            return never
        if not _has_match(job, inventory):
            return Reason(code=ReasonCode.NO_MATCHING_NODE, need_milli=job.gpu_milli)
        code = ReasonCode.FRAGMENTED if insist is not None or _scatters(job) else ReasonCode.HOST_BUSY
        until_s = math.inf if insist is None else live.since_s + self._placer.ladder(job, live.ran_s)[-1][0]
        return _shortage(code, job.gpu_milli, _free_milli(job, inventory), until_s if until_s != math.inf else None)

    def _count_reason(self, job: Job, inventory: Inventory) -> Reason:
        missing = _missing_type(job, inventory)
        if missing is not None:
            return Reason(code=ReasonCode.NO_SUCH_TYPE, need_milli=job.gpu_milli, device_type=missing)
        if (never := _never(job, inventory)) is not None:
            return never
        code = ReasonCode.DEVICES_BUSY
        if _lacks(job, inventory, lambda pool, fractions: pool.usable * WHOLE):
            code = ReasonCode.NODES_DOWN
            if _lacks(job, inventory, lambda pool, fractions: pool.devices * WHOLE):
                code = ReasonCode.NEVER_FITS
        return _shortage(code, job.gpu_milli, _free_milli(job, inventory), None)


@lru_cache(4096)
def _shortage(code: ReasonCode, need_milli: int, free_milli: int, until_s: float | None) -> Reason:
    """A reason that many jobs have: it is made once, since that costs as much as finding it."""
    return Reason(code=code, need_milli=need_milli, free_milli=free_milli, until_s=until_s)


def _has_match(job: Job, inventory: Inventory) -> bool:
    """Whether each role has a usable node whose labels and taints suit it."""
    return all(
        any(account.usable and inventory.matching(role) >> index & 1 for index, account in enumerate(inventory.nodes))
        for role in job.roles
    )


def _never(job: Job, inventory: Inventory) -> Reason | None:
    """Why a single task of a job fits on no node, however empty; None if all tasks fit one."""
    largest = _too_small(job, inventory)
    if largest is not None:
        return Reason(code=ReasonCode.NEVER_FITS, need_milli=job.gpu_milli, owned_milli=largest * WHOLE)
    if all(_has_memory(role, inventory) for role in job.roles):
        return None
    return Reason(code=ReasonCode.MEMORY_TOO_SMALL, need_milli=job.gpu_milli)


def _has_memory(role: Role, inventory: Inventory) -> bool:
    """Whether there is a device that a role may use with the memory that a task asks for."""
    if not role.device_memory_bytes or not role.device_milli:
        return True
    return any(
        account.node.devices
        and (not role.device_types or account.node.device_type in role.device_types)
        and (account.node.device_memory_bytes or role.device_memory_bytes) >= role.device_memory_bytes
        for account in inventory.nodes
        if not account.removed
    )


def _too_small(job: Job, inventory: Inventory) -> int | None:
    """The devices of the largest node, if a single task of the job needs more; None if all tasks fit one."""
    for role in job.roles:
        if role.device_milli > WHOLE:
            largest = max((len(pool.by_free) - 1 for pool in inventory.eligible(role)), default=0)
            if role.device_milli > largest * WHOLE:
                return largest
    return None


def _short_of(role: Role, need_milli: int, inventory: Inventory) -> int:
    """What the best pool lacks of a need; a job's tasks of one role are all on one device type."""
    best = 0
    for pool in inventory.eligible(role):
        free = _free(pool, role.is_fraction)
        if free > best:
            best = free
    return need_milli - best if need_milli > best else 0


def _free(pool: Pool, fractions: bool) -> int:
    """What is free of a pool; fractionally held devices count for jobs that ask for fractions."""
    free = pool.free * WHOLE
    return free + pool.partial_milli if fractions else free


def _lacks(job: Job, inventory: Inventory, amount: Callable[[Pool, bool], int]) -> int:
    """What a job lacks if each pool has so much: its shortest role on its best pool, or all roles together."""
    if len(job.roles) == 1 and job.elastic is None:
        role = job.roles[0]
        best = 0
        for pool in inventory.eligible(role):
            best = max(best, amount(pool, role.is_fraction))
        return max(job.gpu_milli - best, 0)
    least = None if job.elastic is None else job.elastic.min_tasks
    worst = total = 0
    pools: dict[DeviceType, Pool] = {}
    for role in job.roles:
        need = (least or role.count) * role.device_milli
        total += need
        eligible = inventory.eligible(role)
        worst = max(worst, need - max((amount(pool, role.is_fraction) for pool in eligible), default=0))
        pools.update((pool.device_type, pool) for pool in eligible)
    fractions = any(role.is_fraction for role in job.roles)
    return max(worst, total - sum(amount(pool, fractions) for pool in pools.values()))


def _types_wanted(job: Job) -> set[DeviceType] | None:
    """The device types that a job's roles name; None if one of them takes any."""
    roles = [role for role in job.roles if role.device_milli]
    if not all(role.device_types for role in roles):
        return None
    return {kind for role in roles for kind in role.device_types}


def _missing_type(job: Job, inventory: Inventory) -> DeviceType | None:
    """The type that a role asks for first, if no node has any type that it would accept."""
    for role in job.roles:
        if role.device_milli and role.device_types and not any(pool.devices for pool in inventory.eligible(role)):
            return role.device_types[0]
    return None


def _free_milli(job: Job, inventory: Inventory) -> int:
    role = job.roles[0] if len(job.roles) == 1 else max(job.roles, key=lambda r: r.device_milli * r.count)
    most = 0
    for pool in inventory.eligible(role):
        most = max(most, pool.free)
    return most * WHOLE


def _scatters(job: Job) -> bool:
    return any(role.device_milli > WHOLE or role.is_fraction for role in job.roles) or job.exclusive
