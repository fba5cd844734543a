"""Groups of jobs that hold fractions of the same devices."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from rota.core.engine.protocols import Changes
from rota.core.model.job import WHOLE, Job, JobState
from rota.core.model.placement import Placement, Slot, in_turn, packed
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob

DeviceSet = tuple[tuple[int, int], ...]
"""Devices as sorted pairs of node and mask: what the jobs of a group have in common."""
Device = tuple[int, int]
"""One device: its node, and its bit in that node's mask."""


class DeviceGroups:
    """Index of groups by the devices they share; a suspended job belongs to the devices it is suspended on.

    A group of one is a job that has its devices to itself.
    """

    def __init__(self) -> None:
        self._groups: dict[DeviceSet, dict[LiveJob, None]] = {}
        self._devices: dict[LiveJob, DeviceSet] = {}
        self._in_order: dict[DeviceSet, list[LiveJob]] = {}
        """Cache of groups in order of submission."""
        self.changes = 0
        """Number of changes of groups so far."""
        self.holders: dict[Device, dict[LiveJob, int]] = {}
        """By device, the thousandths requested by each job with tasks that request a fraction; read only."""
        self.requested: dict[Device, int] = {}
        """By device, the sum of these fractions."""
        self._nodes: dict[LiveJob, tuple[int, ...]] = {}
        self._on_node: dict[int, dict[LiveJob, None]] = {}
        """By node, the jobs with tasks there, including those without devices."""
        self._changed_nodes: dict[int, None] = {}
        """Nodes on which a job came or left since the last call of `on_changed_nodes`."""

    def rekey(self, live: LiveJob) -> tuple[DeviceSet, ...]:
        """Index a job by the devices it holds now; return the groups this changes."""
        before = self._devices.pop(live, None)
        held = (live.suspended_on or live.placement or ()) if live.placement else ()
        after = devices_of(held)
        self._index_nodes(live, tuple({slot.node: None for slot in held}))
        if before is not None and before != after:
            del self._groups[before][live]
            if not self._groups[before]:
                del self._groups[before]
        if after:
            self._devices[live] = after
            self._groups.setdefault(after, {})[live] = None
        if before == after:
            return ()
        self.changes += 1
        for devices in (before, after):
            self._in_order.pop(devices or (), None)
        changed = {devices: None for devices in (before, after) if devices in self._groups}
        if any(role.is_fraction for role in live.job.roles):
            changed |= dict.fromkeys(self._index_fractions(live, before or (), after))
        return tuple(changed)

    def _index_nodes(self, live: LiveJob, nodes: tuple[int, ...]) -> None:
        before = self._nodes.pop(live, ())
        if nodes:
            self._nodes[live] = nodes
        if nodes == before:
            return
        for node in before:
            self._on_node[node].pop(live, None)
        for node in nodes:
            self._on_node.setdefault(node, {})[live] = None
        self._changed_nodes |= dict.fromkeys((*before, *nodes))

    def _index_fractions(self, live: LiveJob, before: DeviceSet, after: DeviceSet) -> Iterator[DeviceSet]:
        """Update holders and requests of single devices; yield the groups of the other holders."""
        for at in dict.fromkeys(before):
            holders = self.holders.get(at, {})
            self.requested[at] = self.requested.get(at, 0) - holders.pop(live, 0)
            if not holders:
                self.holders.pop(at, None)
                del self.requested[at]
        for slot in (live.suspended_on or live.placement or ()) if after else ():
            role, at = live.job.roles[slot.role], (slot.node, slot.devices)
            if role.is_fraction:
                holders, milli = self.holders.setdefault(at, {}), role.device_milli * slot.tasks
                holders[live] = holders.get(live, 0) + milli
                self.requested[at] = self.requested.get(at, 0) + milli
        for at in (*before, *after):
            yield from (self._devices[other] for other in self.holders.get(at, ()) if other is not live)

    def overlapping(self, live: LiveJob) -> list[DeviceSet]:
        """Return the groups of all holders of fractions of a job's devices, its own group included."""
        devices = self._devices.get(live, ())
        return list({self._devices[other]: None for at in devices for other in self.holders.get(at, ())})

    def partners(self, live: LiveJob) -> dict[LiveJob, None]:
        """Return the other jobs that hold fractions of a job's devices."""
        found = {other: None for at in self._devices.get(live, ()) for other in self.holders.get(at, ())}
        found.pop(live, None)
        return found

    def on_same_nodes(self, live: LiveJob) -> dict[LiveJob, None]:
        """Return the other jobs with tasks on a job's nodes."""
        found = {other: None for node in self._nodes.get(live, ()) for other in self._on_node[node]}
        found.pop(live, None)
        return found

    def on_changed_nodes(self) -> dict[LiveJob, None]:
        """Return the jobs on nodes where a job came or left since the last call."""
        found = {live: None for node in self._changed_nodes for live in self._on_node[node]}
        self._changed_nodes.clear()
        return found

    def devices_of(self, live: LiveJob) -> DeviceSet | None:
        """Return the devices of a job, None if it has none."""
        return self._devices.get(live)

    def at(self, devices: DeviceSet) -> list[LiveJob]:
        """Return the group on these devices in order of submission; read only."""
        found = self._in_order.get(devices)
        if found is None:
            found = self._in_order[devices] = sorted(self._groups.get(devices, ()), key=lambda live: live.seq)
        return found

    def mates(self, live: LiveJob) -> list[LiveJob]:
        """Return the other jobs of a job's group."""
        devices = self._devices.get(live)
        return [] if devices is None else [other for other in self.at(devices) if other is not live]

    @property
    def device_sets(self) -> Collection[DeviceSet]:
        """The devices of all groups."""
        return self._groups.keys()

    def groups(self) -> Iterator[tuple[DeviceSet, list[LiveJob]]]:
        """Iterate over all groups and their devices."""
        for devices in self._groups:
            yield devices, self.at(devices)


def follow(
    changes: Changes, waiting: dict[LiveJob, None], hold: Callable[[LiveJob], object], gone: Callable[[LiveJob], object]
) -> None:
    """Update the waiting jobs and call `hold` for each job that came or left, `gone` for each that has ended."""
    for live in changes.left:
        waiting.pop(live, None)
        hold(live)
        if live.state.is_final:
            gone(live)
    for live in changes.arrived:
        if live.state is JobState.WAITING and live.placement is None:
            hold(live)
            waiting[live] = None


def devices_of(placement: Placement) -> DeviceSet:
    """Return the devices of a placement, empty if it holds none."""
    return tuple(sorted((slot.node, slot.devices) for slot in placement if slot.devices))


def may_share(job: Job) -> bool:
    """Return whether a job can hold fractions of devices: one role, fixed size, not exclusive, no hard locality."""
    if len(job.roles) > 1 or job.exclusive or job.elastic is not None or not job.gpu_milli:
        return False
    return job.locality is None or not job.locality.hard


def wants_fraction(job: Job) -> bool:
    """Return whether every task of a job requests a fraction of a device, on any device."""
    return may_share(job) and job.roles[0].is_fraction


def on_devices_of(job: Job, host: LiveJob, inventory: Inventory) -> Placement | None:
    """Return a placement of a job on all devices of `host`; None if its tasks do not match them."""
    role = job.roles[0]
    per_task = max(role.device_milli // WHOLE, 1)
    slots: list[Slot] = []
    for slot in host.placement or ():
        devices = slot.devices.bit_count()
        kind = inventory.nodes[slot.node].node.device_type
        if not devices or devices % per_task or (role.device_types and kind not in role.device_types):
            return None
        slots.append(Slot(slot.node, slot.devices, devices // per_task, 0, min(role.device_milli, WHOLE)))
    if sum(slot.tasks for slot in slots) != role.count or (role.is_fraction and len(slots) > 1):
        return None
    return tuple(slots)


def with_fraction(
    job: Job, placement: Placement, milli: int, *, time_sliced: bool, memory_milli: int = WHOLE
) -> Placement:
    """Return the same devices with that fraction of each, time-sliced or packed, and of the requested memory.

    A job that gets all of its whole devices holds them exclusively, with all of its memory.
    """
    if milli == WHOLE and not job.roles[0].is_fraction:
        return tuple(slot._replace(milli=WHOLE, in_turn=False, memory_milli=WHOLE) for slot in placement)
    there = in_turn(placement, milli) if time_sliced else packed(placement, milli)
    return tuple(slot._replace(memory_milli=memory_milli) for slot in there)
