"""How busy a job keeps its devices, from what was measured of pairs, and as predicted from the model's name alone.

Two copies of a model on one device, each at the part r of its speed alone, keep it busy all the time if r is below 1;
so one copy alone keeps it busy for 1 / 2r of the time. Two that do not disturb each other say only: half at most.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from rota.core.cluster import Node
from rota.core.model import WHOLE, DeviceType, Job
from rota.core.placement import Placement, devices_of
from rota.perf.profiles import Profiles
from rota.perf.speed import SpeedModel, duty

_BATCH = re.compile(r"^(?P<family>.*?) ?\(batch size (?P<batch>\d+)\)$")
UNKNOWN = 1.0
"""Of a job of which nothing is known: as if it left nothing to others."""
LABEL = "utilization"
"""The label by which a job can say it itself, as a part of 1."""


def measured(job: Job, speed: SpeedModel, kind: DeviceType) -> float:
    """The part of the time in which a job keeps its devices busy: as it says, as measured, or the part it asked for."""
    said = said_by(job)
    if said is not None:
        return said
    if job.roles[0].is_fraction:
        return job.roles[0].device_milli / WHOLE
    alone = speed.on_type(job, kind)
    if job.model is None or not speed.knows_pairs or not alone > 0:
        return UNKNOWN
    return of_pair(speed.beside(job, job, kind) / alone)


def busy_devices(
    speed: SpeedModel,
    job: Job,
    placement: Placement,
    nodes: list[Node],
    rate: float,
    mates: Sequence[tuple[Job, float]] = (),
) -> float:
    """How many devices' worth of time a job keeps busy that runs there at this speed, packed with others or not.

    At a part of its speed alone it keeps them busy for that part of the time. All on the same devices together keep
    them busy all the time at most; what would be more is taken from each in proportion.
    """
    kind = nodes[placement[0].node].device_type
    alone = speed.by_itself(job, placement, nodes)
    own = measured(job, speed, kind) * rate / alone if alone > 0 else 0.0
    part = duty(job, placement, len(mates))
    others = 0.0
    for at, (mate, its_part) in enumerate(mates):
        its_alone = speed.on_type(mate, kind)
        beside = [(job, part), *mates[:at], *mates[at + 1 :]]
        if its_alone > 0:
            others += measured(mate, speed, kind) * speed.among(mate, its_part, beside, kind) / its_alone
    return devices_of(placement) * own / max(own + others, 1.0)


def of_pair(ratio: float) -> float:
    """How busy one copy keeps a device of which two have so much of their speed each."""
    return 1.0 if ratio <= 0.5 else max(1.0 / (2.0 * ratio), 0.5)


def said_by(job: Job) -> float | None:
    """What a job's label says."""
    for name, value in job.labels:
        if name == LABEL:
            try:
                return min(max(float(value), 0.0), 1.0)
            except ValueError:
                return None
    return None


class Predictor:
    """Guesses how busy a model keeps a device from models like it, never from the model's own measurements.

    Like it are those of the same family with the nearest batch size, or all that are known.
    """

    def __init__(self, profiles: Profiles, kind: DeviceType) -> None:
        self._known = _table(profiles, kind)
        self._guessed: dict[str, float] = {}

    def of(self, model: str) -> float:
        """The part of the time."""
        if model not in self._guessed:
            self._guessed[model] = self._guess(model)
        return self._guessed[model]

    def _guess(self, model: str) -> float:
        others = {name: busy for name, busy in self._known.items() if name != model}
        if not others:
            return UNKNOWN
        family, batch = _parse(model)
        near = [
            (abs(math.log2(size / batch)), busy)
            for name, busy in others.items()
            for other, size in [_parse(name)]
            if other == family
        ]
        if not near:
            return sum(others.values()) / len(others)
        closest = min(distance for distance, _ in near)
        chosen = [busy for distance, busy in near if distance <= closest + 1e-9]
        return sum(chosen) / len(chosen)


def _table(profiles: Profiles, kind: DeviceType) -> Mapping[str, float]:
    found = {}
    for (device_type, model, devices), alone in profiles.steps_per_s.items():
        together = profiles.beside(device_type, model, model, devices)
        if device_type == kind and devices == 1 and alone > 0 and together is not None:
            found[model] = of_pair(together / alone)
    return found


def _parse(model: str) -> tuple[str, float]:
    match = _BATCH.match(model)
    return (model, 1.0) if match is None else (match["family"], float(match["batch"]))
