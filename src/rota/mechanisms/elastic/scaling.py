"""Scaling curves: the speed of each candidate at each allowed size, by the speed model."""

from __future__ import annotations

from collections.abc import Hashable

from rota.core.model.job import WHOLE, DeviceType
from rota.mechanisms.elastic.rule import Candidate, SizeQuestion, even_sizes
from rota.perf.speed.model import SpeedModel

Curve = tuple[tuple[int, float], ...]
"""Sizes in tasks with the speed at each, ascending."""


class ScalingCurves:
    """Speeds by size, looked up once for equivalent jobs.

    With `compact`, only sizes that divide nodes evenly.
    """

    def __init__(self, speed: SpeedModel, *, compact: bool) -> None:
        self._speed = speed
        self._compact = compact
        self._known: dict[Hashable, Curve] = {}

    def of(self, found: Candidate, question: SizeQuestion) -> Curve:
        """Return a candidate's curve on its fastest device type at the requested size; empty if it cannot run."""
        job = found.live.job
        usable = tuple(pool.usable for pool in question.pools)
        key = (self._speed.speed_key(job), job.roles, job.elastic, usable, question.node_devices)
        curve = self._known.get(key)
        if curve is None:
            curve = self._known[key] = self._look_up(found, question)
        return curve

    def _look_up(self, found: Candidate, question: SizeQuestion) -> Curve:
        job, speed = found.live.job, self._speed
        sizes = even_sizes(found, question.node_devices) if self._compact else found.sizes
        if not sizes:
            return ()
        if not found.is_elastic:
            types = [pool.device_type for pool in question.pools if pool.usable]
            return ((1, max((speed.on_type(job, kind) for kind in types), default=0.0) or 1.0),)
        best: Curve = ()
        for pool in question.pools:
            fitting = [tasks for tasks in sizes if tasks * found.per_task_milli <= pool.usable * WHOLE]
            curve = tuple((tasks, self._at(found, tasks, question, pool.device_type)) for tasks in fitting)
            curve = tuple((tasks, rate) for tasks, rate in curve if rate > 0)
            if curve and (not best or (len(curve), curve[-1][1]) > (len(best), best[-1][1])):
                best = curve
        return best

    def _at(self, found: Candidate, tasks: int, question: SizeQuestion, kind: DeviceType) -> float:
        several = found.gpus(tasks) > question.node_devices
        return self._speed.at_size(found.live.job, kind, tasks, several_nodes=several)
