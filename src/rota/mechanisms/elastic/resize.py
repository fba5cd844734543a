"""Another size for a job with as little change as can be: tasks leave or join where the job is, if that will do."""

from __future__ import annotations

from dataclasses import replace

from rota.core.engine.draft import Draft
from rota.core.messages.reasons import Reason
from rota.core.model.job import WHOLE, DeviceType, Job
from rota.core.model.placement import Placement, Slot, lowest
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob


class Resizer:
    """Places elastic jobs at a given size. It remembers how jobs look at the sizes that were tried."""

    def __init__(self) -> None:
        self._probes: dict[tuple[int, int, DeviceType | None], LiveJob] = {}

    def forget(self, live: LiveJob) -> None:
        """A job is gone."""
        if live.job.elastic is not None:
            self._probes = {key: probe for key, probe in self._probes.items() if key[0] != live.seq}

    def find(self, draft: Draft, live: LiveJob, tasks: int, device_type: DeviceType | None) -> Placement | Reason:
        """Free devices for a job at this size, on this type if one is named."""
        if live.job.elastic is None and device_type is None:
            return draft.offer(live)
        key = (live.seq, tasks, device_type)
        probe = self._probes.get(key)
        if probe is None:
            probe = self._probes[key] = LiveJob(
                _sized(live.job, tasks, device_type), live.seq, live.submitted_s, live.nominal_rate
            )
        probe.since_s = live.since_s
        return draft.offer(probe)

    def place(self, draft: Draft, live: LiveJob, tasks: int, device_type: DeviceType | None) -> Reason | None:
        """Let a job that holds nothing have this size, or say why it can't."""
        found = self.find(draft, live, tasks, device_type)
        if isinstance(found, Reason):
            return found
        draft.assign_offered(live, found)
        return None

    def shrink(self, draft: Draft, live: LiveJob, tasks: int) -> None:
        """Let a job give up tasks: first on the nodes where it has fewest."""
        held = live.placement or ()
        if live.job.roles[0].is_fraction:
            draft.release(live)
            if self.place(draft, live, tasks, None) is not None:
                draft.assign_offered(live, held)
            return
        draft.release(live)
        draft.assign_offered(live, fewer(held, tasks, live.job.roles[0].device_milli // WHOLE))

    def grow(self, draft: Draft, live: LiveJob, tasks: int, device_type: DeviceType | None) -> bool:
        """Let a job have more tasks: on the nodes that it has, or else wherever there is room for all of them."""
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
    """The same job, had it asked for just this."""
    roles = job.roles
    if device_type is not None:
        roles = tuple(replace(role, device_types=(device_type,)) if role.device_milli else role for role in roles)
    if job.elastic is not None:
        roles = (replace(roles[0], count=tasks),)
    return replace(job, elastic=None, roles=roles)


def fewer(held: Placement, tasks: int, per_task: int) -> Placement:
    """A part of a placement with so many tasks, on as few of its nodes as can be."""
    kept: list[Slot] = []
    left = tasks
    for slot in sorted(held, key=lambda slot: (-slot.tasks, slot.node)):
        here = min(slot.tasks, left)
        if here:
            kept.append(slot._replace(tasks=here, devices=lowest(slot.devices, here * per_task)))
        left -= here
    return tuple(kept)


def more(held: Placement, tasks: int, job: Job, inventory: Inventory) -> Placement | None:
    """A placement with so many tasks that holds all of this one and free devices on its nodes; None if too few are."""
    per_task = job.roles[0].device_milli // WHOLE
    extra = tasks - sum(slot.tasks for slot in held)
    slots: list[Slot] = []
    for slot in held:
        books = inventory.nodes[slot.node]
        is_open = books.up and not books.drained and (job.exclusive or not books.locked)
        room = books.free // per_task if per_task and is_open else 0
        here = min(room, extra)
        picked = inventory.pick_devices(slot.node, here * per_task) if here else 0
        slots.append(slot._replace(tasks=slot.tasks + here, devices=slot.devices | picked))
        extra -= here
    return None if extra else tuple(slots)
