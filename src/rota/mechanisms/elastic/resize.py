"""Resizing of jobs with the fewest changes: tasks leave or join on the nodes the job has, where possible."""

from __future__ import annotations

from dataclasses import replace

from rota.core.engine.draft import Draft
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import WHOLE, DeviceType, Job
from rota.core.model.placement import Placement, Slot, lowest
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.perf.speed.model import SpeedModel

SLOWEST_TYPE = 0.5
"""Least speed on a type, relative to the fastest, where a rule names no type: jobs keep their type, so that a slow one
costs more than some waiting. Assumed."""


class Resizer:
    """Places elastic jobs at a given size; caches the job records of the sizes that were tried.

    With a speed model that knows jobs at each size, a job gets no devices of a type on which it cannot run at its size,
    or where the rule leaves the type open, on which it is much slower than on another.
    """

    def __init__(self, speed: SpeedModel | None = None) -> None:
        self._speed = speed
        self._probes: dict[tuple[int, int, DeviceType | None], LiveJob] = {}

    def forget(self, live: LiveJob) -> None:
        """Drop the cached records of a job."""
        if live.job.elastic is not None:
            self._probes = {key: probe for key, probe in self._probes.items() if key[0] != live.seq}

    def find(self, draft: Draft, live: LiveJob, tasks: int, device_type: DeviceType | None) -> Placement | Reason:
        """Return free devices for a job at this size, of this type if one is given, or why there are none."""
        if live.job.elastic is None and device_type is None and not self._is_barred(live.job, draft.inventory):
            return draft.offer(live)
        key = (live.seq, tasks, device_type)
        probe = self._probes.get(key)
        if probe is None:
            sized = self._able(_sized(live.job, tasks, device_type), live.job, tasks, draft.inventory)
            if isinstance(sized, Reason):
                return sized
            probe = self._probes[key] = LiveJob(sized, live.seq, live.submitted_s, live.nominal_rate)
        probe.since_s = live.since_s
        return draft.offer(probe)

    def runs_at(self, job: Job, tasks: int, device_type: DeviceType) -> bool:
        """Return whether a job can run at this size on a type, as far as is known."""
        if self._speed is None or job.elastic is None or not self._speed.knows_sizes(job):
            return True
        return self._speed.at_size(job, device_type, tasks) > 0

    def _is_barred(self, job: Job, inventory: Inventory) -> bool:
        """Return whether a job that accepts any type would make no progress on some type of the cluster."""
        if self._speed is None or self._speed.profiles is None or len(job.roles) > 1 or job.roles[0].device_types:
            return False
        speeds = [self._speed.on_type(job, pool.device_type) for pool in inventory.pools]
        return min(speeds, default=0.0) <= 0 < max(speeds, default=0.0)

    def _able(self, sized: Job, job: Job, tasks: int, inventory: Inventory) -> Job | Reason:
        """Return the sized job with the types on which it runs well at this size, or that there are none."""
        if job.elastic is None and len(sized.roles) == 1 and not sized.roles[0].device_types and self._speed:
            kinds = [pool.device_type for pool in inventory.pools if self._speed.on_type(job, pool.device_type) > 0]
            kinds.sort(key=lambda kind: -self._speed.on_type(job, kind) if self._speed else 0.0)
            return replace(sized, roles=(replace(sized.roles[0], device_types=tuple(kinds)),))
        if self._speed is None or job.elastic is None or not self._speed.knows_sizes(job):
            return sized
        role = sized.roles[0]
        wanted = tasks * role.device_milli
        pools = [pool for pool in inventory.pools if not role.device_types or pool.device_type in role.device_types]
        large = [pool for pool in pools if pool.usable * WHOLE >= wanted]
        speeds = {pool.device_type: self._speed.at_size(job, pool.device_type, tasks) for pool in large or pools}
        least = SLOWEST_TYPE * max(speeds.values(), default=0.0)
        fastest_first = sorted(speeds, key=lambda kind: -speeds[kind])
        types = tuple(kind for kind in fastest_first if speeds[kind] > 0 and speeds[kind] >= least)
        if not types:
            return Reason(code=ReasonCode.MEMORY_TOO_SMALL, need_milli=wanted)
        return replace(sized, roles=(replace(role, device_types=types),))

    def place(self, draft: Draft, live: LiveJob, tasks: int, device_type: DeviceType | None) -> Reason | None:
        """Place a job at this size, or return the reason why it does not fit."""
        found = self.find(draft, live, tasks, device_type)
        if isinstance(found, Reason):
            return found
        draft.assign_offered(live, found)
        return None

    def shrink(self, draft: Draft, live: LiveJob, tasks: int) -> bool:
        """Shrink a job, first on the nodes where it has the fewest tasks; return whether that vacates devices.

        A job that cannot run at this size on its type goes to another type, or else keeps its size.
        """
        held = live.placement or ()
        kind = draft.inventory.nodes[held[0].node].node.device_type
        if live.job.roles[0].is_fraction or not self.runs_at(live.job, tasks, kind):
            draft.release(live)
            is_placed = self.place(draft, live, tasks, None) is None
            if not is_placed:
                draft.assign_offered(live, held)
            return is_placed
        draft.release(live)
        draft.assign_offered(live, fewer(held, tasks, live.job.roles[0].device_milli // WHOLE))
        return True

    def grow(self, draft: Draft, live: LiveJob, tasks: int, device_type: DeviceType | None) -> bool:
        """Grow a job on its own nodes, else place all of its tasks again; return whether it fits."""
        held = live.placement or ()
        wider = None if live.job.roles[0].is_fraction else more(held, tasks, live.job, draft.inventory)
        draft.release(live)
        if wider is not None and draft.inventory.is_free(wider, live.job.roles, live.job.exclusive):
            draft.assign_offered(live, wider)
            return True
        if self.place(draft, live, tasks, device_type) is None:
            return True
        draft.assign_offered(live, held)
        return False


def _sized(job: Job, tasks: int, device_type: DeviceType | None) -> Job:
    """Return the job as if it had requested this size and type."""
    roles = job.roles
    if device_type is not None:
        roles = tuple(replace(role, device_types=(device_type,)) if role.device_milli else role for role in roles)
    if job.elastic is not None:
        roles = (replace(roles[0], count=tasks),)
    return replace(job, elastic=None, roles=roles)


def fewer(held: Placement, tasks: int, per_task: int) -> Placement:
    """Return a subset of a placement with that many tasks, on as few of its nodes as possible."""
    kept: list[Slot] = []
    left = tasks
    for slot in sorted(held, key=lambda slot: (-slot.tasks, slot.node)):
        here = min(slot.tasks, left)
        if here:
            kept.append(slot._replace(tasks=here, devices=lowest(slot.devices, here * per_task)))
        left -= here
    return tuple(kept)


def more(held: Placement, tasks: int, job: Job, inventory: Inventory) -> Placement | None:
    """Return a placement extended to that many tasks on the same nodes; None if too few devices are free there."""
    per_task = job.roles[0].device_milli // WHOLE
    extra = tasks - sum(slot.tasks for slot in held)
    slots: list[Slot] = []
    for slot in held:
        account = inventory.nodes[slot.node]
        is_open = account.up and not account.drained and (job.exclusive or not account.locked)
        room = account.free // per_task if per_task and is_open else 0
        here = min(room, extra)
        picked = inventory.pick_devices(slot.node, here * per_task) if here else 0
        slots.append(slot._replace(tasks=slot.tasks + here, devices=slot.devices | picked))
        extra -= here
    return None if extra else tuple(slots)
