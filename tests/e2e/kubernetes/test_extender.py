"""Rota in HiveD's place behind the stock kube-scheduler."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.kubernetes.bed import Bed, binary
from e2e.kubernetes.hollow import Hollow, node_object
from e2e.kubernetes.replica import Replica, View, pod
from e2e.kubernetes.test_lab import lab
from managers import eventually
from ports import free_port

pytestmark = pytest.mark.slow
Json = dict[str, Any]
HIVED = "hivedscheduler.microsoft.com/"


def hived_pod(name: str, tenant: str, *, group: str, members: int, priority: int = 0) -> Json:
    asked = {
        "virtualCluster": tenant,
        "priority": priority,
        "leafCellType": "T4",
        "leafCellNumber": 1,
        "affinityGroup": {"name": group, "members": [{"podNumber": members, "leafCellNumber": 1}]},
    }
    made = pod(name, 0, notes={HIVED + "pod-scheduling-spec": yaml.safe_dump(asked)}, schedulerName="hived")
    made["spec"]["containers"][0]["resources"] = {"limits": {HIVED + "pod-scheduling-enable": "1"}}
    return made


@pytest.fixture
def stock(bed: Bed, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Starts a kube-scheduler that asks an extender."""
    program = binary("kube-scheduler")
    if program is None:
        pytest.skip("there is no kube-scheduler; tests/e2e/kubernetes/build can make one")
    running: list[subprocess.Popen[bytes]] = []

    def begin(url: str) -> None:
        port = free_port()
        extender = {
            "urlPrefix": f"{url}/v1/extender",
            "filterVerb": "filter",
            "preemptVerb": "preempt",
            "bindVerb": "bind",
            "weight": 1,
            "nodeCacheCapable": True,
            "managedResources": [{"name": HIVED + "pod-scheduling-enable", "ignoredByScheduler": True}],
        }
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1beta1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "healthzBindAddress": f"127.0.0.1:{port}",
            "metricsBindAddress": f"127.0.0.1:{port}",
            "percentageOfNodesToScore": 100,
            "clientConnection": {"kubeconfig": str(bed.kubeconfig("admin-token"))},
            "profiles": [{"schedulerName": "hived"}],
            "extenders": [extender],
        }
        path = tmp_path / "scheduler.yaml"
        path.write_text(yaml.safe_dump(config))
        with (tmp_path / "scheduler.log").open("ab") as log:
            options = [f"--config={path}", f"--secure-port={free_port()}", "--bind-address=127.0.0.1"]
            running.append(subprocess.Popen([str(program), *options], stdout=log, stderr=log))

    yield begin
    for process in running:
        process.kill()
        process.wait()


def test_pods_of_hived_are_placed_in_cells_and_told_their_devices(
    bed: Bed,
    view: View,
    launch: Callable[..., Replica],
    kubelets: Callable[..., Hollow],
    stock: Callable[[str], None],
) -> None:
    for name in ("carol", "dan"):
        bed.admin.make(node_object(name, 1))
    kubelets(bed, nodes=0)
    replica = launch(bed, {**lab(2, 0), "scheduler_name": "hived", "hived_pods": True}, verb="extender")
    stock(replica.url)

    for number in range(2):
        bed.admin.make(hived_pod(f"pair-{number}", "default", group="default/pair", members=2))
    eventually(lambda: len(view.bound("pair")) == 2)
    bed.admin.make(hived_pod("late", "default", group="default/late", members=1))

    assert set(view.bound("pair").values()) == {"carol", "dan"}
    for made in view.pods().values():
        if made["metadata"]["name"].startswith("pair"):
            assert made["metadata"]["annotations"][HIVED + "pod-leaf-cell-isolation"] == "0"
    assert eventually(lambda: view.waiting_for("late"))
    bed.admin.delete("/api/v1/namespaces/default/pods/pair-0")
    bed.admin.delete("/api/v1/namespaces/default/pods/pair-1")
    eventually(lambda: view.node_of("late"))
