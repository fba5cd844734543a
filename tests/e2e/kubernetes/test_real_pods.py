"""Pods that really run: kubelet and containerd of this machine, gangs bound by Rota, output and exit as they come."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.kubernetes.bed import Bed, NoCluster, binaries
from e2e.kubernetes.kubelet import IMAGE, Kubelet
from e2e.kubernetes.replica import Replica, View, gang, pod, rota
from managers import eventually

pytestmark = pytest.mark.slow
Json = dict[str, Any]
MOST_BETWEEN = 3
"""Releases by which a kubelet may be older than its API server."""
NATIVE_SIDECARS = 29
"""The release since which an init container may run beside the others."""


@pytest.fixture
def real(bed: Bed) -> Iterator[Kubelet]:
    yield from real_node(bed)


@pytest.fixture
def real_managed(managed: Bed) -> Iterator[Kubelet]:
    yield from real_node(managed)


def real_node(bed: Bed) -> Iterator[Kubelet]:
    """A node of this machine; skip with the reason where none can be started."""
    try:
        node = Kubelet(bed)
    except NoCluster as error:
        pytest.skip(str(error))
    try:
        node.start()
    except NoCluster as error:
        node.stop()
        pytest.skip(str(error))
    yield node
    node.stop()


def test_gang_really_runs_on_its_devices_and_ends(
    bed: Bed, view: View, real: Kubelet, launch: Callable[..., Replica]
) -> None:
    launch(bed)
    note = {"fieldRef": {"fieldPath": "metadata.annotations['rota.dev/devices']"}}
    container: dict[str, Any] = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", 'echo "devices $DEVICES"; exit $CODE'],
        "env": [{"name": "DEVICES", "valueFrom": note}, {"name": "CODE", "value": "0"}],
        "resources": {"limits": {"nvidia.com/gpu": "2"}},
    }
    for value in gang("real", 2, 2, hostNetwork=True, restartPolicy="Never", containers=[container]):
        bed.admin.make(value)

    def have_succeeded() -> bool:
        return all(each["status"]["phase"] == "Succeeded" for each in view.pods().values())

    eventually(have_succeeded, within_s=60)
    assert [rota(bed, "logs", "real", "--task", task).stdout for task in "01"] == ["devices 0,1\n", "devices 2,3\n"]
    assert "the job has 2 tasks" in rota(bed, "logs", "real", "--task", "2").stderr

    container["env"][1] = {"name": "CODE", "value": "3"}
    bed.admin.make(pod("bad", 1, hostNetwork=True, restartPolicy="Never", containers=[container]))
    followed = rota(bed, "logs", "-f", "bad")
    assert (followed.returncode, followed.stdout, followed.stderr) == (100, "devices 0,1\n", "job bad failed\n")


def shell(name: str, command: str, **more: Any) -> Json:
    """A container that runs a shell command."""
    return {"name": name, "image": IMAGE, "imagePullPolicy": "Never", "command": ["/bin/sh", "-c", command], **more}


def kubectl(bed: Bed, *args: str) -> str:
    program = binaries("kubectl")["kubectl"]
    config = f"--kubeconfig={bed.kubeconfig('admin-token')}"
    done = subprocess.run([program, config, *args], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def local_volume(bed: Bed, folder: Path) -> None:
    """A volume in a folder of this machine, and a claim that waits for its first consumer."""
    rule = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["localhost"]}
    common: Json = {"accessModes": ["ReadWriteOnce"], "storageClassName": "real"}
    for value in (
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "real"},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "real"},
            "spec": {
                **common,
                "capacity": {"storage": "1Gi"},
                "local": {"path": str(folder)},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "real", "namespace": "default"},
            "spec": {**common, "resources": {"requests": {"storage": "1Gi"}}},
        },
    ):
        bed.admin.make(value)


def test_volume_sidecar_preemption_and_exec_with_a_real_kubelet(
    managed: Bed, seen: View, real_managed: Kubelet, launch: Callable[..., Replica], tmp_path: Path
) -> None:
    bed = managed
    (node,) = bed.admin.items("/api/v1/nodes")
    kubelet = int(node["status"]["nodeInfo"]["kubeletVersion"].split(".")[1])
    if bed.minor > kubelet + MOST_BETWEEN:
        pytest.skip(f"the kubelet is of 1.{kubelet}, which a server of 1.{bed.minor} does not support")
    launch(bed)
    (tmp_path / "data").mkdir()
    local_volume(bed, tmp_path / "data")
    urgent = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 100,
    }
    bed.admin.make(urgent)
    all_of_it = {"limits": {"nvidia.com/gpu": "4"}}
    mounts = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    saves = "trap 'echo saved > /data/state; exit 0' TERM; echo begun > /data/state; while :; do sleep 0.2; done"
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "real"}}
    training = [shell("main", saves, resources=all_of_it, **mounts)]
    bed.admin.make(
        pod("training", hostNetwork=True, containers=training, volumes=[volume], terminationGracePeriodSeconds=20)
    )
    state = tmp_path / "data" / "state"
    eventually(lambda: state.exists() and state.read_text() == "begun\n", within_s=90)
    claim = bed.admin.get("/api/v1/namespaces/default/persistentvolumeclaims/real")
    assert (claim["status"]["phase"], claim["spec"]["volumeName"]) == ("Bound", "real")

    beside = shell("beside", "echo helps; while :; do sleep 0.2; done")
    spec: Json = {"containers": [shell("main", "echo works; while :; do sleep 0.2; done", resources=all_of_it)]}
    if bed.minor >= NATIVE_SIDECARS:
        spec["initContainers"] = [{**beside, "restartPolicy": "Always"}]
    else:
        spec["containers"].append(beside)
    bed.admin.make(pod("hurry", hostNetwork=True, priorityClassName="urgent", **spec))

    def is_running(name: str) -> bool:
        return name in seen.pods() and seen.pods()[name]["status"]["phase"] == "Running"

    eventually(lambda: is_running("hurry"), within_s=90)
    assert state.read_text() == "saved\n"
    assert "training" not in seen.pods()
    assert kubectl(bed, "logs", "hurry", "-c", "main") == "works\n"
    assert kubectl(bed, "logs", "hurry", "-c", "beside") == "helps\n"
    assert rota(bed, "logs", "hurry").stdout.startswith("works")
    assert kubectl(bed, "exec", "hurry", "-c", "main", "--", "/bin/echo", "from inside") == "from inside\n"
    for path in ("/api/v1/namespaces/default/persistentvolumeclaims/real", "/api/v1/persistentvolumes/real"):
        bed.admin.delete(path)
    bed.admin.delete("/apis/storage.k8s.io/v1/storageclasses/real")
    bed.admin.delete("/apis/scheduling.k8s.io/v1/priorityclasses/urgent")
