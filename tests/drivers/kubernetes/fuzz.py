"""Feeds random objects of every kind to all that reads them; nothing may be raised. `make fuzz` runs it at length."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from typing import Any

from drivers.kubernetes.strange_objects import STRANGE_KINDS
from rota.core.errors import RotaError
from rota.drivers.kubernetes.admission.mistakes import mistakes_in, warnings_in
from rota.drivers.kubernetes.admission.review import defaulted, validated
from rota.drivers.kubernetes.filters.verdict import summary, verdicts
from rota.drivers.kubernetes.filters.world import FilterState
from rota.drivers.kubernetes.gangs.cluster_facts import DEVICE_PATH, ClusterFacts
from rota.drivers.kubernetes.gangs.gang_index import GangIndex
from rota.drivers.kubernetes.gangs.headroom import Headroom
from rota.drivers.kubernetes.gangs.node_cache import NodeCache
from rota.drivers.kubernetes.gangs.occupancy import Occupancy
from rota.drivers.kubernetes.gangs.pod_places import PodPlaces
from rota.drivers.kubernetes.objects.binding_annotations import Unreadable, has_gaps, recover_gang
from rota.drivers.kubernetes.objects.controller_sizes import has_ended, maker_path, owes_pods, tasks_of
from rota.drivers.kubernetes.objects.gang_jobs import job_id, job_of
from rota.drivers.kubernetes.objects.reading import read_pod
from rota.drivers.kubernetes.resources.reading import merged
from rota.drivers.kubernetes.settings import ClusterSettings

SETTINGS = ClusterSettings(hived_pods=True, fractions=True)
FACT_PATHS = {
    "Namespace": "/api/v1/namespaces",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PersistentVolumeClaim": "/api/v1/persistentvolumeclaims",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "CSINode": "/apis/storage.k8s.io/v1/csinodes",
    "ResourceSlice": DEVICE_PATH + "resourceslices",
    "DeviceClass": DEVICE_PATH + "deviceclasses",
    "ResourceClaim": DEVICE_PATH + "resourceclaims",
}
OWN_KINDS = ("Queue", "Topology", "SchedulingPolicy")
BATCH = 50


class StrangeCluster:
    """A cluster as the driver would see it, made of objects that may be nonsense."""

    def __init__(self) -> None:
        self.world = FilterState()
        self.world.devices.is_served = True
        headroom, occupancy = Headroom(), Occupancy()
        self.index = GangIndex(occupancy, PodPlaces(headroom, self.world))
        self.nodes = NodeCache(SETTINGS, occupancy, headroom, self.world)
        self.facts = ClusterFacts(None, self.world)  # type: ignore[arg-type]  # nothing is asked of a server
        self.own: list[Any] = []

    def see(self, kind: str, value: Any) -> None:
        """Take an object in as the driver, the webhook and `rota check` do."""
        mistakes_in(value, SETTINGS)
        warnings_in(value, SETTINGS)
        review = {"request": {"uid": "u", "operation": "CREATE", "object": value}}
        validated(review, SETTINGS)
        defaulted(review, SETTINGS)
        tasks_of(value)
        has_ended(value)
        owes_pods(value)
        if kind == "Pod":
            pod = read_pod(value, SETTINGS)
            if pod is not None:
                self.index.see(pod)
        elif kind == "Node":
            self.nodes.see(value, 0.0)
        elif kind in FACT_PATHS:
            self.facts.see(FACT_PATHS[kind], value)
        elif kind in OWN_KINDS and isinstance(value, dict):
            self.own.append(value)

    def look(self) -> None:
        """What a step does with all of it: settings, jobs, placements, filters."""
        merged(SETTINGS, self.own)
        for gang in self.index.gangs:
            members = list(gang.members.values())
            with suppress(RotaError):
                job_of(gang, members, SETTINGS, job_id(gang, members))
            with suppress(Unreadable):
                recover_gang(gang, self.nodes.nodes, SETTINGS)
            has_gaps(gang)
            path = maker_path(gang)
            assert path is None or ".." not in path.split("/")
            for pod in members:
                summary(verdicts(pod.facts, self.world, self.world.nodes))


def fuzz(objects: int, seed: int) -> Counter[str]:
    """Feed so many objects, and return how many there were of each kind."""
    rng = random.Random(seed)
    seen: Counter[str] = Counter()
    while seen.total() < objects:
        cluster = StrangeCluster()
        for _ in range(min(BATCH, objects - seen.total())):
            kind = rng.choice([*STRANGE_KINDS, "Pod", "Pod", "Node"])
            cluster.see(kind, STRANGE_KINDS[kind](rng))
            seen[kind] += 1
        cluster.look()
    return seen
