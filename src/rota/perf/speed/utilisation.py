"""Utilisation of devices by running jobs, and its prediction for a model from similar models."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from rota.core.model.cluster import Node
from rota.core.model.job import DeviceType, Job
from rota.core.model.placement import Placement, devices_of
from rota.perf.profiles.speed_table import Profiles
from rota.perf.speed.busy_fraction import UNKNOWN, of_pair
from rota.perf.speed.model import SpeedModel
from rota.perf.speed.throttling import duty

_BATCH = re.compile(r"^(?P<family>.*?) ?\(batch size (?P<batch>\d+)\)$")


def busy_devices(
    speed: SpeedModel,
    job: Job,
    placement: Placement,
    nodes: list[Node],
    rate: float,
    mates: Sequence[tuple[Job, float]] = (),
) -> float:
    """Return the device-time per second that a job keeps busy at this speed, packed with others or not.

    At a fraction of its speed alone it keeps devices busy for that fraction of its utilisation. All jobs of a device
    together keep it busy at most all the time; an excess is deducted in proportion.
    """
    kind = nodes[placement[0].node].device_type
    alone = speed.by_itself(job, placement, nodes)
    own = speed.use(job, kind) * rate / alone if alone > 0 else 0.0
    part = duty(job, placement, len(mates))
    others = 0.0
    for at, (mate, its_part) in enumerate(mates):
        its_alone = speed.on_type(mate, kind)
        beside = [(job, part), *mates[:at], *mates[at + 1 :]]
        if its_alone > 0:
            others += speed.use(mate, kind) * speed.among(mate, its_part, beside, kind) / its_alone
    return devices_of(placement) * own / max(own + others, 1.0)


class Predictor:
    """Predicts the utilisation of a model from similar models, never from its own measurements.

    Similar are those of the same family with the nearest batch size, else all known models.
    """

    def __init__(self, profiles: Profiles, kind: DeviceType) -> None:
        self._known = _table(profiles, kind)
        self._guessed: dict[str, float] = {}

    def of(self, model: str) -> float:
        """Return the predicted utilisation."""
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
