"""Pods get the order of their ranks, interfaces and turns by annotation, and keep them over a restart."""

from __future__ import annotations

from typing import Any

import pytest

from builders import cluster, node
from drivers.kubernetes.objects import pod_object
from rota.core.errors import RotaError
from rota.core.model.cluster import Node
from rota.core.model.job import JobId
from rota.core.model.placement import Slot
from rota.drivers.kubernetes.gangs.gang import Gang, Stage, key_of
from rota.drivers.kubernetes.gangs.gang_links import GangLinks
from rota.drivers.kubernetes.objects.binding_annotations import (
    assign_slots,
    binding_note,
    fill,
    recover_gang,
    restore_slots,
)
from rota.drivers.kubernetes.objects.gang_jobs import job_of
from rota.drivers.kubernetes.objects.job_objects import objects_of
from rota.drivers.kubernetes.objects.pods import PodPhase, pod_of
from rota.drivers.kubernetes.settings import ClusterSettings, read_settings
from rota.files.job import job_file

SETTINGS = read_settings(
    """
network:
  topology: fat-tree
  per_leaf: 2
  spines: 1
  oversubscription: 2
  link: 8Gbps
  between: cassini
  interface: eth1
  models: {mine: {compute: 600ms, bytes: 400MB, overlap: 0}}
""",
    "rota.yaml",
)
NODES = cluster(*(node(f"n{number}", 4) for number in range(1, 5))).nodes
SCATTERED = tuple(Slot(number, 1) for number in (0, 2, 1, 3))


def gang_of(name: str, settings: ClusterSettings, tasks: int = 4) -> Gang:
    """A gang of pods with a device each."""
    notes = {"rota.dev/tasks": str(tasks), "rota.dev/model": "mine"}
    values = [pod_object(f"{name}-{n}", gpus=1, owner=("Job", name), annotations=notes) for n in range(tasks)]
    pods = [pod_of(value, settings) for value in values]
    gang = Gang(key_of(pods[0]), members={pod.uid: pod for pod in pods})
    gang.job = job_of(gang, pods, settings, JobId(name))
    gang.stage = Stage.PLACED
    return gang


def placed(links: GangLinks, gang: Gang, beside: list[Gang], nodes: tuple[Node, ...] = NODES) -> Gang:
    """The gang after its start."""
    terms = links.begin(gang, SCATTERED, nodes, [*beside, gang], nodes.__getitem__)
    assign_slots(gang, SCATTERED, nodes.__getitem__, terms)
    return gang


def bound(gang: Gang) -> Gang:
    """The gang as a restart finds it."""
    for slot, pod in fill(gang):
        pod.annotations = {**pod.annotations, **binding_note(gang, slot.task, pod)}
        pod.node, pod.phase = str(slot.task.node.id), PodPhase.RUNNING
    return Gang(gang.key, owner=gang.owner, members=gang.members)


def test_ranks_follow_the_links_and_survive_a_restart() -> None:
    first = placed(GangLinks(SETTINGS), gang_of("a", SETTINGS), [])
    assert [str(slot.task.node.id) for slot in first.slots] == ["n1", "n2", "n3", "n4"]

    again = bound(first)
    found = recover_gang(again, NODES, SETTINGS)
    assert found is not None
    restore_slots(again, found, NODES)

    assert {pod.name: pod.node for pod in again.members.values()} == {
        "a-0": "n1",
        "a-1": "n2",
        "a-2": "n3",
        "a-3": "n4",
    }
    assert [(slot.task.rank, slot.pod) for slot in again.slots] == [(n, f"uid-of-a-{n}") for n in range(4)]
    assert again.links is not None
    assert first.links is not None
    assert (again.links.period_s, again.links.variables) == (
        first.links.period_s,
        {
            "GLOO_SOCKET_IFNAME": "eth1",
            "NCCL_SOCKET_IFNAME": "eth1",
        },
    )


@pytest.mark.parametrize("restarts", [False, True])
def test_second_gang_takes_its_turn_beside_the_first(restarts: bool) -> None:
    links = GangLinks(SETTINGS)
    first = placed(links, gang_of("a", SETTINGS), [])
    period_s = float(binding_note(first, first.slots[0].task, next(iter(first.members.values())))["rota.dev/period"])
    if restarts:
        first, old = bound(first), first
        found = recover_gang(first, NODES, SETTINGS)
        assert found is not None
        restore_slots(first, found, NODES)
        first.stage, first.job = Stage.PLACED, old.job
        links = GangLinks(SETTINGS)

    second = placed(links, gang_of("b", SETTINGS), [first])

    assert second.links is not None
    assert 0.25 * period_s < second.links.shift_s < 0.75 * period_s


def test_network_that_does_not_fit_is_done_without() -> None:
    torus = read_settings("network: {topology: torus, shape: [3, 3]}", "rota.yaml")
    gang = placed(GangLinks(torus), gang_of("a", torus), [])

    assert gang.links is None
    assert [str(slot.task.node.id) for slot in gang.slots] == ["n1", "n3", "n2", "n4"]


def test_nodes_that_join_are_known() -> None:
    links = GangLinks(SETTINGS)
    few = cluster(*(node(f"n{number}", 4) for number in (1, 3, 2, 4))).nodes
    gang = placed(links, gang_of("a", SETTINGS), [], few)
    assert [str(slot.task.node.id) for slot in gang.slots] == ["n1", "n3", "n2", "n4"]  # n1 and n3 share a switch

    gang = placed(links, gang_of("b", SETTINGS), [gang])

    assert [str(slot.task.node.id) for slot in gang.slots] == ["n1", "n2", "n3", "n4"]


def test_pods_of_a_job_file_read_their_variables_from_annotations() -> None:
    def env(**fields: Any) -> dict[str, Any]:
        file = {"image": "example/train:1", "run": "true", "resources": {"gpus": 1}, **fields}
        made = objects_of(job_file(file), "ab12", "nlp")[0]["spec"]["template"]["spec"]["containers"][0]["env"]
        return {each["name"]: each.get("value") or each["valueFrom"]["fieldRef"]["fieldPath"] for each in made}

    found = env(workers=4, labels={"collective": "ring"})

    assert found["ROTA_SHIFT_S"] == "metadata.annotations['rota.dev/shift']"
    assert found["GLOO_SOCKET_IFNAME"] == "metadata.annotations['rota.dev/interface']"
    assert found["NCCL_ALGO"] == "Ring"
    assert "ROTA_SHIFT_S" not in env()


def test_unusable_network_is_refused_with_the_settings() -> None:
    from rota.api.serve_cluster import check_settings

    check_settings(SETTINGS)
    with pytest.raises(RotaError, match="network"):
        check_settings(read_settings("network: {topology: fat-tree, shape: [2, 2]}", "rota.yaml"))
