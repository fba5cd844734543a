"""Which devices each task of a job holds."""

from __future__ import annotations

from typing import NamedTuple

from rota.core.model.job import WHOLE, Job, Role


class Slot(NamedTuple):
    """Tasks of one role on one node, and the devices they hold there, as a bit mask.

    `milli` is what they hold of each of those devices. Tasks that ask for whole devices and hold less of each are
    packed: they run concurrently with other tasks on these devices, or are throttled. So are tasks that asked for a
    fraction and hold less of it. Tasks that run `in_turn` are time-sliced: they have the devices to themselves for that
    fraction of the time. Of the device memory that they ask for, `memory_milli` stays on devices that they share; the
    remainder is on the host, or in use only during their time slices. A plain tuple: there are several per job.
    """

    node: int
    devices: int
    tasks: int = 1
    role: int = 0
    milli: int = WHOLE
    in_turn: bool = False
    memory_milli: int = WHOLE


Placement = tuple[Slot, ...]
"""All slots of a job. Each role's tasks add up to its count, or for an elastic job to a size within bounds."""


def held_milli(placement: Placement) -> int:
    """Thousandths of devices that a placement holds."""
    held = 0
    for slot in placement:
        held += slot.devices.bit_count() * slot.milli
    return held


def device_memory(slot: Slot, role: Role) -> int:
    """Bytes that tasks keep of each device that they share."""
    if slot.memory_milli == WHOLE:
        return role.device_memory_bytes
    return -(-role.device_memory_bytes * slot.memory_milli // WHOLE)


def devices_of(placement: Placement) -> int:
    """Devices of a placement, whole or fractional."""
    devices = 0
    for slot in placement:
        devices += slot.devices.bit_count()
    return devices


def has_devices_alone(placement: Placement) -> bool:
    """Whether a placement shares no device with other jobs, nor its memory or time, and is not throttled."""
    return all(slot.milli == WHOLE and not slot.in_turn and slot.memory_milli == WHOLE for slot in placement)


def packed(placement: Placement, milli: int) -> Placement:
    """The same devices, with only so much of each held."""
    return tuple(slot._replace(milli=milli) for slot in placement)


def in_turn(placement: Placement, milli: int) -> Placement:
    """The same devices, time-sliced with that fraction of the time."""
    return tuple(slot._replace(milli=milli, in_turn=True) if slot.devices else slot for slot in placement)


def suspended_claim(placement: Placement) -> Placement:
    """What suspended tasks keep of their placement: host resources, no devices."""
    return tuple(slot._replace(devices=0, milli=WHOLE, in_turn=False, memory_milli=WHOLE) for slot in placement)


def is_suspended_claim(placement: Placement) -> bool:
    """Whether a placement holds no devices at all."""
    return not any(slot.devices for slot in placement)


def whole(placement: Placement) -> Placement:
    """The same devices, all of them held whole: a slot for each role and node."""
    slots: dict[tuple[int, int], Slot] = {}
    for slot in placement:
        held = slots.get((slot.node, slot.role))
        devices, tasks = (0, 0) if held is None else (held.devices, held.tasks)
        slots[slot.node, slot.role] = Slot(slot.node, devices | slot.devices, tasks + slot.tasks, slot.role)
    return tuple(slots.values())


def same_devices(one: Placement, other: Placement) -> bool:
    """Whether two placements put the same tasks on the same devices, however much they hold of each."""
    if len(one) == len(other) and all(a[:4] == b[:4] for a, b in zip(one, other, strict=True)):
        return True
    merged = whole(one)
    return devices_of(merged) == devices_of(one) == devices_of(other) and merged == whole(other)


def meet(one: Placement, other: Placement) -> bool:
    """Whether two placements have a device in common."""
    for slot in one:
        for there in other:
            if slot.node == there.node and slot.devices & there.devices:
                return True
    return False


def tasks_of(placement: Placement, role: int = 0) -> int:
    """Tasks of one role in a placement."""
    return sum(slot.tasks for slot in placement if slot.role == role)


def device_indexes(mask: int) -> list[int]:
    """The set bits of a device mask, lowest first."""
    indexes = []
    while mask:
        low = mask & -mask
        indexes.append(low.bit_length() - 1)
        mask ^= low
    return indexes


def lowest(mask: int, count: int) -> int:
    """The `count` lowest set bits of a mask."""
    if mask.bit_count() <= count:
        return mask
    taken = 0
    for _ in range(count):
        low = mask & -mask
        taken |= low
        mask ^= low
    return taken


def fault_in(placement: Placement, job: Job) -> str | None:
    """What makes a placement unfit for a job, whatever is free: a broken gang, a wrong number of devices."""
    for index, role in enumerate(job.roles):
        tasks = tasks_of(placement, index)
        low, high = role.count, role.count
        if job.elastic is not None:
            low, high = job.elastic.min_tasks, job.elastic.max_tasks
        if not low <= tasks <= high:
            return f"{tasks} tasks of role {role.name!r} are placed; the gang needs {low}"
    for slot in placement:
        role = job.roles[slot.role]
        if not 0 < slot.memory_milli <= WHOLE:
            return f"{slot.tasks} tasks of role {role.name!r} keep {slot.memory_milli} thousandths of their memory"
        if slot.in_turn:
            if (
                slot.devices.bit_count() != slot.tasks * max(role.device_milli // WHOLE, 1)
                or not 0 < slot.milli <= WHOLE
            ):
                return f"{slot.tasks} tasks of role {role.name!r} are time-sliced on {slot.devices.bit_count()} devices"
            continue
        is_packed = role.device_milli >= WHOLE > slot.milli > 0
        held = slot.devices.bit_count() * (WHOLE if is_packed else slot.milli)
        asked = slot.tasks * role.device_milli
        if held != asked and not (role.is_fraction and 0 < held < asked):
            return f"{slot.tasks} tasks of role {role.name!r} hold {held} thousandths of devices on a node"
    return None
