"""The driver and the loop on random clusters with constrained pods: what is bound suits, and nothing ends the loop.

The API server is a small stand-in that takes binds; the engine, the loop and the database are the real ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from e2e.kubernetes.random_pods import CopyOf, copy_of
from rota.drivers.kubernetes.driver import KubernetesDriver
from rota.drivers.kubernetes.filters.assignment import assume
from rota.drivers.kubernetes.filters.verdict import judge
from rota.drivers.kubernetes.filters.world import World
from rota.drivers.kubernetes.gangs.gang import Gang, Stage
from rota.drivers.kubernetes.objects.nodes import node_seen
from rota.drivers.kubernetes.objects.pods import Pod, pod_of
from rota.drivers.kubernetes.objects.volume_objects import claim_of, kind_of, volume_of
from rota.drivers.kubernetes.settings import ClusterSettings
from rota.live.loop.kubernetes_loop import boot_on_pods
from rota.store.database import open_database
from rota.store.records import Records

Json = dict[str, Any]
USUAL = ClusterSettings(check_every=1e6)
CASES = 24


class BindsOnly:
    """An API server that accepts every bind and binds every volume at once."""

    is_silent = False

    def __init__(self) -> None:
        self.nodes: dict[str, str] = {}

    async def patiently(self, method: str, path: str, body: Any, **_: Any) -> Json:
        if path.endswith("/binding"):
            self.nodes[path.removesuffix("/binding")] = body["target"]["name"]
        if method == "GET" and "/persistentvolumeclaims/" in path:
            meta = {"namespace": path.split("/")[4], "name": path.split("/")[-1]}
            meta["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}  # type: ignore[assignment]
            return {"metadata": meta, "spec": {"volumeName": "made"}}
        return {"metadata": {"resourceVersion": "1"}}


def with_uids(case: CopyOf) -> CopyOf:
    """Give pods what an API server adds."""
    for pod in (*case.there, *case.new):
        meta = pod["metadata"]
        meta |= {"uid": f"{meta['namespace']}-{meta['name']}", "creationTimestamp": "2026-01-01T00:00:00Z"}
        pod["status"] = {"phase": "Pending"}
    return case


def volumes_into(world: World, case: CopyOf) -> None:
    for each in case.others:
        meta = each["metadata"]
        match each["kind"]:
            case "PersistentVolume":
                world.volumes.volumes[meta["name"]] = volume_of({**each, "status": {"phase": "Available"}})
            case "PersistentVolumeClaim":
                world.volumes.claims[meta["namespace"], meta["name"]] = claim_of(each)
            case "StorageClass":
                world.volumes.kinds[meta["name"]] = kind_of(each)


async def outcome(cases: Sequence[CopyOf], folder: Path) -> tuple[dict[str, Gang], dict[str, str]]:
    """The gangs by namespace, and the nodes of bound pods by path, once all have been decided."""
    api = BindsOnly()
    driver = KubernetesDriver(api, USUAL)  # type: ignore[arg-type]  # what is asked of it here
    driver.nodes_listed([node for case in cases for node in case.nodes])
    driver.pods_listed([pod for case in cases for pod in case.there])
    for case in cases:
        volumes_into(driver.world, case)
    control, _ = boot_on_pods(Records(open_database(folder / "rota.db")), driver, USUAL)
    loop = asyncio.create_task(control.run(driver))
    await asyncio.sleep(0)
    driver.pods_changed([{"type": "ADDED", "object": pod} for case in cases for pod in case.new])
    gangs = {gang.key.namespace: gang for gang in driver.gang_index.gangs}
    try:
        for _ in range(600):
            await asyncio.sleep(0.05)
            assert not loop.done(), loop.exception()
            bound = sum(pod.path in api.nodes for gang in gangs.values() for pod in gang.members.values())
            wanted = sum(len(gang.members) for gang in gangs.values() if not gang.barred and not gang.refused)
            if bound == wanted:
                break
    finally:
        await driver.close()
        loop.cancel()
    return gangs, api.nodes


def fits(case: CopyOf, nodes: dict[str, str]) -> bool:
    """Whether the pods of a case suit their nodes in some order, one after the other, beside those that are there."""
    pods = [pod_of(pod, USUAL) for pod in case.new]
    return any(_in_order(case, order, nodes) for order in permutations(pods))


def _in_order(case: CopyOf, pods: Sequence[Pod], nodes: dict[str, str]) -> bool:
    world = World()
    for node in case.nodes:
        facts = node_seen(node, USUAL).facts
        assert facts is not None
        world.put_node(facts)
    volumes_into(world, case)
    for pod in case.there:
        world.put(pod_of(pod, USUAL).facts, pod["spec"]["nodeName"])
    for pod in pods:
        test = judge(pod.facts, world)
        node = world.nodes[nodes[pod.path]]
        if test is not None and test(node) is not None:
            return False
        assume(pod.facts, node.name, world)
    return True


@pytest.mark.slow
@pytest.mark.parametrize("first", [1, 101])
def test_gangs_are_bound_as_a_whole_to_nodes_that_suit(first: int, tmp_path: Path) -> None:
    cases = [with_uids(copy_of(seed, f"r{seed}", "rota", 36)) for seed in range(first, first + CASES)]

    gangs, nodes = asyncio.run(outcome(cases, tmp_path))

    placed = 0
    for case in cases:
        gang = gangs[case.mark]
        bound = [pod.path in nodes for pod in gang.members.values()]
        assert all(bound) or not any(bound), case.mark
        if all(bound):
            placed += 1
            assert gang.stage is Stage.PLACED
            assert fits(case, nodes), (case.mark, nodes)
        else:
            assert gang.barred or gang.refused, case.mark
    assert placed > CASES // 2
