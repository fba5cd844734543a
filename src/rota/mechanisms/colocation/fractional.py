"""Placement of tasks that request fractions of devices: which device each task goes to.

A `FractionalPlacement` claims devices in the inventory of the draft while it searches. At the end it releases the
claims and returns the placement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rota.core.engine.draft import Draft
from rota.core.messages.reasons import Reason
from rota.core.model.job import WHOLE, DeviceType, Job, Role
from rota.core.model.placement import Placement, Slot, device_indexes
from rota.core.state.job_record import LiveJob
from rota.mechanisms.colocation.groups import Device, DeviceGroups


@dataclass(frozen=True, slots=True)
class SharedDevice:
    """A device with holders of fractions: the thousandths left after one more task, and the tasks of the same job on
    it.

    What holders have beyond the fractions they requested counts as left.
    """

    at: Device
    kind: DeviceType
    holders: tuple[LiveJob, ...]
    left_milli: int
    own: int


def place_tasks(
    live: LiveJob,
    draft: Draft,
    groups: DeviceGroups,
    place_one: Callable[[FractionalPlacement], Reason | None],
    *,
    time_sliced: bool = False,
) -> Placement | Reason:
    """Place every task of a job by `place_one`, all on devices of one type; return why the first task has no place
    otherwise."""
    role = live.job.roles[0]
    types = [pool.device_type for pool in draft.inventory.eligible(role)] or list(role.device_types)
    first: Reason | None = None
    while True:
        search = FractionalPlacement(live, draft, groups, types, time_sliced=time_sliced)
        reason = next((reason for _ in range(role.count) if (reason := place_one(search)) is not None), None)
        if reason is None:
            return search.finish()
        search.abandon()
        first = first or reason
        types = [kind for kind in types if kind != search.kind]
        if search.kind is None or not types:
            return first


class FractionalPlacement:
    """Search that places the tasks of a job of one role one by one, all on the device type of the first."""

    def __init__(
        self,
        live: LiveJob,
        draft: Draft,
        groups: DeviceGroups,
        types: Sequence[DeviceType],
        *,
        time_sliced: bool = False,
    ) -> None:
        self._live = live
        self._draft = draft
        self._groups = groups
        self._types = types
        self._time_sliced = time_sliced
        self._role = live.job.roles[0]
        self._mark = draft.mark()
        self.slots: list[Slot] = []

    @property
    def kind(self) -> DeviceType | None:
        """The device type of the tasks placed so far."""
        return self._draft.inventory.nodes[self.slots[0].node].node.device_type if self.slots else None

    @property
    def _allowed_types(self) -> Sequence[DeviceType]:
        """The device types that the next task may use."""
        return self._types if self.kind is None else [self.kind]

    @property
    def devices(self) -> list[Device]:
        """The devices of the tasks placed so far."""
        return [(slot.node, slot.devices) for slot in self.slots]

    def shared_devices(self) -> Iterator[SharedDevice]:
        """Iterate over the shared devices that have room for one more task."""
        nodes, own = self._draft.inventory.nodes, self.devices
        types, milli = self._allowed_types, self._role.device_milli
        asked = self._groups.requested
        for at in asked if not own else dict.fromkeys([*asked, *own]):
            here = own.count(at)
            left = WHOLE - asked.get(at, 0) - (here + 1) * milli
            kind = nodes[at[0]].node.device_type
            if left >= 0 and kind in types:
                yield SharedDevice(at, kind, tuple(self._groups.holders.get(at, ())), left, here)

    def add(self, device: SharedDevice) -> bool:
        """Place one more task on a shared device, whose holders shrink to their requests; return success."""
        mark = self._draft.mark()
        if all(map(self._shrink_to_request, device.holders)) and self._take(
            Slot(*device.at, 1, 0, self._role.device_milli, self._time_sliced)
        ):
            return True
        self._draft.undo(mark)
        return False

    def _shrink_to_request(self, holder: LiveJob) -> bool:
        assert holder.placement is not None
        asked = requested_fractions(holder, holder.placement)
        if asked == holder.placement:
            return True
        if not can_resize(holder, self._draft):
            return False
        self._draft.share(holder, asked)
        return True

    def add_unshared(self) -> Reason | None:
        """Place one more task on a device without holders; return why there is none otherwise."""
        offered = self._draft.offer(_single_task(self._live, self._allowed_types))
        if isinstance(offered, Reason):
            return offered
        took = self._take(offered[0]._replace(milli=self._role.device_milli, in_turn=self._time_sliced))
        assert took, "a device that is offered whole has room for a fraction"
        return None

    def finish(self) -> Placement:
        """Release the claims of the search and return the placement."""
        self._release()
        return tuple(self.slots)

    def abandon(self) -> None:
        """Release the claims of the search and undo its changes of the draft."""
        self._release()
        self._draft.undo(self._mark)

    def _take(self, slot: Slot) -> bool:
        if not self._draft.inventory.is_free((slot,), self._live.job.roles):
            return False
        self._draft.inventory.take((slot,), self._live.job.roles)
        self.slots.append(slot)
        return True

    def _release(self) -> None:
        for slot in reversed(self.slots):
            self._draft.inventory.give((slot,), self._live.job.roles)


def can_resize(live: LiveJob, draft: Draft) -> bool:
    """Return whether the fraction of a job can change: it is settled, or this plan assigned it."""
    return live.is_settled or live in draft.touched


def requested_fractions(live: LiveJob, placement: Placement) -> Placement:
    """Return the placement with every fraction reduced to what the task requested."""
    roles = live.job.roles
    return tuple(
        slot._replace(milli=min(roles[slot.role].device_milli * slot.tasks, slot.milli))
        if roles[slot.role].is_fraction
        else slot
        for slot in placement
    )


def on_unshared_devices(live: LiveJob, draft: Draft, together: int = WHOLE) -> Placement | Reason:
    """Place the tasks that request fractions on as few devices without holders as possible, the others as offered.

    At most `together` of these tasks share a device.
    """
    roles = live.job.roles
    most = min(together, max(WHOLE // role.device_milli for role in roles if role.is_fraction))
    tried = dict.fromkeys(tuple(_per_device(role, tasks) for role in roles) for tasks in range(most, 0, -1))
    first: Reason | None = None
    for numbers in tried:
        asked = tuple(_bundled(role, tasks) for role, tasks in zip(roles, numbers, strict=True))
        offered = draft.offer(_probe(live, replace(live.job, roles=asked, elastic=None)))
        if not isinstance(offered, Reason):
            return requested_fractions(live, tuple(_split_by_device(offered, roles, numbers)))
        first = first or offered
    assert first is not None
    return first


def _per_device(role: Role, most: int) -> int:
    """Return how many tasks of a role share a device, at most `most`."""
    return min(most, WHOLE // role.device_milli, role.count) if role.is_fraction else 1


def _bundled(role: Role, tasks: int) -> Role:
    """Return the role in which each bundle of `tasks` tasks is one task that requests a whole device."""
    if not role.is_fraction:
        return role
    return replace(
        role,
        count=-(-role.count // tasks),
        device_milli=WHOLE,
        device_memory_bytes=role.device_memory_bytes * tasks,
        cpu_milli=role.cpu_milli * tasks,
        memory_bytes=role.memory_bytes * tasks,
        network_bps=role.network_bps * tasks,
        disk_bps=role.disk_bps * tasks,
    )


def _split_by_device(offered: Placement, roles: Sequence[Role], numbers: Sequence[int]) -> Iterator[Slot]:
    """Split offered slots into one for each device of fractional tasks, each with its bundle of tasks."""
    left = [role.count for role in roles]
    for slot in offered:
        if not roles[slot.role].is_fraction:
            yield slot
            continue
        for device in device_indexes(slot.devices):
            tasks = min(numbers[slot.role], left[slot.role])
            left[slot.role] -= tasks
            yield slot._replace(devices=1 << device, tasks=tasks)


def _single_task(live: LiveJob, types: Sequence[DeviceType]) -> LiveJob:
    """Return a job of a single task that requests a whole device of one of these types."""
    role = replace(live.job.roles[0], device_milli=WHOLE, count=1, device_types=tuple(types))
    return _probe(live, replace(live.job, roles=(role,)))


def _probe(live: LiveJob, job: Job) -> LiveJob:
    probe = LiveJob(job, live.seq, live.submitted_s, live.nominal_rate)
    probe.since_s = live.since_s
    return probe


def room_milli(jobs: Sequence[LiveJob], draft: Draft) -> int:
    """Return the thousandths of their devices that a group holds or that are free."""
    left = WHOLE
    for slot in jobs[0].placement or ():
        shares = draft.inventory.nodes[slot.node].shares
        left = min([left, *(shares.get(device, (0, 0))[0] for device in device_indexes(slot.devices))])
    return min(left + sum(live.placement[0].milli for live in jobs if live.placement), WHOLE)
