"""Recovery of slots from bound pods after a crash, also when the controller wants fewer pods by then."""

from __future__ import annotations

import pytest

from builders import cluster, node
from drivers.kubernetes.objects import pod_object
from rota.core.errors import RotaError
from rota.core.model.job import Elastic, JobId
from rota.core.model.placement import Slot
from rota.drivers.kubernetes.gangs.gang import Gang, key_of
from rota.drivers.kubernetes.objects.binding_annotations import (
    assign_slots,
    binding_note,
    has_gaps,
    recover_gang,
    restore_slots,
)
from rota.drivers.kubernetes.objects.gang_jobs import job_of
from rota.drivers.kubernetes.objects.pods import Pod, PodPhase, pod_of
from rota.drivers.kubernetes.settings import ClusterSettings

USUAL = ClusterSettings()
NODES = cluster(node("n1", 4), node("n2", 4)).nodes
WORKERS = [pod_object(f"w-{number}", owner=("RayCluster", "ray")) for number in range(4)]
HEAD = pod_object("head", gpus=0, owner=("RayCluster", "ray"), labels={"ray.io/node-type": "head"})
PLACEMENT = (Slot(0, 0, role=0), Slot(0, 0b11, tasks=2, role=1), Slot(1, 0b1100, tasks=2, role=1))
"""The head without devices, two workers on each node."""


def bound(*names: str) -> Gang:
    """The gang as a restart finds it: all of it was bound, these pods are left."""
    pods = [pod_of(value, USUAL) for value in (HEAD, *WORKERS)]
    before = Gang(key_of(pods[0]), members={pod.uid: pod for pod in pods})
    before.job = job_of(before, pods, USUAL, JobId("ray-1"))
    assign_slots(before, PLACEMENT, NODES.__getitem__)
    left: dict[str, Pod] = {}
    for slot, pod in zip(before.slots, pods, strict=True):
        pod.node, pod.phase = str(slot.task.node.id), PodPhase.RUNNING
        pod.annotations = {**pod.annotations, **binding_note(before, slot.task, pod)}
        if pod.name in names:
            left[pod.uid] = pod
    return Gang(before.key, owner=pods[0].owner, members=left)


@pytest.mark.parametrize(
    ("wanted", "ranks"),
    [
        pytest.param(None, (0, 1, 2, 3, 4), id="nobody-can-say"),
        pytest.param(5, (0, 1, 2, 3, 4), id="the-others-are-to-come"),
        pytest.param(4, (0, 1, 2, 4), id="one-is-to-come"),
        pytest.param(3, (0, 2, 4), id="all-are-there"),
        pytest.param(1, (0, 2, 4), id="some-have-still-to-go"),
    ],
)
def test_slots_that_no_pod_will_take_are_released(wanted: int | None, ranks: tuple[int, ...]) -> None:
    gang = bound("head", "w-1", "w-3")
    gang.wanted = wanted

    found = recover_gang(gang, NODES, USUAL)

    assert has_gaps(gang)
    assert found is not None
    assert found.ranks == ranks
    assert found.job.tasks == len(ranks)
    restore_slots(gang, found, NODES)
    taken = {slot.task.rank: slot.pod for slot in gang.slots if slot.pod is not None}
    assert taken == {0: "uid-of-head", 2: "uid-of-w-1", 4: "uid-of-w-3"}
    assert [slot.task.devices for slot in gang.slots if slot.task.rank in taken] == [(), (1,), (3,)]


def test_role_of_which_nobody_is_left_is_gone() -> None:
    gang = bound("w-0", "w-2")
    gang.wanted = 2

    found = recover_gang(gang, NODES, USUAL)

    assert found is not None
    assert [(role.name, role.count) for role in found.job.roles] == [("worker", 2)]
    assert found.placement == (Slot(0, 0b1), Slot(1, 0b100))


def test_whole_gang_has_no_gaps() -> None:
    assert not has_gaps(bound("head", "w-0", "w-1", "w-2", "w-3"))


@pytest.mark.parametrize(
    ("wanted", "most"),
    [
        pytest.param(None, 2, id="nobody-can-say"),
        pytest.param(4, 4, id="the-others-are-to-come"),
        pytest.param(1, 2, id="some-have-still-to-go"),
    ],
)
def test_elastic_gang_keeps_its_bounds_while_evicted_pods_are_missing(wanted: int | None, most: int) -> None:
    values = [pod_object(f"w-{n}", owner=("Job", "x"), annotations={"rota.dev/min-tasks": "1"}) for n in range(4)]
    pods = [pod_of(value, USUAL) for value in values]
    gang = Gang(key_of(pods[0]), owner=pods[0].owner, members={pod.uid: pod for pod in pods[:2]})
    gang.job = job_of(gang, pods, USUAL, JobId("x-1"))
    assign_slots(gang, (Slot(0, 0b11, tasks=2),), NODES.__getitem__)
    for slot, pod in zip(gang.slots, pods[:2], strict=True):
        pod.node, pod.phase = str(slot.task.node.id), PodPhase.RUNNING
        pod.annotations = {**pod.annotations, **binding_note(gang, slot.task, pod)}
    gang.wanted = wanted

    found = recover_gang(gang, NODES, USUAL)

    assert has_gaps(gang)
    assert found is not None
    assert found.job.elastic == Elastic(min_tasks=1, max_tasks=most)
    assert found.placement == (Slot(0, 0b1), Slot(0, 0b10))


@pytest.mark.parametrize("name", ["tasks", "min-tasks", "max-tasks"])
def test_number_of_tasks_that_is_none_is_refused_by_name(name: str) -> None:
    pod = pod_of(pod_object(labels={"rota.dev/job": "x", f"rota.dev/{name}": "two"}), USUAL)

    with pytest.raises(RotaError, match=f"rota.dev/{name} is 'two'; write a whole number above 0"):
        job_of(Gang(key_of(pod)), [pod], USUAL, JobId("x"))
