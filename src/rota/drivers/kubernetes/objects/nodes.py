"""Node objects as Rota's nodes: devices, their type, topology, and whether the node is schedulable."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import DeviceType, NodeId
from rota.core.model.labels import Taint
from rota.drivers.kubernetes.api.quantity import milli, plain_number, whole
from rota.drivers.kubernetes.filters.facts import NodeFacts
from rota.drivers.kubernetes.objects.pod_annotations import KEEPS_OUT, NODE_NAME, PLACE, RESOURCE
from rota.drivers.kubernetes.settings import ClusterSettings

Json = dict[str, Any]
CPU = DeviceType("cpu")
"""The type of a node without devices."""
_KEEP_OUT = frozenset({"NoSchedule", "NoExecute"})
_OWN_TAINTS = frozenset(
    {
        "node.kubernetes.io/unschedulable",
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    }
)
"""Labels whose values are read from the node."""


PROBLEMS = frozenset(
    {
        *("KernelDeadlock", "ReadonlyFilesystem", "FilesystemCorruptionProblem", "XfsShutdown"),
        *("GPUUnhealthy", "GpuUnhealthy", "GPUMissing", "GpuCountMismatch", "XIDErrors", "GpuXidError", "GpuMemWatch"),
        *("GpuNvlinkWatch", "NVLinkStatusInactive", "GpuPcieWatch", "GpuThermalWatch", "GpuInforomWatch"),
        *("IBLinkDown", "IBLinkFlapping", "NicError"),
    }
)
"""Conditions that programs such as node-problem-detector write; one that is True takes the node out of use."""
SUSPECT_CONDITION = "RotaSuspect"
"""The condition that Rota writes onto nodes in doubt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSeen:
    """A node as its object describes it."""

    node: Node
    ready: bool
    cordoned: bool
    unhealthy: str = ""
    """The condition that takes it out of use, in words."""
    doubt: str = ""
    """What the condition of a suspect, while it is True, says."""
    pods: int | None = None
    """Maximum number of pods; None if it is not stated."""
    facts: NodeFacts | None = field(default=None, compare=False)
    """What the filters see of it."""


def node_seen(value: Json, settings: ClusterSettings) -> NodeSeen:
    """Parse a node object."""
    spec, status = value.get("spec") or {}, value.get("status") or {}
    has = status.get("allocatable") or status.get("capacity") or {}
    conditions = status.get("conditions") or ()
    unhealthy = _unhealthy(conditions, settings)
    return NodeSeen(
        node=_node(value, settings, has),
        ready=any(each["type"] == "Ready" and each["status"] == "True" for each in conditions),
        cordoned=bool(spec.get("unschedulable")) or bool(unhealthy),
        unhealthy=unhealthy,
        doubt=_doubt(conditions),
        pods=whole(str(has["pods"])) if "pods" in has else None,
        facts=_facts(value, settings, has),
    )


def _unhealthy(conditions: Iterable[Json], settings: ClusterSettings) -> str:
    """The first condition that says that a node must not be used: a problem, or a part that is not ready."""
    for each in conditions:
        kind, status = str(each.get("type")), each.get("status")
        is_problem = status == "True" and (kind in PROBLEMS or kind in settings.unhealthy_conditions)
        is_part = status == "False" and kind.endswith("Ready") and kind != "Ready"
        if is_problem or is_part:
            return f"condition {kind} is {status}: {each.get('message') or each.get('reason') or 'no message'}"[:500]
    return ""


def _doubt(conditions: Iterable[Json]) -> str:
    for each in conditions:
        if each.get("type") == SUSPECT_CONDITION and each.get("status") == "True":
            return str(each.get("message") or "no message")[:500]
    return ""


def _facts(value: Json, settings: ClusterSettings, has: Json) -> NodeFacts:
    name = value["metadata"]["name"]
    skipped = {"cpu", "memory", "pods", *settings.devices}
    return NodeFacts(
        name=name,
        labels={**(value["metadata"].get("labels") or {}), NODE_NAME: name},
        amounts={key: whole(str(text)) * 1000 for key, text in has.items() if key not in skipped},
        taints=tuple(
            (taint["key"], taint.get("value", ""), taint["effect"])
            for taint in (value.get("spec") or {}).get("taints") or ()
            if taint.get("effect") in _KEEP_OUT
        ),
    )


def _node(value: Json, settings: ClusterSettings, has: Json) -> Node:
    name = value["metadata"]["name"]
    labels: dict[str, str] = {**(value["metadata"].get("labels") or {}), NODE_NAME: name, PLACE: name}
    named = settings.labels
    resource = next((name for name in settings.devices if whole(str(has.get(name, "0")))), None)
    devices = 0 if resource is None else whole(str(has[resource]))
    memory = labels.get(named.memory, "")
    zone, rack = labels.get(named.zone), labels.get(named.rack)
    is_other = resource is not None and resource != settings.devices[0]
    if is_other:
        labels = {**labels, RESOURCE: str(resource)}
    return Node(
        id=NodeId(value["metadata"]["name"]),
        device_type=CPU if resource is None else DeviceType(labels.get(named.type) or resource.rpartition("/")[2]),
        devices=devices,
        sockets=_sockets(labels.get(named.sockets, ""), devices),
        device_memory_bytes=None if (mib := plain_number(memory)) is None else mib << 20,
        cpu_milli=milli(str(has.get("cpu", "0"))),
        memory_bytes=whole(str(has.get("memory", "0"))),
        rack="/".join(part for part in (zone, rack) if part) or "rack",
        domain=zone or "domain",
        labels=tuple(sorted(labels.items())),
        taints=_taints(value) + ((Taint(KEEPS_OUT, str(resource)),) if is_other else ()),
    )


def _taints(value: Json) -> tuple[Taint, ...]:
    return tuple(
        Taint(f"{taint['key']}:{taint['effect']}", taint.get("value", ""))
        for taint in (value.get("spec") or {}).get("taints") or ()
        if taint.get("effect") in _KEEP_OUT and taint["key"] not in _OWN_TAINTS
    )


def _sockets(text: str, devices: int) -> tuple[int, ...]:
    """Groups of devices; an inconsistent label is ignored."""
    sizes = tuple(plain_number(part) or 0 for part in re.findall(r"[0-9]+", text))
    return sizes if sum(sizes) == devices else ()


def planned_node(seen: NodeSeen | None, planned: Node) -> NodeSeen:
    """A node of a HiveD file: its cells come from the file, its health from the cluster."""
    if seen is None:
        return NodeSeen(node=planned, ready=False, cordoned=False)
    return replace(seen, node=planned)


def cluster_of(nodes: list[Node], settings: ClusterSettings) -> Cluster:
    """The whole cluster with its guarantees."""
    cells, tenants = settings.promises()
    return Cluster(nodes=tuple(nodes), cells=cells, tenants=tenants)
