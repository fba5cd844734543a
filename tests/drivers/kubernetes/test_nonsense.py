"""Whatever users put into pods, nodes, controllers and settings: it is read or refused, and nothing is raised."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drivers.kubernetes.objects import node_object, pod_object
from drivers.kubernetes.strange_objects import BOMB, HIVED, NAMES, WORDS, any_pod, spoiled
from rota.core.errors import RotaError
from rota.drivers.kubernetes.api.quantity import milli, plain_number, whole
from rota.drivers.kubernetes.filters.world import FilterState
from rota.drivers.kubernetes.gangs.gang_index import GangIndex
from rota.drivers.kubernetes.gangs.headroom import Headroom
from rota.drivers.kubernetes.gangs.occupancy import Occupancy
from rota.drivers.kubernetes.gangs.pod_places import PodPlaces
from rota.drivers.kubernetes.objects.binding_annotations import Unreadable, has_gaps, recover_gang
from rota.drivers.kubernetes.objects.controller_sizes import has_ended, maker_path, owes_pods, tasks_of
from rota.drivers.kubernetes.objects.gang_jobs import job_id, job_of
from rota.drivers.kubernetes.objects.reading import name_of, read_node, read_pod, uid_of
from rota.drivers.kubernetes.settings import ClusterSettings, read_settings

Json = dict[str, Any]
SETTINGS = ClusterSettings(hived_pods=True)


def take_in(objects: list[Any]) -> None:
    """What the driver does with pods, up to their jobs and placements."""
    index = GangIndex(Occupancy(), PodPlaces(Headroom(), FilterState()))
    seen = read_node(node_object("n1"), SETTINGS)
    assert seen is not None
    for value in objects:
        pod = read_pod(value, SETTINGS)
        if pod is not None:
            index.see(pod)
    for gang in index.gangs:
        members = list(gang.members.values())
        with suppress(RotaError):
            job_of(gang, members, SETTINGS, job_id(gang, members))
        with suppress(Unreadable):
            recover_gang(gang, [seen.node], SETTINGS)
        has_gaps(gang)
        path = maker_path(gang)
        assert path is None or ".." not in path.split("/")


@pytest.mark.parametrize(
    "spec", [{"terminationGracePeriodSeconds": 1 << 40}, {"priority": 1 << 31}, {"tolerations": [1]}]
)
def test_pod_that_makes_no_sense_holds_its_devices(spec: Json) -> None:
    value = pod_object("strange", gpus=3, spec={"schedulerName": "other", "nodeName": "n1", **spec})
    pod = read_pod(value, SETTINGS)
    assert pod is not None
    occupancy = Occupancy()
    GangIndex(occupancy, PodPlaces(Headroom(), FilterState())).see(pod)
    assert occupancy.devices("n1") == 3


@pytest.mark.slow
@pytest.mark.attack("pods with any nonsense in any field, 10,000 of them", stopped_by="one reader that refuses by name")
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_no_pod_is_too_strange(rng: random.Random) -> None:
    rng = random.Random(rng.getrandbits(64))
    for _ in range(10):
        take_in([any_pod(rng) for _ in range(10)])


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_no_node_controller_or_settings_is_too_strange(rng: random.Random) -> None:
    rng = random.Random(rng.getrandbits(64))
    job = {"kind": "Job", "apiVersion": "batch/v1", "spec": {"parallelism": 2, "completions": 1}, "status": {}}
    ray = {"kind": "RayCluster", "spec": {"workerGroupSpecs": [{"replicas": 1, "numOfHosts": 2}]}}
    trained = {"kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}}
    group = {"kind": "PodGroup", "metadata": {"name": "g", "uid": "u"}, "spec": {"minMember": 4}}
    labels = {name: rng.choice(WORDS) for name in ("nvidia.com/gpu.memory", "rota.dev/sockets")}
    read_node(spoiled(rng, node_object(labels=labels)), SETTINGS)
    for value in (job, ray, trained, group):
        strange = spoiled(rng, value)
        tasks_of(strange)
        has_ended(strange)
        owes_pods(strange)
        assert isinstance(name_of(strange) + uid_of(strange), str)
    with suppress(RotaError):
        read_settings(rng.choice(WORDS), "ConfigMap")


@pytest.mark.parametrize("word", WORDS, ids=[ascii(word[:12]) for word in WORDS])
def test_no_word_costs_more_than_its_length(word: str) -> None:
    begun_s = time.thread_time()
    plain_number(word)
    whole(word)
    milli(word)
    take_in([pod_object(annotations=dict.fromkeys(NAMES, word), labels=dict.fromkeys(NAMES, word))])

    assert time.thread_time() - begun_s < 0.5


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        pytest.param(
            f"rota.dev/{name}",
            value,
            word,
            marks=pytest.mark.attack(f"rota.dev/{name}: {value[:12]!r}", stopped_by=f"refused: {word}"),
        )
        for name, value, word in [
            ("tasks", "²", "write a whole number"),
            ("tasks", "9" * 5000, "write a whole number"),
            ("max-tasks", "abc", "write a whole number"),
            ("gpu-memory", "1e400000000", "write it like 40Gi"),
            ("gpu", "x," * 5000, "names more than 64 types"),
            ("job", "x" * 300, "is too long"),
        ]
    ],
)
def test_annotation_that_makes_no_sense_is_refused_by_name(name: str, value: str, word: str) -> None:
    pod = read_pod(pod_object(annotations={name: value}), SETTINGS)

    assert pod is not None
    assert name in pod.wants.refused
    assert word in pod.wants.refused
    assert len(pod.wants.refused) < 300


@pytest.mark.attack("a YAML bomb in HiveD's annotation", stopped_by="the bound on aliases; the pod is refused")
def test_bomb_in_hiveds_annotation_is_refused_quickly() -> None:
    begun_s = time.thread_time()
    pod = read_pod(pod_object(annotations={HIVED: BOMB}), SETTINGS)

    assert pod is not None
    assert "it has more than 1000 values" in pod.wants.refused
    assert time.thread_time() - begun_s < 0.2


def test_running_pod_that_makes_no_sense_still_holds_its_node() -> None:
    value = pod_object(spec={"nodeName": "n1", "containers": 7}, status={"phase": "Running"})

    pod = read_pod(value, SETTINGS)

    assert pod is not None
    assert pod.holds
    assert pod.node == "n1"
    assert "can't be read" in pod.wants.refused


@pytest.mark.attack(
    "an owner whose kind and name are a path into another namespace", stopped_by="no path is made of it"
)
def test_owner_that_is_a_path_is_not_followed() -> None:
    value = pod_object(owner=("Job", "../../../kube-system/secrets/x"))
    value["metadata"]["ownerReferences"][0]["kind"] = "Job/../x"
    index = GangIndex(Occupancy(), PodPlaces(Headroom(), FilterState()))
    pod = read_pod(value, SETTINGS)
    assert pod is not None
    index.see(pod)

    assert maker_path(index.gangs[0]) is None
