"""Speed model: how placement and neighbours affect a job's speed.

Speed is work per second. Work is counted in steps where there is a profile of the job's model, otherwise in seconds on
the reference device. Every effect is a factor, 1 where it is not modelled.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rota.core.errors import RotaError
from rota.core.model.cluster import Node
from rota.core.model.job import WHOLE, DeviceType, Job, Level
from rota.core.model.placement import Placement, devices_of, tasks_of
from rota.perf.profiles.online_estimates import LearningSpeeds
from rota.perf.profiles.speed_table import Speeds
from rota.perf.speed.busy_fraction import UNKNOWN, of_pair, said_by
from rota.perf.speed.costs import Costs as Costs
from rota.perf.speed.factor import factor_of
from rota.perf.speed.interleaving import rounds_each, stages_of
from rota.perf.speed.link_estimates import LinkEstimates
from rota.perf.speed.network import LEVELS, Distances, network_cost
from rota.perf.speed.throttling import duty, left_by
from rota.perf.training.goodput import TRAININGS, best_of

SPILLED = 0.1
"""Remaining speed of a job whose device memory is all on the host: assumed, far below what a bus allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedModel:
    """Factors on a job's speed.

    `spread` is by the widest level that the job's devices span. Each neighbour counts once, on a shared device or a
    shared node, and less if it is throttled. The scaling of elastic jobs is known for models of the catalogue; for
    others, `scaling` is the exponent of the size relative to the requested size.

    `turns` is the speed left after switching between time-sliced jobs. `spilled` is the speed left of a packed job for
    the fraction of its memory on the host. A throttled packed job interferes proportionally less; with `gaps` of 1,
    only with what exceeds the idle time of the others. With `interleaved`, packed jobs alternate on storage, CPU, GPU
    and network by the stages of their iterations.

    With `network`, tasks also wait for what they send: that many seconds per second of work for each unit of network
    cost per task. With `scattered`, a job on several nodes runs at the profiled speed for that, where there is one.
    With `is_estimate`, profiles are what a policy believes; the true speeds are not in them. Where a job's devices are
    not equally fast, the slowest sets the pace; with `uneven` batches each device has work in proportion to its speed.
    With `contention`, jobs of known kinds slow each other down by their demands on the servers they share; their work
    is then in seconds alone on one server.
    """

    profiles: Speeds | None = None
    type_speed: Mapping[DeviceType, float] = field(default_factory=dict)
    spread: Mapping[Level, float] = field(default_factory=dict)
    scaling: float = 1.0
    device_neighbour: float = 1.0
    node_neighbour: float = 1.0
    turns: float = 1.0
    spilled: float = SPILLED
    gaps: float = 0.0
    interleaved: bool = False
    network: float = 0.0
    scattered: bool = False
    is_estimate: bool = False
    uneven: bool = False
    contention: bool = False
    by_request: bool = False
    """Whether policies see planned speeds relative to the best at the requested size: work is then in seconds."""
    factor: str = ""
    """A user's function that every speed is multiplied with, as `FILE.py:FUNCTION` or by entry point."""
    links: LinkEstimates | None = field(default=None, compare=False)
    """What policies expect links to cost a job alone. None in a simulated world, which knows the links themselves."""

    def __post_init__(self) -> None:
        factors = [(f"spread over a {level.name.lower()}", factor) for level, factor in self.spread.items()]
        factors.append(("of a neighbour on the device", self.device_neighbour))
        factors.append(("of a neighbour on the node", self.node_neighbour))
        factors.append(("of time slicing", self.turns))
        factors.append(("of memory on the host", self.spilled))
        for name, factor in factors:
            if not 0 < factor <= 1:
                raise RotaError(f"the speed factor {name} is {factor:g}; it must be above 0 and at most 1")
        if not 0 <= self.gaps <= 1:
            raise RotaError(f"the usable fraction of idle time is {self.gaps:g}; it must be from 0 to 1")
        if not 0 <= self.network < math.inf:
            raise RotaError(f"the network cost is {self.network:g}; it must be 0 or more")
        for device_type, speed in self.type_speed.items():
            if not 0 < speed < math.inf:
                raise RotaError(f"the speed of type {device_type!r} is {speed:g}; it must be a number above 0")

    @property
    def is_even(self) -> bool:
        """Whether a job of fixed size that shares no devices runs at speed 1 wherever it is, without network links."""
        return self.profiles is None and not (self.type_speed or self.spread or self.network or self.factor)

    @property
    def sees_neighbours(self) -> bool:
        """Whether a job's speed depends on its neighbours."""
        return self.device_neighbour != 1.0 or self.node_neighbour != 1.0 or self.contention

    def nominal_rate(self, job: Job) -> float:
        """Return a job's best speed, before its placement is known."""
        profiles = self._profiles_of(job)
        if profiles is not None and job.model is not None:
            devices = max(job.gpu_milli // WHOLE, 1)
            rate = profiles.fastest(job.model, devices)
            if not rate > 0:
                raise RotaError(
                    f"profiles {profiles.source}: {job.model!r} runs on no device type with {devices} devices"
                )
            return rate
        types = job.roles[0].device_types
        if not types or not self.type_speed:
            return 1.0
        return max((self.type_speed.get(t, 1.0) for t in types), default=1.0)

    def on_type(self, job: Job, device_type: DeviceType) -> float:
        """Return the speed of a job alone at its requested size on one type; 0 where it cannot or may not run."""
        if any(role.device_types and device_type not in role.device_types for role in job.roles):
            return 0.0
        profiles = self._profiles_of(job)
        if profiles is not None and job.model is not None:
            rate = profiles.rate(device_type, job.model, max(job.gpu_milli // WHOLE, 1)) or 0.0
            return rate / self._unit(job, profiles) * self._link_factor(job, device_type, job.roles[0].count)
        return self.type_speed.get(device_type, 1.0) * self._link_factor(job, device_type, job.roles[0].count)

    def at_size(self, job: Job, device_type: DeviceType, tasks: int, *, several_nodes: bool = False) -> float:
        """Return the speed of an elastic job alone with that many tasks on one type; 0 where it is unknown."""
        if any(role.device_types and device_type not in role.device_types for role in job.roles):
            return 0.0
        links = self._link_factor(job, device_type, tasks, several_nodes)
        profiles = self._profiles_of(job)
        if profiles is None or job.model is None:
            return self.type_speed.get(device_type, 1.0) * self._growth(job, tasks, several_nodes) * links
        devices = max(tasks * job.roles[0].device_milli // WHOLE, 1)
        rate = (profiles.rate(device_type, job.model, devices, scattered=several_nodes) or 0.0) * links
        if self._scales(job, profiles):
            return rate * self._growth(job, tasks, several_nodes)
        return rate / self._unit(job, profiles)

    def scales_by_links(self, job: Job) -> bool:
        """Return whether an elastic job is as much faster as it is larger, but for what the links of a network cost it.

        Not so where its scaling is measured, modelled or given: that contains communication.
        """
        return (
            job.elastic is not None and self.scaling == 1.0 and job.model not in TRAININGS and not self.knows_sizes(job)
        )

    def speed_key(self, job: Job) -> Hashable:
        """Return a key that is equal for jobs of equal roles with equal expected speeds."""
        return job.model if self.links is None else (job.model, job.labels)

    def _link_factor(self, job: Job, device_type: DeviceType, tasks: int, several_nodes: bool = False) -> float:
        """Return the speed that links leave a job alone on one type."""
        if self.links is None:
            return 1.0
        by_request = self.scales_by_links(job)
        return self.links.factor(job, device_type, tasks, by_request=by_request, several_nodes=several_nodes)

    def _unit(self, job: Job, profiles: Speeds) -> float:
        """Return the speed that counts as 1 for a job."""
        if not self.by_request or not self.knows_sizes(job):
            return 1.0
        return profiles.fastest(str(job.model), max(job.gpu_milli // WHOLE, 1)) or 1.0

    def knows_sizes(self, job: Job) -> bool:
        """Return whether the speed of a job's model is known at each size, so that it need not be learned."""
        return self.profiles is not None and job.model is not None and self.profiles.has_sizes(job.model)

    def _scales(self, job: Job, profiles: Speeds) -> bool:
        """Return whether the speed at a size is the profiled one times the growth by that size."""
        return profiles.is_relative and not self.knows_sizes(job)

    def _growth(self, job: Job, tasks: int, several_nodes: bool) -> float:
        """Return the speed of an elastic job of this size relative to its requested size on one node."""
        role = job.roles[0]
        if job.elastic is None:
            return 1.0
        if job.model in TRAININGS:
            per_task = max(role.device_milli // WHOLE, 1)
            now = best_of(job.model, tasks * per_task, several_nodes)
            return now.goodput / best_of(job.model, role.count * per_task, False).goodput
        return float((tasks / role.count) ** self.scaling)

    def blend(self, parts: Iterable[tuple[int, float]]) -> float:
        """Return the speed of a job on devices of several types, given their number and the speed on each type."""
        present = [(devices, speed) for devices, speed in parts if devices]
        if not self.uneven:
            return min(speed for _, speed in present)
        return sum(devices * speed for devices, speed in present) / sum(devices for devices, _ in present)

    def beside(self, job: Job, other: Job, device_type: DeviceType) -> float:
        """Return the speed of a job packed with another on the same devices, or some of them; 0 where they cannot run.

        Two jobs of different sizes interfere on shared devices as two of the smaller size would.
        """
        devices = max(job.gpu_milli // WHOLE, 1)
        shared = min(devices, max(other.gpu_milli // WHOLE, 1))
        measured = self._measured_beside(job, other, device_type, shared)
        alone = self.on_type(job, device_type)
        if shared == devices:
            links = self._link_factor(job, device_type, job.roles[0].count)
            return alone * self.device_neighbour if measured is None else measured * links
        factor = self.device_neighbour
        if measured is not None:
            small = self.profiles.rate(device_type, str(job.model), shared) if self.profiles is not None else None
            factor = measured / small if small else 0.0
        return alone * self.blend([(shared, factor), (devices - shared, 1.0)]) if factor else 0.0

    def _measured_beside(self, job: Job, other: Job, device_type: DeviceType, devices: int) -> float | None:
        """Return the measured speed; a pair that exceeds a device's memory says nothing about fractions of it."""
        if self.profiles is None or job.model is None or other.model is None:
            return None
        found = self.profiles.beside(device_type, job.model, other.model, devices)
        return None if not found and (job.roles[0].is_fraction or other.roles[0].is_fraction) else found

    def among(self, job: Job, part: float, mates: Sequence[tuple[Job, float]], device_type: DeviceType) -> float:
        """Return the speed of a job packed with others, each throttled to a fraction of its own work.

        A mate that does less interferes less. The factors of several mates are multiplied.
        """
        if self.interleaved:
            return self.on_type(job, device_type) * part * _interleaved(job, mates)
        if len(mates) == 1 and part == mates[0][1] == 1.0:
            return self.beside(job, mates[0][0], device_type)
        alone = self.on_type(job, device_type)
        rate = alone * part
        for mate, its_part in mates:
            if alone > 0:
                lost = max(1.0 - self.beside(job, mate, device_type) / alone, 0.0)
                rate *= 1.0 - lost * self._interference_of(job, mate, its_part, device_type)
        return rate

    def _interference_of(self, job: Job, mate: Job, part: float, device_type: DeviceType) -> float:
        """Return the interference of a throttled mate: less, where it fits into idle time."""
        if not self.gaps or part >= 1.0:
            return part
        idle, use = (1.0 - self.use(job, device_type)) * self.gaps, self.use(mate, device_type)
        return 0.0 if idle >= use or part * use <= idle else (part * use - idle) / (use - idle)

    def use(self, job: Job, device_type: DeviceType, unknown: float = UNKNOWN) -> float:
        """Return the utilisation of a job alone: from its label, as measured, or as requested."""
        declared = said_by(job)
        if declared is not None:
            return declared
        if job.roles[0].is_fraction:
            return job.roles[0].device_milli / WHOLE
        alone = self.on_type(job, device_type)
        if job.model is None or not self.knows_pairs or not alone > 0:
            return unknown
        return of_pair(self.beside(job, job, device_type) / alone)

    @property
    def knows_pairs(self) -> bool:
        """Whether there are measurements of jobs packed on the same devices."""
        return self.profiles is not None and self.profiles.knows_pairs

    def observe(self, job: Job, device_type: DeviceType, rate: float, beside: Job | None = None) -> bool:
        """Record the observed speed of a job on a type; return whether the expected speed changed."""
        if not isinstance(self.profiles, LearningSpeeds) or job.model is None:
            return False
        other = None if beside is None else beside.model
        if beside is not None and other is None:
            return False
        rate /= self._link_factor(job, device_type, job.roles[0].count)  # profiles are without links
        return self.profiles.observe(device_type, job.model, max(job.gpu_milli // WHOLE, 1), rate, other)

    def refit(self) -> bool:
        """Estimate unknown speeds again if enough was observed since; return whether anything may have changed."""
        return isinstance(self.profiles, LearningSpeeds) and self.profiles.refit()

    @property
    def memory(self) -> Any:
        """Observed speeds, as a serialisable value; None if nothing is learned."""
        return self.profiles.memory if isinstance(self.profiles, LearningSpeeds) else None

    def recall(self, memory: Any) -> None:
        """Restore what `memory` returned."""
        if memory is not None and isinstance(self.profiles, LearningSpeeds):
            self.profiles.recall(memory)

    def _profiles_of(self, job: Job) -> Speeds | None:
        """Return the profiles if they apply: they are optional for work in seconds, required for work in steps."""
        if self.profiles is None or job.model is None:
            return None
        return None if self.profiles.is_relative and not self.profiles.knows(job.model) else self.profiles

    def rate(
        self,
        job: Job,
        placement: Placement,
        nodes: list[Node],
        device_neighbours: Sequence[float] = (),
        node_neighbours: Sequence[float] = (),
        mates: Sequence[tuple[Job, float]] = (),
    ) -> float:
        """Return the speed of a job on a placement, next to neighbours or packed with known mates.

        Each neighbour comes with the fraction of its work that it may do.
        """
        first = placement[0]
        device_type = nodes[first.node].device_type
        rate = self.by_itself(job, placement, nodes)
        if first.in_turn:
            asked = min(job.roles[first.role].device_milli, WHOLE)
            rate *= first.milli / asked * (1.0 if first.milli == WHOLE else self.turns)
            device_neighbours = ()
        elif mates:
            rate = self.among(job, duty(job, placement, len(mates)), mates, device_type)
        else:
            rate *= duty(job, placement)
        if first.memory_milli != WHOLE and not first.in_turn:
            rate *= self.spilled + (1.0 - self.spilled) * first.memory_milli / WHOLE
        if self.spread and len(placement) > 1:
            rate *= self.spread.get(span(placement, nodes), 1.0)
        if self.network and len(placement) > 1:
            cost = network_cost(job, placement, Distances(nodes, LEVELS))
            rate /= 1.0 + self.network * cost / sum(slot.tasks for slot in placement)
        if device_neighbours:
            rate *= self._slowed(placement, left_by(self.device_neighbour, device_neighbours))
        if node_neighbours:
            rate *= left_by(self.node_neighbour, node_neighbours)
        return rate * factor_of(self.factor, job, placement, nodes) if self.factor else rate

    def by_itself(self, job: Job, placement: Placement, nodes: list[Node]) -> float:
        """Return the speed of a job alone on the devices of a placement, without spread."""
        if len(placement) > 1 and len(by_type := _devices_by_type(placement, nodes)) > 1:
            return self.blend((count, self._base(job, placement, kind)) for kind, count in by_type.items())
        return self._base(job, placement, nodes[placement[0].node].device_type)

    def _slowed(self, placement: Placement, factor: float) -> float:
        """Return the speed left by neighbours on a job's devices, some of which may be unshared."""
        own = sum(slot.devices.bit_count() for slot in placement if slot.milli == WHOLE)
        devices = devices_of(placement)
        return factor if own in (0, devices) else self.blend([(own, 1.0), (devices - own, factor)])

    def _base(self, job: Job, placement: Placement, device_type: DeviceType) -> float:
        several_nodes = len(placement) > 1 and any(slot.node != placement[0].node for slot in placement)
        profiles = self._profiles_of(job)
        rate = self.type_speed.get(device_type, 1.0)
        if profiles is not None and job.model is not None:
            devices = _devices_worth(job, placement)
            measured = profiles.rate(device_type, job.model, devices, scattered=self.scattered and several_nodes)
            if measured is None:
                raise RotaError(f"profiles {profiles.source}: no speed of {job.model!r} on {devices} x {device_type!r}")
            if not self._scales(job, profiles):
                return measured
            rate = measured
        return rate if job.elastic is None else rate * self._growth(job, tasks_of(placement), several_nodes)


def _interleaved(job: Job, mates: Sequence[tuple[Job, float]]) -> float:
    """Return the speed left by interleaving, proportionally more if all mates are throttled."""
    busy = [(mate, part) for mate, part in mates if part > 0]
    if not busy:
        return 1.0
    left = rounds_each((stages_of(job), *(stages_of(mate) for mate, _ in busy)))
    return 1.0 - (1.0 - left) * max(part for _, part in busy)


def _devices_worth(job: Job, placement: Placement) -> int:
    """Return the number of devices of a job, with fractions summed up."""
    if job.roles[placement[0].role].is_fraction:
        return max(job.gpu_milli // WHOLE, 1)
    return max(devices_of(placement), 1)


def _devices_by_type(placement: Placement, nodes: list[Node]) -> dict[DeviceType, int]:
    """Return the number of devices of each type of the first role; the other roles only serve it."""
    found: dict[DeviceType, int] = {}
    for slot in placement:
        if slot.role == placement[0].role:
            kind = nodes[slot.node].device_type
            found[kind] = found.get(kind, 0) + slot.devices.bit_count()
    return found


def span(placement: Placement, nodes: list[Node]) -> Level:
    """Return the widest level of the topology that a placement spans."""
    first = nodes[placement[0].node]
    widest = Level.NODE
    for slot in placement[1:]:
        node = nodes[slot.node]
        if node is first:
            continue
        if node.domain != first.domain:
            return Level.CLUSTER
        widest = max(widest, Level.RACK if node.rack == first.rack else Level.DOMAIN)
    return widest
