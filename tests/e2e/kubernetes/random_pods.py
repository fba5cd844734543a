"""Random small clusters and pods with every kind of constraint, twice: one copy for Rota, one for kube-scheduler.

The copies do not see each other: every node and pod of a copy carries its label, every zone and namespace its name.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from e2e.kubernetes.random_claims import random_claims, random_slices

Json = dict[str, Any]
CLAIMS_SINCE = 34
"""The release that brought resource.k8s.io/v1."""
NIC = "example.com/nic"
COPY = "copy"


@dataclass(slots=True)
class CopyOf:
    """The objects of one copy of a case."""

    mark: str
    nodes: list[Json] = field(default_factory=list)
    others: list[Json] = field(default_factory=list)
    """Namespace, storage class, volumes, claims, slices."""
    there: list[Json] = field(default_factory=list)
    """Pods that run already."""
    new: list[Json] = field(default_factory=list)
    """Pods to place, together."""


def copy_of(seed: int, mark: str, scheduler: str, minor: int) -> CopyOf:
    """Make a copy of the case with this seed; both copies of a seed differ in names only."""
    return _Case(random.Random(seed), mark, scheduler, minor).make()


class _Case:
    def __init__(self, rng: random.Random, mark: str, scheduler: str, minor: int) -> None:
        self._rng = rng
        self._mark = mark
        self._scheduler = scheduler
        self._minor = minor
        self._made = CopyOf(mark)

    def make(self) -> CopyOf:
        made, rng = self._made, self._rng
        made.others.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self._mark}})
        for number in range(rng.randint(2, 4)):
            made.nodes.append(self._node(number))
        for number in range(rng.randint(0, 4)):
            pod = self._pod(f"there-{number}", rng.choice(["affinity", "ports", "amounts", "plain", "anti"]), gpus=0)
            pod["spec"]["nodeName"] = rng.choice(made.nodes)["metadata"]["name"]
            pod["spec"]["schedulerName"] = "none"
            made.there.append(pod)
        kinds = ["affinity", "anti", "spread", "ports", "amounts", "volumes", "mixed", "sidecar", "nodes", "sums"]
        kind = rng.choice(kinds if self._minor < CLAIMS_SINCE else [*kinds, "claims", "claims"])
        tasks = rng.choice([1, 1, 2, 3])
        gpus = rng.choice([0, 1])
        if kind == "volumes":
            self._volumes(tasks)
        spec = self._pod("new", kind, gpus=gpus)
        for number in range(tasks):
            made.new.append(self._member(spec, number, tasks, kind))
        if kind == "claims":
            self._claims(tasks)
        return made

    def _claims(self, tasks: int) -> None:
        made = self._made
        made.others += random_slices(self._rng, [each["metadata"]["name"] for each in made.nodes], COPY, self._mark)
        claims, entries = random_claims(self._rng, self._mark, tasks)
        made.others += claims
        for pod, entry in zip(made.new, entries, strict=True):
            pod["spec"] = {**pod["spec"], "resourceClaims": entry}

    def _node(self, number: int) -> Json:
        rng, name = self._rng, f"{self._mark}-n{number}"
        labels = {COPY: self._mark, "kubernetes.io/hostname": name}
        if rng.random() < 0.85:
            labels["topology.kubernetes.io/zone"] = f"{self._mark}-z{rng.randint(1, 2)}"
        if rng.random() < 0.8:
            labels["generation"] = str(rng.randint(1, 7))
        has = {"cpu": "4", "memory": "8Gi", "pods": "20", "nvidia.com/gpu": str(rng.randint(1, 3))}
        has |= {NIC: str(rng.randint(0, 3)), "ephemeral-storage": "10Gi"}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": has, "capacity": has, "conditions": [ready]},
        }

    def _pod(self, name: str, kind: str, gpus: int) -> Json:
        rng = self._rng
        asked: Json = {"cpu": rng.choice(["100m", "1", "2"])}
        asked |= {"nvidia.com/gpu": str(gpus)} if gpus else {}
        container: Json = {"name": "main", "image": "example/none:1"}
        spec: Json = {
            "schedulerName": self._scheduler,
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {COPY: self._mark},
            "containers": [container],
        }
        both = kind == "mixed"
        if kind == "ports" or (both and rng.random() < 0.4):
            ports = [self._port() for _ in range(rng.randint(1, 2))]
            container["ports"] = list({(each["hostPort"], each["protocol"]): each for each in ports}.values())
        if kind == "amounts" or (both and rng.random() < 0.4):
            asked |= {NIC: str(rng.randint(1, 2))} if rng.random() < 0.7 else {"ephemeral-storage": "6Gi"}
        affinity: Json = {}
        if kind == "affinity" or (both and rng.random() < 0.5):
            affinity["podAffinity"] = self._required()
        if kind == "anti" or (both and rng.random() < 0.5):
            affinity["podAntiAffinity"] = self._required()
        if affinity:
            spec["affinity"] = affinity
        if kind == "spread" or (both and rng.random() < 0.5):
            spec["topologySpreadConstraints"] = [self._spread() for _ in range(rng.randint(1, 2))]
            keys = [each["topologyKey"] for each in spec["topologySpreadConstraints"]]
            if len(set(keys)) < len(keys):
                spec["topologySpreadConstraints"].pop()
        if kind == "nodes" or (both and rng.random() < 0.3):
            spec.setdefault("affinity", {})["nodeAffinity"] = self._node_affinity()
        if kind == "sidecar":
            self._add_init_containers(spec)
        if kind == "sums":
            self._add_sums(spec)
        container["resources"] = {"limits": asked, "requests": asked}
        labels = {"app": rng.choice(["a", "b"])}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": self._mark, "labels": labels},
            "spec": spec,
        }

    def _add_sums(self, spec: Json) -> None:
        """Several containers, and from 1.34 on requests of the pod as a whole."""
        rng = self._rng
        asked = {"requests": {"cpu": rng.choice(["1", "1500m"])}}
        more = {"name": "more", "image": "example/none:1", "resources": asked}
        spec["containers"] = [*spec["containers"], more]
        if self._minor >= CLAIMS_SINCE and rng.random() < 0.6:
            spec["resources"] = {"requests": {"cpu": rng.choice(["3500m", "4"]), "memory": rng.choice(["1Gi", "7Gi"])}}

    def _node_affinity(self) -> Json:
        rng, mark = self._rng, self._mark
        names = [each["metadata"]["name"] for each in self._made.nodes]
        zone = "topology.kubernetes.io/zone"
        rules: list[Json] = [
            {"key": zone, "operator": "In", "values": [f"{mark}-z1"]},
            {"key": zone, "operator": "NotIn", "values": [f"{mark}-z1"]},
            {"key": zone, "operator": "Exists"},
            {"key": zone, "operator": "DoesNotExist"},
            {"key": "generation", "operator": "Gt", "values": ["3"]},
            {"key": "generation", "operator": "Lt", "values": ["5"]},
            {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [names[0]]},
        ]
        terms: list[Json] = [
            {"matchExpressions": rng.sample(rules, rng.choice([1, 1, 2]))} for _ in range(rng.choice([1, 1, 2]))
        ]
        if rng.random() < 0.2:
            field_rule = {"key": "metadata.name", "operator": rng.choice(["In", "NotIn"]), "values": [names[-1]]}
            terms.append({"matchFields": [field_rule]})
        return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}

    def _add_init_containers(self, spec: Json) -> None:
        rng = self._rng
        spec["initContainers"] = []
        for number in range(rng.randint(1, 3)):
            resources = {"requests": {"cpu": rng.choice(["500m", "1", "3"])}}
            one: Json = {"name": f"i{number}", "image": "example/none:1", "resources": resources}
            if self._minor >= 29 and rng.random() < 0.5:
                one["restartPolicy"] = "Always"
            spec["initContainers"].append(one)

    def _member(self, pod: Json, number: int, tasks: int, kind: str) -> Json:
        labels = dict(pod["metadata"]["labels"])
        if tasks > 1:
            labels |= {"rota.dev/job": "new", "rota.dev/tasks": str(tasks)}
        spec = dict(pod["spec"])
        if kind == "volumes":
            spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": f"data-{number}"}}]
        meta = {"name": f"new-{number}", "namespace": self._mark, "labels": labels}
        return {**pod, "metadata": meta, "spec": spec}

    def _port(self) -> Json:
        rng = self._rng
        number = rng.choice([8080, 8081])
        made: Json = {"containerPort": number, "hostPort": number, "protocol": rng.choice(["TCP", "TCP", "UDP"])}
        return {**made, "hostIP": rng.choice(["10.0.0.1", "10.0.0.2"])} if rng.random() < 0.4 else made

    def _selector(self) -> Json:
        rng = self._rng
        return rng.choice(
            [
                {"matchLabels": {"app": rng.choice(["a", "b"])}},
                {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]},
                {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
            ]
        )

    def _key(self) -> str:
        return self._rng.choice(["topology.kubernetes.io/zone", "kubernetes.io/hostname"])

    def _required(self) -> Json:
        terms = [
            {"topologyKey": self._key(), "labelSelector": self._selector()} for _ in range(self._rng.choice([1, 1, 2]))
        ]
        return {"requiredDuringSchedulingIgnoredDuringExecution": terms}

    def _spread(self) -> Json:
        rng = self._rng
        made: Json = {
            "maxSkew": rng.randint(1, 2),
            "topologyKey": self._key(),
            "whenUnsatisfiable": rng.choice(["DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"]),
            "labelSelector": self._selector(),
        }
        if self._minor >= CLAIMS_SINCE and made["whenUnsatisfiable"] == "DoNotSchedule" and rng.random() < 0.3:
            made["minDomains"] = rng.randint(1, 3)
        if self._minor >= CLAIMS_SINCE and rng.random() < 0.3:
            made["nodeAffinityPolicy"] = rng.choice(["Honor", "Ignore"])
        return made

    def _volumes(self, tasks: int) -> None:
        """Volumes on some of the nodes, and a claim for each pod."""
        rng, made, mark = self._rng, self._made, self._mark
        made.others.append(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": mark},
                "provisioner": "kubernetes.io/no-provisioner",
                "volumeBindingMode": "WaitForFirstConsumer",
            }
        )
        for number in range(rng.randint(1, 4)):
            host = rng.choice(made.nodes)["metadata"]["name"]
            rule = {"key": "kubernetes.io/hostname", "operator": "In", "values": [host]}
            if rng.random() < 0.3:
                rule = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [f"{mark}-z1"]}
            term = {"matchExpressions": [rule]}
            modes = rng.choice([["ReadWriteOnce"], ["ReadWriteOnce", "ReadWriteMany"]])
            made.others.append(
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolume",
                    "metadata": {"name": f"{mark}-v{number}"},
                    "spec": {
                        "capacity": {"storage": rng.choice(["1Gi", "2Gi"])},
                        "accessModes": modes,
                        "storageClassName": mark,
                        "local": {"path": "/data"},
                        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
                    },
                }
            )
        for number in range(tasks):
            size = {"requests": {"storage": rng.choice(["1Gi", "2Gi"])}}
            modes = [rng.choice(["ReadWriteOnce", "ReadWriteOnce", "ReadWriteMany"])]
            spec = {"accessModes": modes, "storageClassName": mark, "resources": size}
            meta = {"name": f"data-{number}", "namespace": mark}
            made.others.append({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec})
