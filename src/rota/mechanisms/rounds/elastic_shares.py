"""Jobs whose number of tasks a share rule decides: their sizes, and the speed of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rota.core.model.job import WHOLE, DeviceType, Job
from rota.core.state.job_record import LiveJob
from rota.mechanisms.rounds.rule import RoundJob, Size, round_job
from rota.perf.speed.model import SpeedModel


def sizes_of(job: Job) -> list[int]:
    """The numbers of tasks that are considered: the bounds, the requested number, and powers of two between."""
    if job.elastic is None or job.roles[0].device_milli % WHOLE or not job.roles[0].device_milli:
        return []
    low, high = job.elastic.min_tasks, job.elastic.max_tasks
    doubled = (1 << at for at in range(high.bit_length()))
    return sorted({low, high, job.roles[0].count, *(tasks for tasks in doubled if low < tasks < high)})


def elastic_round_job(
    live: LiveJob,
    speed: SpeedModel,
    types: Sequence[DeviceType],
    able_at: Mapping[int, Sequence[bool]],
    node_devices: Sequence[int],
) -> RoundJob:
    """The job with its speeds at all sizes. Its usual size is the requested one, or the nearest that fits.

    `able_at` holds for each size the types on which it could be placed, `node_devices` the devices of the largest node
    by type.
    """
    job = live.job
    sizes = [_at(job, speed, types, tasks, able, node_devices) for tasks, able in able_at.items()]
    asked = job.roles[0].count
    usual = min(sizes, key=lambda size: (not any(size.speeds), abs(size.tasks - asked), size.tasks))
    plain = round_job(live, speed, types, able_at[usual.tasks])
    others = tuple(size for size in sizes if size.tasks != usual.tasks and any(size.speeds))
    return replace(
        plain,
        scale=usual.scale,
        speeds=usual.speeds,
        shape=plain.shape if usual.tasks == asked else None,
        kind=(*plain.kind, usual, others),
        tasks=0 if usual.tasks == asked else usual.tasks,
        sizes=others,
        able_at=tuple((tasks, tuple(able)) for tasks, able in able_at.items()),
    )


def _at(
    job: Job,
    speed: SpeedModel,
    types: Sequence[DeviceType],
    tasks: int,
    able: Sequence[bool],
    node_devices: Sequence[int],
) -> Size:
    devices = tasks * job.roles[0].device_milli // WHOLE
    minds = speed.scattered or speed.profiles is None or speed.profiles.is_relative
    speeds = tuple(
        speed.at_size(job, kind, tasks, several_nodes=minds and devices > largest) if fits else 0.0
        for kind, fits, largest in zip(types, able, node_devices, strict=True)
    )
    return Size(tasks, devices, speeds)
