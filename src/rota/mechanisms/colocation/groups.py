"""Who shares devices with whom: groups of jobs that hold parts of the same ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from rota.core.engine.protocols import Changes
from rota.core.model.job import WHOLE, Job, JobState
from rota.core.model.placement import Placement, Slot, in_turn, packed
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob

Seats = tuple[tuple[int, int], ...]
"""Devices as (node, mask), in order: what the jobs of a group have in common."""
Device = tuple[int, int]
"""One device: its node, and its bit in that node's mask."""


class DeviceGroups:
    """Groups by the devices that they share, suspended jobs with those where they rest.

    A group of one is a job that has its devices to itself.
    """

    def __init__(self) -> None:
        self._groups: dict[Seats, dict[LiveJob, None]] = {}
        self._seats: dict[LiveJob, Seats] = {}
        self._in_order: dict[Seats, list[LiveJob]] = {}
        """Groups in order of submission, as far as they were asked for since they changed."""
        self.changes = 0
        """How often groups have changed."""
        self.parts: dict[Device, dict[LiveJob, int]] = {}
        """By device, the jobs with tasks that asked for a part of it, and for how much; for reading only."""
        self.asked: dict[Device, int] = {}
        """By device, how many thousandths all of them asked for together."""
        self._nodes: dict[LiveJob, tuple[int, ...]] = {}
        self._on_node: dict[int, dict[LiveJob, None]] = {}
        """By node, the jobs with tasks there, also such as hold no device."""
        self._disturbed: dict[int, None] = {}
        """Nodes on which somebody came or went."""

    def rekey(self, live: LiveJob) -> tuple[Seats, ...]:
        """A job holds other devices than it did, or none; the groups that this concerns."""
        before = self._seats.pop(live, None)
        held = (live.suspended_on or live.placement or ()) if live.placement else ()
        after = seats_of(held)
        self._visit(live, tuple({slot.node: None for slot in held}))
        if before is not None and before != after:
            del self._groups[before][live]
            if not self._groups[before]:
                del self._groups[before]
        if after:
            self._seats[live] = after
            self._groups.setdefault(after, {})[live] = None
        if before == after:
            return ()
        self.changes += 1
        for seats in (before, after):
            self._in_order.pop(seats or (), None)
        changed = {seats: None for seats in (before, after) if seats in self._groups}
        if any(role.is_fraction for role in live.job.roles):
            changed |= dict.fromkeys(self._part(live, before or (), after))
        return tuple(changed)

    def _visit(self, live: LiveJob, nodes: tuple[int, ...]) -> None:
        """Keep it true who is on which node."""
        before = self._nodes.pop(live, ())
        if nodes:
            self._nodes[live] = nodes
        if nodes == before:
            return
        for node in before:
            self._on_node[node].pop(live, None)
        for node in nodes:
            self._on_node.setdefault(node, {})[live] = None
        self._disturbed |= dict.fromkeys((*before, *nodes))

    def _part(self, live: LiveJob, before: Seats, after: Seats) -> Iterator[Seats]:
        """Keep it true who has parts of which devices; the groups of the others there."""
        for at in dict.fromkeys(before):
            holders = self.parts.get(at, {})
            self.asked[at] = self.asked.get(at, 0) - holders.pop(live, 0)
            if not holders:
                self.parts.pop(at, None)
                del self.asked[at]
        for slot in (live.suspended_on or live.placement or ()) if after else ():
            role, at = live.job.roles[slot.role], (slot.node, slot.devices)
            if role.is_fraction:
                holders, milli = self.parts.setdefault(at, {}), role.device_milli * slot.tasks
                holders[live] = holders.get(live, 0) + milli
                self.asked[at] = self.asked.get(at, 0) + milli
        for at in (*before, *after):
            yield from (self._seats[other] for other in self.parts.get(at, ()) if other is not live)

    def overlapping(self, live: LiveJob) -> list[Seats]:
        """The groups of those with parts of the devices of which a job has parts, its own among them."""
        return list({self._seats[other]: None for at in self._seats.get(live, ()) for other in self.parts.get(at, ())})

    def partners(self, live: LiveJob) -> dict[LiveJob, None]:
        """Those with parts of devices of which a job has parts."""
        found = {other: None for at in self._seats.get(live, ()) for other in self.parts.get(at, ())}
        found.pop(live, None)
        return found

    def near(self, live: LiveJob) -> dict[LiveJob, None]:
        """Others with tasks on the same nodes."""
        found = {other: None for node in self._nodes.get(live, ()) for other in self._on_node[node]}
        found.pop(live, None)
        return found

    def disturbed(self) -> dict[LiveJob, None]:
        """The jobs on nodes on which somebody came or went since the last call."""
        found = {live: None for node in self._disturbed for live in self._on_node[node]}
        self._disturbed.clear()
        return found

    def seats(self, live: LiveJob) -> Seats | None:
        """The devices that a job holds."""
        return self._seats.get(live)

    def at(self, seats: Seats) -> list[LiveJob]:
        """The jobs that share these devices, in order of submission; for reading only."""
        found = self._in_order.get(seats)
        if found is None:
            found = self._in_order[seats] = sorted(self._groups.get(seats, ()), key=lambda live: live.seq)
        return found

    def mates(self, live: LiveJob) -> list[LiveJob]:
        """Those with whom a job shares its devices."""
        seats = self._seats.get(live)
        return [] if seats is None else [other for other in self.at(seats) if other is not live]

    @property
    def places(self) -> Collection[Seats]:
        """The devices of all groups."""
        return self._groups.keys()

    def groups(self) -> Iterator[tuple[Seats, list[LiveJob]]]:
        """All groups."""
        for seats in self._groups:
            yield seats, self.at(seats)


def follow(
    changes: Changes, waiting: dict[LiveJob, None], hold: Callable[[LiveJob], object], gone: Callable[[LiveJob], object]
) -> None:
    """Keep it true who waits and who holds what, after jobs came and left; `gone` are those that have ended."""
    for live in changes.left:
        waiting.pop(live, None)
        hold(live)
        if live.state.is_final:
            gone(live)
    for live in changes.arrived:
        if live.state is JobState.WAITING and live.placement is None:
            hold(live)
            waiting[live] = None


def seats_of(placement: Placement) -> Seats:
    """The devices of a placement; none for one that holds no device."""
    return tuple(sorted((slot.node, slot.devices) for slot in placement if slot.devices))


def may_share(job: Job) -> bool:
    """Whether a job can hold part of its devices: one role of one fixed size, no wish to be alone or near."""
    if len(job.roles) > 1 or job.exclusive or job.elastic is not None or not job.gpu_milli:
        return False
    return job.locality is None or not job.locality.hard


def wants_part(job: Job) -> bool:
    """Whether each task of a job wants part of a device, and may have it on any."""
    return may_share(job) and job.roles[0].is_fraction


def is_settled(live: LiveJob) -> bool:
    """Whether a job runs where it should, with no order that is still to be answered."""
    return live.is_settled


def beside(job: Job, host: LiveJob, inventory: Inventory) -> Placement | None:
    """A placement for a job on the devices that another holds; None if its tasks can't be laid out there."""
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


def part_of(job: Job, placement: Placement, milli: int, *, turns: bool, memory_milli: int = WHOLE) -> Placement:
    """The same devices with so much of each and of its memory: in turn with others, packed, or all to itself."""
    if milli == WHOLE and not job.roles[0].is_fraction:
        return tuple(slot._replace(milli=WHOLE, in_turn=False, memory_milli=WHOLE) for slot in placement)
    there = in_turn(placement, milli) if turns else packed(placement, milli)
    return tuple(slot._replace(memory_milli=memory_milli) for slot in there)
