"""Running pods whose annotations were changed: after a restart they run on, and other pods are not affected."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import cluster, node
from drivers.kubernetes.objects import pod_object
from drivers.kubernetes.strange_objects import NAMES, WORDS
from rota.core.model.job import JobId
from rota.core.model.placement import Slot
from rota.drivers.kubernetes.gangs.gang import Gang, key_of
from rota.drivers.kubernetes.objects.binding_annotations import (
    BoundTask,
    Unreadable,
    assign_slots,
    binding_note,
    recover_gang,
    restore_slots,
)
from rota.drivers.kubernetes.objects.gang_jobs import job_of
from rota.drivers.kubernetes.objects.pods import Pod, PodPhase, pod_of
from rota.drivers.kubernetes.settings import ClusterSettings

USUAL = ClusterSettings()
NODES = cluster(node("n1", 4), node("n2", 4)).nodes
PLACEMENT = (Slot(0, 0b11, tasks=2), Slot(1, 0b11, tasks=2))


def running(settings: ClusterSettings = USUAL, **more: Any) -> Gang:
    """A gang of four pods as a restart finds it; all of them run."""
    labels = {"rota.dev/job": "g", **more.pop("labels", {})}
    pods = [pod_of(pod_object(f"g-{number}", labels=labels, **more), settings) for number in range(4)]
    gang = Gang(key_of(pods[0]), members={pod.uid: pod for pod in pods})
    gang.job = job_of(gang, pods, settings, JobId("g-1"))
    assign_slots(gang, PLACEMENT, NODES.__getitem__)
    for slot, pod in zip(gang.slots, pods, strict=True):
        pod.node, pod.phase = str(slot.task.node.id), PodPhase.RUNNING
        pod.annotations = {**pod.annotations, **binding_note(gang, slot.task, pod)}
    return Gang(gang.key, members=gang.members)


def change(gang: Gang, name: str, value: str, *, all_pods: bool = True) -> None:
    for pod in list(gang.members.values())[-1 if not all_pods else 0 :]:
        pod.annotations = {**pod.annotations, name: value}


def restored(gang: Gang, settings: ClusterSettings = USUAL) -> BoundTask:
    found = recover_gang(gang, NODES, settings)
    assert found is not None
    restore_slots(gang, found, NODES)
    return found


@pytest.mark.parametrize("all_pods", [True, False], ids=["all-pods", "one-pod"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("time-limit", "2 hours"),
        ("estimate", "NaN"),
        ("relax-after", "²"),
        ("locality", "continent"),
        ("checkpoint", "often"),
        ("queue", "of-others"),
        ("tasks", "9" * 5000),
        ("min-tasks", "-1"),
        ("seat", "1e400000000"),
        ("size", "many"),
    ],
)
def test_gang_whose_pods_say_nonsense_keeps_its_slots(name: str, value: str, all_pods: bool) -> None:
    gang = running()
    change(gang, f"rota.dev/{name}", value, all_pods=all_pods)

    found = restored(gang)

    assert (found.placement, found.job.id, found.job.tasks) == (PLACEMENT, "g-1", 4)
    assert sorted(str(slot.pod) for slot in gang.slots) == sorted(gang.members)
    assert all(gang.members[str(slot.pod)].node == slot.task.node.id for slot in gang.slots)


def test_nonsense_costs_nothing_else_that_the_pods_ask_for() -> None:
    notes = {"rota.dev/time-limit": "3h", "rota.dev/exclusive": "true", "rota.dev/locality": "rack:hard"}
    gang = running(annotations=notes)
    before = restored(running(annotations=notes)).job
    change(gang, "rota.dev/time-limit", "2 hours")

    assert restored(gang).job == dataclasses.replace(before, time_limit_s=None)


def test_queue_or_level_that_the_settings_no_longer_have_stops_nothing() -> None:
    old = ClusterSettings(queues={"default": ("nlp", "vision")}, topology=("example.com/rack",))
    new = ClusterSettings(topology=("example.com/block",))
    gang = running(
        old, labels={"rota.dev/queue": "nlp"}, annotations={"rota.dev/topology-required": "example.com/rack"}
    )

    assert restored(gang, new).placement == PLACEMENT


def test_one_pod_with_another_placement_does_not_decide_for_the_gang() -> None:
    gang = running()
    change(gang, "rota.dev/placement", "[" * 5000, all_pods=False)

    assert restored(gang).placement == PLACEMENT


@pytest.mark.parametrize("value", ["", "[]", "{}", "null", '[["n3",[0],1,0,1000]]'])
def test_gang_whose_placement_nobody_can_read_is_no_gang_to_be_cleared_away(value: str) -> None:
    gang = running()
    change(gang, "rota.dev/placement", value)

    with pytest.raises(Unreadable):
        recover_gang(gang, NODES, USUAL)


@settings(max_examples=300)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(NAMES), st.sampled_from(WORDS)), max_size=6))
def test_nothing_makes_pods_look_like_those_of_a_broken_gang(changes: list[tuple[int, str, str]]) -> None:
    """Only pods of a gang that lacks some are evicted at a start."""
    gang = running()
    pods = list(gang.members.values())
    for number, name, value in changes:
        pods[number].annotations = {**pods[number].annotations, name: value}
    with suppress(Unreadable):
        assert recover_gang(gang, NODES, USUAL) is not None


def test_pods_that_are_not_bound_are_none_of_this() -> None:
    pod: Pod = pod_of(pod_object("p", annotations={"rota.dev/placement": "x"}), USUAL)
    assert recover_gang(Gang(key_of(pod), members={pod.uid: pod}), NODES, USUAL) is None
