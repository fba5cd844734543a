"""Pods as the controllers of others make them: JobSet, Kubeflow, MPI, Ray. Each is a gang without a change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from e2e.kubernetes.bed import Bed, KubeError
from e2e.kubernetes.hollow import Hollow
from e2e.kubernetes.replica import Replica, View, pod
from managers import eventually

pytestmark = pytest.mark.slow
Launch = Callable[..., Replica]
Kubelets = Callable[..., Hollow]
Json = dict[str, Any]
KUBEFLOW = "training.kubeflow.org"
JOB_SET = "jobset.sigs.k8s.io"


def define(bed: Bed, group: str, version: str, kind: str) -> None:
    """The type of object that a controller of others brings along."""
    plural = f"{kind.lower()}s"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    bed.admin.make(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{group}"},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural},
                "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
            },
        }
    )

    def is_served() -> bool:
        try:
            bed.admin.get(f"/apis/{group}/{version}/namespaces/default/{plural}")
        except KubeError:
            return False
        return True

    eventually(is_served)


def made(bed: Bed, version: str, kind: str, name: str, spec: Json) -> Json:
    """The owner reference of an object that is made."""
    value = {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec}
    return owner(bed.admin.make(value))


def owner(value: Json) -> Json:
    meta = value["metadata"]
    named = {"apiVersion": value["apiVersion"], "kind": value["kind"], "name": meta["name"], "uid": meta["uid"]}
    return {**named, "controller": True}


def owned(name: str, by: Json, gpus: int, labels: dict[str, str]) -> Json:
    value = pod(name, gpus, labels=labels)
    value["metadata"]["ownerReferences"] = [by]
    return value


def trained(job: str, kind: str, role: str, index: int, by: Json, gpus: int = 2) -> Json:
    """A pod as Kubeflow's training operator makes it."""
    labels = {f"{KUBEFLOW}/operator-name": f"{kind.lower()}-controller", f"{KUBEFLOW}/job-name": job}
    labels |= {f"{KUBEFLOW}/replica-type": role, f"{KUBEFLOW}/replica-index": str(index)}
    return owned(f"{job}-{role}-{index}", by, gpus, labels)


def kubeflow(bed: Bed, kind: str, field: str, roles: dict[str, int]) -> list[Json]:
    define(bed, "kubeflow.org", "v1", kind)
    spec = {field: {role.capitalize(): {"replicas": count} for role, count in roles.items()}}
    by = made(bed, "kubeflow.org/v1", kind, kind.lower(), spec)
    return [trained(kind.lower(), kind, role, index, by) for role, count in roles.items() for index in range(count)]


def mpi(bed: Bed) -> list[Json]:
    """Workers belong to the MPIJob, the launcher to a Job of it."""
    define(bed, "kubeflow.org", "v2beta1", "MPIJob")
    spec = {"mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}}}
    by = made(bed, "kubeflow.org/v2beta1", "MPIJob", "mpi", spec)
    labels = {f"{KUBEFLOW}/operator-name": "mpi-operator", f"{KUBEFLOW}/job-name": "mpi"}
    workers = [owned(f"mpi-worker-{index}", by, 2, {**labels, f"{KUBEFLOW}/job-role": "worker"}) for index in (0, 1)]
    template = {"spec": pod("launcher", 0)["spec"] | {"restartPolicy": "Never"}}
    launcher = made(bed, "batch/v1", "Job", "mpi-launcher", {"template": template})
    return [*workers, owned("mpi-launcher-x", launcher, 0, {**labels, f"{KUBEFLOW}/job-role": "launcher"})]


def job_set(bed: Bed) -> list[Json]:
    """Pods belong to Jobs, and those to the set."""
    define(bed, "jobset.x-k8s.io", "v1alpha2", "JobSet")
    job = {"spec": {"parallelism": 2, "completions": 2}}
    parts = [{"name": "workers", "replicas": 2, "template": job}]
    made(bed, "jobset.x-k8s.io/v1alpha2", "JobSet", "set", {"replicatedJobs": parts})
    labels = {f"{JOB_SET}/jobset-name": "set", f"{JOB_SET}/replicatedjob-name": "workers"}
    template = {"spec": pod("worker", 0)["spec"] | {"restartPolicy": "Never"}}
    jobs = [made(bed, "batch/v1", "Job", f"set-workers-{number}", {"template": template}) for number in (0, 1)]
    return [owned(f"{by['name']}-{index}", by, 2, labels) for by in jobs for index in (0, 1)]


def ray(bed: Bed, **more: Any) -> list[Json]:
    define(bed, "ray.io", "v1", "RayCluster")
    group = {"groupName": "gpu", "replicas": 2, "minReplicas": 2, "maxReplicas": 4}
    by = made(bed, "ray.io/v1", "RayCluster", "ray", {"workerGroupSpecs": [group], **more})
    head = owned("ray-head", by, 0, {"ray.io/cluster": "ray", "ray.io/node-type": "head"})
    return [head, *(worker(by, number) for number in range(2))]


def worker(by: Json, number: int) -> Json:
    labels = {"ray.io/cluster": "ray", "ray.io/node-type": "worker", "ray.io/group": "gpu"}
    return owned(f"ray-gpu-worker-{number}", by, 2, labels)


def test_pods_of_other_controllers_start_together(bed: Bed, view: View, launch: Launch, kubelets: Kubelets) -> None:
    kubelets(bed, nodes=4)
    launch(bed)
    gangs = [
        kubeflow(bed, "PyTorchJob", "pytorchReplicaSpecs", {"master": 1, "worker": 2}),
        kubeflow(bed, "TFJob", "tfReplicaSpecs", {"chief": 1, "ps": 1, "worker": 1}),
        mpi(bed),
        job_set(bed),
        ray(bed),
    ]
    for pods in gangs:
        for value in pods[:-1]:
            bed.admin.make(value)
    for pods in gangs:
        first = pods[0]["metadata"]["name"]
        words = f"gang-incomplete: {len(pods) - 1} of {len(pods)} pods exist; all start together"
        eventually(lambda name=first, said=words: view.waiting_for(name) == said)  # type: ignore[misc]
    assert view.bound("") == {}

    for pods in gangs:
        bed.admin.make(pods[-1])

    eventually(lambda: len(view.bound("")) == sum(map(len, gangs)))
    assert view.promised_twice() == []


def test_ray_cluster_grows_and_shrinks(bed: Bed, view: View, launch: Launch, kubelets: Kubelets) -> None:
    kubelets(bed, nodes=1)
    replica = launch(bed, {"gang_timeout": "1s"})
    pods = ray(bed, enableInTreeAutoscaling=True)
    for value in pods:
        bed.admin.make(value)
    eventually(lambda: len(view.bound("ray")) == 3)
    before = {name: each["metadata"]["uid"] for name, each in view.pods().items()}

    more = worker(pods[0]["metadata"]["ownerReferences"][0], 2)
    bed.admin.make(more)

    eventually(lambda: view.node_of(more["metadata"]["name"]))
    replica.kill()
    replica.start()
    bed.admin.delete("/api/v1/namespaces/default/pods/ray-gpu-worker-0", {"gracePeriodSeconds": 0})
    bed.admin.make(pod("after", 2))
    eventually(lambda: view.node_of("after"))
    bed.admin.make(pod("later", 2))
    eventually(lambda: view.node_of("later"))  # the slot of the lost worker was released
    bed.admin.make(worker(pods[0]["metadata"]["ownerReferences"][0], 3))
    view.gets_reason("ray-gpu-worker-3", "devices-busy")
    replica.kill()
    replica.start()
    bed.admin.delete("/api/v1/namespaces/default/pods/later", {"gracePeriodSeconds": 0})
    eventually(lambda: view.node_of("ray-gpu-worker-3"))
    now = {name: each["metadata"]["uid"] for name, each in view.pods().items()}
    assert {name: uid for name, uid in now.items() if name in before} == {
        name: uid for name, uid in before.items() if name != "ray-gpu-worker-0"
    }
    assert view.promised_twice() == []
