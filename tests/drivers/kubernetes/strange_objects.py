"""Kubernetes objects of every kind with nonsense in any place, as users and broken controllers may write them."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

from drivers.kubernetes.devices.cases import claim_object, class_object, request, slice_object
from drivers.kubernetes.objects import node_object, pod_object

Json = dict[str, Any]
HIVED = "hivedscheduler.microsoft.com/pod-scheduling-spec"
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(8)
)
WORDS = ["²", "٣", "9" * 5000, "abc", "1e400000000", "-1", "", "NaN", "inf", "0x10", "1_000", "1d" + " " * 50 + "x"]
WORDS += ["\ud800", "x" * 300, "rack:hard", "10m", "2", "[" * 5000, BOMB, "1:30:00", "../../secrets/x", "{}", "a,b,c"]
NOTES = ["tasks", "min-tasks", "max-tasks", "job", "id", "seat", "size", "devices", "placement", "gpu", "gpu-memory"]
NOTES += ["locality", "relax-after", "time-limit", "estimate", "class", "exclusive", "model", "late", "user", "name"]
NOTES += ["gpu-fraction", "topology-required", "topology-preferred", "queue", "checkpoint", "plan", "role", "pod-group"]
NAMES = [f"rota.dev/{name}" for name in NOTES] + [
    HIVED,
    "gpu-fraction",
    "pod-group-name",
    "scheduling.k8s.io/group-name",
]
NAMES += ["kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count", "kai.scheduler/batch-min-member"]
NAMES += ["kueue.x-k8s.io/podset-required-topology", "kai.scheduler/topology-preferred-placement"]
NAMES += ["jobset.sigs.k8s.io/jobset-name", "training.kubeflow.org/job-name", "volcano.sh/task-spec"]
SCALARS: list[Any] = [None, True, 0, -1, 7, 1 << 70, 0.5, float("nan"), float("inf"), *WORDS]


def any_value(rng: random.Random, depth: int = 2) -> Any:
    kind = rng.randrange(6) if depth else 0
    if kind == 4:
        return [any_value(rng, depth - 1) for _ in range(rng.randrange(3))]
    if kind == 5:
        return {rng.choice(WORDS): any_value(rng, depth - 1) for _ in range(rng.randrange(3))}
    return rng.choice(SCALARS)


def any_notes(rng: random.Random) -> dict[str, Any]:
    return {rng.choice(NAMES): rng.choice(WORDS) for _ in range(rng.randrange(5))}


def places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in an object."""
    found = [here] if here else []
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        found += places(each, (*here, key))
    return found


def spoiled(rng: random.Random, whole_object: Json) -> Any:
    """The object with up to two of its values replaced."""
    made: Any = copy.deepcopy(whole_object)
    for _ in range(rng.randrange(3)):
        place = rng.choice(places(made))
        parent = made
        for key in place[:-1]:
            parent = parent[key]
        parent[place[-1]] = any_value(rng)
    return made


def any_pod(rng: random.Random) -> Any:
    made = pod_object(
        rng.choice(["p", "p-1", "p-2"]),
        uid=f"uid-{rng.randrange(6)}",
        annotations=any_notes(rng),
        labels=any_notes(rng),
        owner=("Job", "owner"),
        spec=rng.choice([{"nodeName": "n1", "tolerations": [{"key": "a"}]}, {"priority": 3}]),
        status={"phase": rng.choice(["Pending", "Running", "Failed"])},
    )
    return spoiled(rng, made)


_SELECTOR = {"matchLabels": {"app": "a"}, "matchExpressions": [{"key": "b", "operator": "In", "values": ["c"]}]}
_TERM = {"topologyKey": "zone", "labelSelector": _SELECTOR, "namespaces": ["default"], "matchLabelKeys": ["app"]}
_AFFINITY = {"requiredDuringSchedulingIgnoredDuringExecution": [_TERM]}
_SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": _SELECTOR}
_NODE_TERMS = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Gt", "values": ["1"]}]}]}
_CONTAINER = {
    "name": "main",
    "resources": {"requests": {"cpu": "1500m", "memory": "1Gi", "rdma/hca": "1"}, "limits": {"nvidia.com/gpu": "1"}},
    "ports": [{"hostPort": 80, "protocol": "UDP", "hostIP": "10.0.0.1"}],
}
DEMANDING: Json = {
    "affinity": {
        "podAffinity": _AFFINITY,
        "podAntiAffinity": _AFFINITY,
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _NODE_TERMS},
    },
    "topologySpreadConstraints": [_SPREAD],
    "containers": [_CONTAINER],
    "initContainers": [{**_CONTAINER, "restartPolicy": "Always"}],
    "resources": {"requests": {"cpu": "2"}},
    "overhead": {"memory": "1Mi"},
    "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "e", "ephemeral": {}}],
    "resourceClaims": [{"name": "gpus", "resourceClaimName": "c"}, {"name": "t", "resourceClaimTemplateName": "x"}],
    "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
    "nodeSelector": {"zone": "a"},
    "schedulingGates": [{"name": "g"}],
    "priority": 7,
}
_STATUS = {
    "phase": "Pending",
    "resourceClaimStatuses": [{"name": "t", "resourceClaimName": "c"}],
    "containerStatuses": [
        {"name": "main", "allocatedResources": {"cpu": "3"}, "state": {"terminated": {"exitCode": 1}}}
    ],
    "conditions": [{"type": "PodResizePending", "reason": "Infeasible"}],
}


def demanding_pod(rng: random.Random) -> Any:
    """A pod that asks for everything, spoiled."""
    some = {name: value for name, value in DEMANDING.items() if rng.random() < 0.5 or name == "containers"}
    name, uid = f"p-{rng.randrange(4)}", f"uid-{rng.randrange(6)}"
    return spoiled(rng, pod_object(name, uid=uid, spec=some, status=_STATUS, annotations=any_notes(rng)))


def _meta(name: str, **more: Any) -> Json:
    return {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "1", **more}


def _storage(kind: str, **fields: Any) -> Json:
    return {"kind": kind, "metadata": _meta("c"), **fields}


_CLAIM_SPEC = {
    "accessModes": ["ReadWriteOncePod"],
    "storageClassName": "c",
    "resources": {"requests": {"storage": "1Gi"}},
    "selector": _SELECTOR,
}
_VOLUME_SPEC = {
    "capacity": {"storage": "1Gi"},
    "storageClassName": "c",
    "accessModes": ["ReadWriteOnce"],
    "nodeAffinity": {"required": _NODE_TERMS},
    "claimRef": {"namespace": "default", "name": "c"},
    "csi": {"driver": "d", "volumeHandle": "h"},
}
_SELECTORS = [
    "device.driver == 'x'",
    "device.attributes['a'].b",
    "device.capacity['a'].b.compareTo(quantity('1')) > 0",
    "(",
    "",
]
_QUEUE = {"guaranteed": {"v100": 4}, "limit": {"*": 8}, "borrowing": True, "parent": "lab", "weight": 1.5}
_POLICY = {"policy": "las", "tenancy": "quota", "linger": "5s", "defaults": {"time-limit": "2d"}, "checkEvery": "1m"}
_TOPOLOGY = {"levels": [{"nodeLabel": "zone"}, {"nodeLabel": "rack"}], "deviceType": "x", "sockets": "y"}


def _own(kind: str, spec: Json) -> Json:
    return {"apiVersion": "rota.dev/v1alpha1", "kind": kind, "metadata": _meta("default"), "spec": spec}


def _claim(rng: random.Random) -> Json:
    made = claim_object("c", request("gpus", 2, rng.choice(_SELECTORS)), constraints=[{"matchAttribute": "a/b"}])
    results = [{"request": "gpus", "driver": "d", "pool": "p", "device": "x"}]
    made["status"] = {"reservedFor": [{"uid": "uid-1"}], "allocation": {"devices": {"results": results}}}
    return made


def _slice(rng: random.Random) -> Json:
    counters = [{"name": "all", "counters": {"memory": {"value": "80Gi"}}}]
    made = slice_object(rng.choice(["n1", "n2"]), 2, sharedCounters=counters)
    part = {"counterSet": "all", "counters": {"memory": {"value": "40Gi"}}}
    made["spec"]["devices"][0] |= {"consumesCounters": [part], "taints": [{"key": "a", "effect": "NoSchedule"}]}
    return made


STRANGE_KINDS: dict[str, Callable[[random.Random], Any]] = {
    "Pod": lambda rng: any_pod(rng) if rng.random() < 0.5 else demanding_pod(rng),
    "Node": lambda rng: spoiled(rng, node_object(rng.choice(["n1", "n2"]), labels={"zone": rng.choice(WORDS)})),
    "Namespace": lambda rng: spoiled(rng, {"metadata": {"name": "default", "labels": any_notes(rng)}}),
    "PersistentVolumeClaim": lambda rng: spoiled(rng, _storage("PersistentVolumeClaim", spec=_CLAIM_SPEC, status={})),
    "PersistentVolume": lambda rng: spoiled(rng, _storage("PersistentVolume", spec=_VOLUME_SPEC, status={})),
    "StorageClass": lambda rng: spoiled(
        rng, _storage("StorageClass", provisioner="p", volumeBindingMode="WaitForFirstConsumer", allowedTopologies=[])
    ),
    "CSINode": lambda rng: spoiled(
        rng, _storage("CSINode", spec={"drivers": [{"name": "d", "allocatable": {"count": 1}}]})
    ),
    "ResourceSlice": lambda rng: spoiled(rng, _slice(rng)),
    "DeviceClass": lambda rng: spoiled(rng, class_object("gpu", rng.choice(_SELECTORS))),
    "ResourceClaim": lambda rng: spoiled(rng, _claim(rng)),
    "PodGroup": lambda rng: spoiled(rng, _own("PodGroup", {"minMember": 2})),
    "Queue": lambda rng: spoiled(rng, _own("Queue", _QUEUE)),
    "Topology": lambda rng: spoiled(rng, _own("Topology", _TOPOLOGY)),
    "SchedulingPolicy": lambda rng: spoiled(rng, _own("SchedulingPolicy", _POLICY)),
    "ConfigMap": lambda rng: spoiled(
        rng, {"kind": "ConfigMap", "metadata": _meta("rota"), "data": {"rota.yaml": rng.choice(WORDS)}}
    ),
}
"""What makes an object of each kind that Rota reads."""
