"""A job restricted beyond its request: to one device type, or to one node."""

from __future__ import annotations

from dataclasses import replace

from rota.core.model.job import WHOLE, DeviceType, Job
from rota.core.model.placement import Placement, Slot
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob


def narrowed(live: LiveJob, kind: DeviceType) -> LiveJob:
    """The same job as if it requested only this type."""
    roles = tuple(replace(role, device_types=(kind,)) if role.device_milli else role for role in live.job.roles)
    probe = LiveJob(replace(live.job, roles=roles), live.seq, live.submitted_s, live.nominal_rate)
    probe.since_s = live.since_s
    return probe


def on_node(inventory: Inventory, job: Job, node: int) -> Placement | None:
    """A placement of all tasks on one node, for a job of one role with whole devices; None if they do not fit."""
    role, account = job.roles[0], inventory.nodes[node]
    count = role.count * role.device_milli // WHOLE
    if len(job.roles) > 1 or role.is_fraction or not account.usable or account.free < count:
        return None
    if role.device_types and account.node.device_type not in role.device_types:
        return None
    placement = (Slot(node, inventory.pick_devices(node, count), role.count),)
    memory = account.node.device_memory_bytes
    if memory is not None and role.device_memory_bytes > memory:
        return None
    return placement if inventory.is_free(placement, job.roles, job.exclusive) else None
