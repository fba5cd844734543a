"""One job on several device types at once: which jobs may, at what speed, and how its tasks are split.

A linear program gains nothing by it as long as a job fits on one type: with uneven batches, half of the devices all
the time are worth as much as all of them half of the time. It lets a round use devices that are left over on several
types, and lets jobs run that are too large for any single type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rota.core.model.job import DeviceType, Job, Level
from rota.mechanisms.rounds.rule import RoundJob, shape_of
from rota.perf.speed.model import SpeedModel


def may_spread(job: Job) -> bool:
    """Whether a job's tasks can be split: several of one role, with whole devices, without locality."""
    is_free = job.locality is None or job.locality.level is Level.CLUSTER
    return is_free and job.tasks > 1 and shape_of(job) is not None


def spread_out(plain: RoundJob, speed: SpeedModel, types: Sequence[DeviceType], rooms: Sequence[int]) -> RoundJob:
    """The same job as one that may run on several types at once; `rooms` is how many of its tasks fit by type.

    A job that is too large for any single type has speeds for its parts. Where the slowest device sets the pace, it
    keeps to the fastest types that together hold it.
    """
    speeds = tuple(speed.on_type(plain.live.job, kind) for kind in types)
    usable = tuple(room if part > 0 else 0 for room, part in zip(rooms, speeds, strict=True))
    if plain.tasks or sum(usable) < plain.count:
        return plain
    found = replace(plain, rooms=usable, part_speeds=speeds, kind=(*plain.kind, usable, speeds))
    if not found.spans:
        return found
    own = tuple(part if room else 0.0 for room, part in zip(usable, speeds, strict=True))
    return replace(found, speeds=own if speed.uneven else _at_one_pace(found))


def _at_one_pace(job: RoundJob) -> tuple[float, ...]:
    """Speeds of the parts of a job whose slowest device sets the pace."""
    chosen: list[int] = []
    for at in sorted(range(len(job.rooms)), key=lambda at: (-job.part_speeds[at], at)):
        if sum(job.rooms[each] for each in chosen) < job.count:
            chosen.append(at)
    pace = min(job.part_speeds[at] for at in chosen if job.rooms[at])
    return tuple(pace if at in chosen and room else 0.0 for at, room in enumerate(job.rooms))


def divided(job: RoundJob, left: Sequence[int], claims: Sequence[float]) -> tuple[int, ...] | None:
    """How many tasks of a job run on each type, on the devices left there; None if they do not fit.

    Types are used in order of the job's claims on them, then of its speed. A job that spans types keeps to those on
    which it has a speed.
    """
    per_task = job.scale // job.count
    parts = [0] * len(left)
    missing = job.count
    for at in sorted(range(len(left)), key=lambda at: (-claims[at], -job.part_speeds[at], at)):
        if not job.spans or job.speeds[at] > 0:
            parts[at] = min(job.rooms[at], left[at] // per_task, missing)
            missing -= parts[at]
    return None if missing else tuple(parts)
