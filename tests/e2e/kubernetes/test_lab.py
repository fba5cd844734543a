"""The five exercises with tenants, on a real API server: two machines of one GPU, two teams, promises in cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from e2e.kubernetes.bed import Bed
from e2e.kubernetes.hollow import Hollow, node_object
from e2e.kubernetes.replica import Replica, View
from managers import eventually

pytestmark = pytest.mark.slow
Launch = Callable[..., Replica]
Kubelets = Callable[..., Hollow]
CLASSES = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: prod}
value: 100
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: test}
value: 10
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: opportunistic}
value: -1
---
apiVersion: v1
kind: Namespace
metadata: {name: vc1}
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  parallelism: {tasks}
  completions: {tasks}
  template:
    metadata: {{annotations: {{{notes}}}}}
    spec:
      schedulerName: rota
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      {priority}
      containers:
        - {{name: main, image: "example/none:1", resources: {{limits: {{nvidia.com/gpu: 1}}}}}}
"""


def lab(default: int, vc1: int) -> dict[str, Any]:
    """Settings in which the tenants own so many of the two machines."""
    owned = {"default": default, "vc1": vc1}
    return {
        "policy": "fifo",
        "tenancy": "cells",
        "hived": {
            "physicalCluster": {
                "cellTypes": {
                    "BOX": {"childCellType": "T4", "childCellNumber": 1, "isNodeLevel": True},
                    "ROOM": {"childCellType": "BOX", "childCellNumber": 2},
                },
                "physicalCells": [
                    {"cellType": "ROOM", "cellChildren": [{"cellAddress": "carol"}, {"cellAddress": "dan"}]}
                ],
            },
            "virtualClusters": {
                name: {"virtualCells": [{"cellType": "ROOM.BOX", "cellNumber": count}]}
                for name, count in owned.items()
                if count
            },
        },
    }


class Lab:
    """The two machines, and jobs on them."""

    def __init__(self, bed: Bed) -> None:
        self._bed = bed
        self._view = View(bed.admin)
        bed.admin.apply(CLASSES)
        for name in ("carol", "dan"):
            bed.admin.make(node_object(name, 1))

    def submit(self, name: str, tenant: str, *, priority: str = "", tasks: int = 1, run_s: float | None = None) -> None:
        notes = "" if run_s is None else f'hollow/run-s: "{run_s}"'
        chosen = f"priorityClassName: {priority}" if priority else ""
        text = JOB.format(name=name, namespace=tenant, tasks=tasks, notes=notes, priority=chosen)
        yaml.safe_load(text)
        self._bed.admin.apply(text)

    def runs(self, name: str, tenant: str) -> bool:
        pods = [pod for pod_name, pod in self._view.pods(tenant).items() if pod_name.startswith(f"{name}-")]
        alive = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        return bool(alive) and all(pod["status"]["phase"] == "Running" for pod in alive)

    def waits(self, name: str, tenant: str) -> str:
        for pod_name in self._view.pods(tenant):
            if pod_name.startswith(f"{name}-") and (said := self._view.waiting_for(pod_name, tenant)):
                return said
        return ""


@pytest.fixture
def exercise(managed: Bed, launch: Launch, kubelets: Kubelets) -> Callable[[int, int], Lab]:
    def begin(default: int, vc1: int) -> Lab:
        made = Lab(managed)
        kubelets(managed, nodes=0, beats=True)
        launch(managed, lab(default, vc1))
        return made

    return begin


def test_a_tenant_is_safe_from_the_others(exercise: Callable[[int, int], Lab]) -> None:
    lab = exercise(1, 1)
    lab.submit("first", "vc1")
    eventually(lambda: lab.runs("first", "vc1"))
    lab.submit("second", "vc1")

    assert eventually(lambda: lab.waits("second", "vc1")).startswith("quota-used: needs 1 device; tenant vc1")
    lab.submit("third", "default")
    eventually(lambda: lab.runs("third", "default"))
    assert not lab.runs("second", "vc1")


def test_priority_preempts_inside_a_tenant_and_the_other_goes_on_afterwards(
    exercise: Callable[[int, int], Lab],
) -> None:
    lab = exercise(1, 1)
    lab.submit("test", "vc1", priority="test")
    eventually(lambda: lab.runs("test", "vc1"))
    lab.submit("prod", "vc1", priority="prod", run_s=3)

    eventually(lambda: lab.runs("prod", "vc1"))
    assert not lab.runs("test", "vc1")
    eventually(lambda: lab.runs("test", "vc1"))


def test_work_without_a_guarantee_uses_what_is_idle_and_yields(exercise: Callable[[int, int], Lab]) -> None:
    lab = exercise(1, 1)
    lab.submit("prod", "vc1", priority="prod")
    lab.submit("oppo", "vc1", priority="opportunistic")
    eventually(lambda: lab.runs("prod", "vc1") and lab.runs("oppo", "vc1"))
    lab.submit("owner", "default", run_s=3)

    eventually(lambda: lab.runs("owner", "default"))
    assert not lab.runs("oppo", "vc1")
    assert lab.runs("prod", "vc1")
    eventually(lambda: lab.runs("oppo", "vc1"))


def test_a_gang_starts_whole_or_not_at_all(exercise: Callable[[int, int], Lab]) -> None:
    lab = exercise(2, 0)
    lab.submit("single", "default", run_s=4)
    eventually(lambda: lab.runs("single", "default"))
    lab.submit("gang", "default", tasks=2)

    assert eventually(lambda: lab.waits("gang", "default"))
    assert not lab.runs("gang", "default")
    eventually(lambda: lab.runs("gang", "default"))


def test_tasks_that_need_not_start_together_start_one_by_one(exercise: Callable[[int, int], Lab]) -> None:
    lab = exercise(2, 0)
    lab.submit("single", "default", run_s=5)
    eventually(lambda: lab.runs("single", "default"))
    lab.submit("task-1", "default")
    eventually(lambda: lab.runs("task-1", "default"))
    lab.submit("task-2", "default")

    assert eventually(lambda: lab.waits("task-2", "default"))
    eventually(lambda: lab.runs("task-2", "default"))
