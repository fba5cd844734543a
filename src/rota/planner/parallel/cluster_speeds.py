"""Speeds of jobs that name a model: those of the best plan on the devices at hand, for the cluster's policies."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.core.model.job import DeviceType
from rota.perf.profiles.speed_table import Profiles, SpeedKey, Speeds
from rota.planner.parallel.deployment import PlannedSpeed, planned_speed
from rota.planner.parallel.hardware import accelerator, is_accelerator
from rota.planner.parallel.model_names import is_planned, planned_model

SOURCE = "plans"
_FEWER = 8
"""Numbers of devices below the given one that a plan may use instead, with the others idle."""


@lru_cache(maxsize=65536)
def best_plan(model: str, gpu: str, gpus: int, per_node: int, scattered: bool = False) -> PlannedSpeed:
    """Return the fastest plan on at most `gpus` devices of nodes with `per_node`; devices that it cannot use idle.

    Devices are on the fewest nodes that they divide evenly over; if they are scattered, on two or more.
    """
    answers = [planned_speed(model, gpu, count, _nodes(count, per_node, scattered)) for count in _counts(model, gpus)]
    return max(answers, key=lambda answer: answer.steps_per_s)


def _counts(model: str, gpus: int) -> list[int]:
    """Return the numbers of devices that are tried, the largest first."""
    unit = planned_model(model).unit
    most = gpus - gpus % unit
    counts = list(range(most, 0, -unit))[:_FEWER]
    if not counts:
        return [gpus]
    return list(dict.fromkeys([*counts, unit * (1 << ((most // unit).bit_length() - 1))]))


def _nodes(devices: int, per_node: int, scattered: bool) -> int:
    """Return the fewest nodes over which devices divide evenly."""
    nodes = max(-(-devices // per_node), 2 if scattered and devices > 1 else 1)
    while devices % nodes:
        nodes += 1
    return nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSpeeds:
    """Speeds by plan of models of the catalogue; `others` has those of other models.

    `per_node` has the devices of a node by type. A speed is 0 where no plan fits into memory, and on types of which the
    planner knows nothing. Every answer is computed once.
    """

    per_node: Mapping[DeviceType, int]
    others: Speeds | None = None
    source: str = SOURCE
    _known: dict[tuple[DeviceType, str, int, bool], float] = field(default_factory=dict, repr=False, compare=False)

    @property
    def is_relative(self) -> bool:
        """Whether speeds of other models are relative; those of plans are in steps per second."""
        return self.others is None or self.others.is_relative

    @property
    def knows_pairs(self) -> bool:
        """Whether there are measurements of two models on the same devices."""
        return self.others is not None and self.others.knows_pairs

    def knows(self, model: str) -> bool:
        """Return whether there is any speed of a model."""
        return is_planned(model) or (self.others is not None and self.others.knows(model))

    def has_sizes(self, model: str) -> bool:
        """Return whether the speed of a model is that of a plan at each size."""
        return is_planned(model) or (self.others is not None and self.others.has_sizes(model))

    def rate(self, device_type: DeviceType, model: str, devices: int, *, scattered: bool = False) -> float | None:
        """Return the speed of a model's best plan, 0 where none fits."""
        if not is_planned(model):
            return None if self.others is None else self.others.rate(device_type, model, devices, scattered=scattered)
        key = (device_type, model, devices, scattered)
        if key not in self._known:
            self._known[key] = self._planned(*key)
        return self._known[key]

    def _planned(self, device_type: DeviceType, model: str, devices: int, scattered: bool) -> float:
        if not is_accelerator(device_type) or device_type not in self.per_node:
            return 0.0
        return best_plan(model, device_type, devices, self.per_node[device_type], scattered).steps_per_s

    def beside(self, device_type: DeviceType, model: str, other: str, devices: int) -> float | None:
        """Return the speed of a model packed with another; never measured for plans."""
        if self.others is None or is_planned(model) or is_planned(other):
            return None
        return self.others.beside(device_type, model, other, devices)

    def fastest(self, model: str, devices: int) -> float:
        """Return the best speed of a model on any type."""
        if is_planned(model):
            return max((self.rate(kind, model, devices) or 0.0 for kind in self.per_node), default=0.0)
        if self.others is None:
            raise RotaError(f"profiles {self.source}: no speed of model {model!r}; name a model of the catalogue")
        return self.others.fastest(model, devices)

    def table(self, sizes: Mapping[str, Collection[int]], others: Profiles | None) -> Profiles:
        """Return the speeds of models at these numbers of devices as a table, together with those of others."""
        speeds: dict[SpeedKey, float] = {}
        scattered: dict[SpeedKey, float] = {}
        for model, counts in sizes.items():
            for kind in self.per_node:
                for devices in counts:
                    key = (kind, model, devices)
                    speeds[key] = self.rate(*key) or 0.0
                    scattered[key] = self.rate(*key, scattered=True) or 0.0
        base = Profiles(steps_per_s={}, source=self.source, is_relative=True) if others is None else others
        return replace(
            base,
            steps_per_s={**base.steps_per_s, **speeds},
            scattered={**base.scattered, **scattered},
            source=self.source if others is None else f"{self.source} and {others.source}",
            sized=base.sized | sizes.keys(),
        )


def devices_per_node(cluster: Cluster) -> dict[DeviceType, int]:
    """Return the devices of the largest node of each type."""
    found: dict[DeviceType, int] = {}
    for node in cluster.nodes:
        if node.devices:
            found[node.device_type] = max(node.devices, found.get(node.device_type, 0))
    return found


def why_not(model: str, per_node: Mapping[DeviceType, int], devices: int) -> str:
    """Return why a model cannot be trained on so many devices of any type, as one line."""
    kinds = [kind for kind in per_node if is_accelerator(kind)]
    if not kinds:
        return f"the planner knows none of the device types {', '.join(map(str, per_node))}"
    largest = max(kinds, key=lambda kind: accelerator(kind).memory_bytes)
    answer = best_plan(model, largest, devices, per_node[largest])
    return f"{devices} x {largest}: {answer.reason}" if answer.reason else f"it fits on {devices} x {largest}"
