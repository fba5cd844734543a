"""Parts of devices, task by task: which device each goes to, by who has parts of it already.

A `FractionalPlacement` tries devices in the inventory as the draft sees it. At the end it returns all of them
and reports which they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rota.core.engine.draft import Draft
from rota.core.messages.reasons import Reason
from rota.core.model.job import WHOLE, DeviceType, Job, Role
from rota.core.model.placement import Placement, Slot, device_indexes
from rota.core.state.job_record import LiveJob
from rota.mechanisms.colocation.groups import Device, DeviceGroups, is_settled


@dataclass(frozen=True, slots=True)
class SharedDevice:
    """A device of which parts are held: by whom, how much would be left after one more task, and how many are its own.

    What others have beyond what they asked for counts as left.
    """

    at: Device
    kind: DeviceType
    holders: tuple[LiveJob, ...]
    left_milli: int
    own: int


def lay(
    live: LiveJob,
    draft: Draft,
    groups: DeviceGroups,
    one: Callable[[FractionalPlacement], Reason | None],
    *,
    turns: bool = False,
) -> Placement | Reason:
    """Each task of a job as `one` lays it, all on devices of one type; or why the first of them found no place."""
    role = live.job.roles[0]
    types = [pool.device_type for pool in draft.inventory.eligible(role)] or list(role.device_types)
    first: Reason | None = None
    while True:
        laying = FractionalPlacement(live, draft, groups, types, turns=turns)
        reason = next((reason for _ in range(role.count) if (reason := one(laying)) is not None), None)
        if reason is None:
            return laying.done()
        laying.give_up()
        first = first or reason
        types = [kind for kind in types if kind != laying.kind]
        if laying.kind is None or not types:
            return first


class FractionalPlacement:
    """Lays the tasks of a job of one role that asks for parts of devices: where the first goes, the others follow."""

    def __init__(
        self, live: LiveJob, draft: Draft, groups: DeviceGroups, types: Sequence[DeviceType], *, turns: bool = False
    ) -> None:
        self._live = live
        self._draft = draft
        self._groups = groups
        self._types = types
        self._turns = turns
        self._role = live.job.roles[0]
        self._mark = draft.mark()
        self.slots: list[Slot] = []

    @property
    def kind(self) -> DeviceType | None:
        """The type of the devices that were found so far."""
        return self._draft.inventory.nodes[self.slots[0].node].node.device_type if self.slots else None

    @property
    def _open_to(self) -> Sequence[DeviceType]:
        """The types of which the next task's device may be."""
        return self._types if self.kind is None else [self.kind]

    @property
    def devices(self) -> list[Device]:
        """The devices of the tasks so far."""
        return [(slot.node, slot.devices) for slot in self.slots]

    def places(self) -> Iterator[SharedDevice]:
        """The devices with room for one more task beside those that have parts of them."""
        nodes, own = self._draft.inventory.nodes, self.devices
        types, milli = self._open_to, self._role.device_milli
        asked = self._groups.requested
        for at in asked if not own else dict.fromkeys([*asked, *own]):
            here = own.count(at)
            left = WHOLE - asked.get(at, 0) - (here + 1) * milli
            kind = nodes[at[0]].node.device_type
            if left >= 0 and kind in types:
                yield SharedDevice(at, kind, tuple(self._groups.holders.get(at, ())), left, here)

    def put(self, place: SharedDevice) -> bool:
        """One more task on a device, whose holders give back what they have beyond what they asked for."""
        mark = self._draft.mark()
        if all(map(self._trimmed, place.holders)) and self._take(
            Slot(*place.at, 1, 0, self._role.device_milli, self._turns)
        ):
            return True
        self._draft.undo(mark)
        return False

    def _trimmed(self, holder: LiveJob) -> bool:
        assert holder.placement is not None
        asked = asked_parts(holder, holder.placement)
        if asked == holder.placement:
            return True
        if not can_resize(holder, self._draft):
            return False
        self._draft.share(holder, asked)
        return True

    def open(self) -> Reason | None:
        """One more task on a device that nobody has, or why there is none."""
        offered = self._draft.offer(_alone(self._live, self._open_to))
        if isinstance(offered, Reason):
            return offered
        took = self._take(offered[0]._replace(milli=self._role.device_milli, in_turn=self._turns))
        assert took, "a device that was offered whole has room for a part"
        return None

    def done(self) -> Placement:
        """Where the tasks are to be; the places are free again for them."""
        self._give_back()
        return tuple(self.slots)

    def give_up(self) -> None:
        """Leave everything as it was."""
        self._give_back()
        self._draft.undo(self._mark)

    def _take(self, slot: Slot) -> bool:
        if not self._draft.inventory.is_free((slot,), self._live.job.roles):
            return False
        self._draft.inventory.take((slot,), self._live.job.roles)
        self.slots.append(slot)
        return True

    def _give_back(self) -> None:
        for slot in reversed(self.slots):
            self._draft.inventory.give((slot,), self._live.job.roles)


def can_resize(live: LiveJob, draft: Draft) -> bool:
    """Whether a job's part can become another: it runs and no order is on its way, or this plan gave it its part."""
    return is_settled(live) or live in draft.touched


def asked_parts(live: LiveJob, placement: Placement) -> Placement:
    """The same devices, of which no task that wants a part has more than it asked for."""
    roles = live.job.roles
    return tuple(
        slot._replace(milli=min(roles[slot.role].device_milli * slot.tasks, slot.milli))
        if roles[slot.role].is_fraction
        else slot
        for slot in placement
    )


def apart(live: LiveJob, draft: Draft, together: int = WHOLE) -> Placement | Reason:
    """Devices that nobody has for tasks that want parts, as few as will do, and what is offered for the others.

    At most so many of them together on one.
    """
    roles = live.job.roles
    most = min(together, max(WHOLE // role.device_milli for role in roles if role.is_fraction))
    tried = dict.fromkeys(tuple(_together(role, tasks) for role in roles) for tasks in range(most, 0, -1))
    first: Reason | None = None
    for numbers in tried:
        asked = tuple(_on_whole(role, tasks) for role, tasks in zip(roles, numbers, strict=True))
        offered = draft.offer(_probe(live, replace(live.job, roles=asked, elastic=None)))
        if not isinstance(offered, Reason):
            return asked_parts(live, tuple(_one_by_one(offered, roles, numbers)))
        first = first or offered
    assert first is not None
    return first


def _together(role: Role, most: int) -> int:
    """How many tasks that want a part are on one device, if not more than so many should be."""
    return min(most, WHOLE // role.device_milli, role.count) if role.is_fraction else 1


def _on_whole(role: Role, tasks: int) -> Role:
    """A role as if so many of its tasks together were one that asks for a whole device."""
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


def _one_by_one(offered: Placement, roles: Sequence[Role], numbers: Sequence[int]) -> Iterator[Slot]:
    """A slot for each device of tasks that want parts, with so many of them, the last with those that are left."""
    left = [role.count for role in roles]
    for slot in offered:
        if not roles[slot.role].is_fraction:
            yield slot
            continue
        for device in device_indexes(slot.devices):
            tasks = min(numbers[slot.role], left[slot.role])
            left[slot.role] -= tasks
            yield slot._replace(devices=1 << device, tasks=tasks)


def _alone(live: LiveJob, types: Sequence[DeviceType]) -> LiveJob:
    """A single task of a job, had it asked for a whole device of one of these types."""
    role = replace(live.job.roles[0], device_milli=WHOLE, count=1, device_types=tuple(types))
    return _probe(live, replace(live.job, roles=(role,)))


def _probe(live: LiveJob, job: Job) -> LiveJob:
    probe = LiveJob(job, live.seq, live.submitted_s, live.nominal_rate)
    probe.since_s = live.since_s
    return probe
