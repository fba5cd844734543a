"""Why a job can never fit into a cluster: by CPU, memory, device type, the size of nodes, or topology."""

from __future__ import annotations

from collections.abc import Callable

from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import WHOLE, Job, Level, Role

_AMOUNTS = (
    ("cpu_milli", "thousandths of CPUs"),
    ("memory_bytes", "bytes of memory"),
    ("network_bps", "bits a second of network"),
    ("disk_bps", "bits a second of disk"),
)


def why_never_fits(job: Job, cluster: Cluster) -> str:
    """The first thing that keeps a job out of the empty cluster, from a single task to the whole job."""
    for role in job.roles:
        found = _task_alone(role, cluster) or _task_together(role, cluster)
        if found is not None:
            return found
    return _by_type(job, cluster) or _by_locality(job, cluster) or _by_count(job, cluster)


def _nodes_for(role: Role, cluster: Cluster) -> list[Node]:
    """The nodes of types that will do for a role."""
    return [node for node in cluster.nodes if not role.device_types or node.device_type in role.device_types]


def _task_alone(role: Role, cluster: Cluster) -> str | None:
    """The resource of which a task needs more than any node has."""
    for key, what in _AMOUNTS:
        has = [getattr(node, key) for node in cluster.nodes]
        need = getattr(role, key)
        if has and None not in has and need > max(has):
            return f"needs {need:,} {what} for a task, and no node has more than {max(has):,}"
    nodes = _nodes_for(role, cluster)
    most = max((node.devices for node in nodes), default=0)
    if role.device_milli > WHOLE * most and nodes:
        kinds = f" of type {' or '.join(role.device_types)}" if role.device_types else ""
        need = role.device_milli // WHOLE
        return f"needs {need} devices{kinds} on one node for a task, and no node has more than {most}"
    return None


def _task_together(role: Role, cluster: Cluster) -> str | None:
    """What a task needs together that nodes have only apart: devices, CPUs and memory."""
    nodes = _nodes_for(role, cluster)

    def fits(node: Node) -> bool:
        enough = (getattr(node, key) is None or getattr(role, key) <= getattr(node, key) for key, _ in _AMOUNTS)
        return all(enough) and role.device_milli <= WHOLE * node.devices

    if not nodes or any(map(fits, nodes)):
        return None
    needs = [f"{role.device_milli / WHOLE:g} devices"] if role.device_milli else []
    needs += [f"{getattr(role, key):,} {what}" for key, what in _AMOUNTS if getattr(role, key)]
    kinds = f" of type {' or '.join(role.device_types)}" if role.device_types else ""
    return f"needs {', '.join(needs)} on one node for a task, and no node{kinds} has all of it"


def _by_type(job: Job, cluster: Cluster) -> str | None:
    devices = cluster.devices_by_type
    for role in job.roles:
        need = role.count * role.device_milli / WHOLE
        has = sum(devices.get(kind, 0) for kind in role.device_types)
        if role.device_types and need > has:
            return f"needs {need:g} devices of type {' or '.join(role.device_types)}, and the cluster has {has}"
    if max(devices.values(), default=0) < job.gpus <= cluster.devices:
        each = ", ".join(f"{count} of {kind!r}" for kind, count in devices.items())
        return f"needs {job.gpus:g} devices of one type, and the cluster has {each}"
    return None


def _by_locality(job: Job, cluster: Cluster) -> str | None:
    """A hard locality within which there are too few devices."""
    groups: dict[Level, Callable[[Node], str]] = {
        Level.NODE: lambda node: str(node.id),
        Level.RACK: lambda node: node.rack,
        Level.DOMAIN: lambda node: node.domain,
    }
    if job.locality is None or not job.locality.hard or job.locality.level not in groups:
        return None
    count: dict[str, int] = {}
    for node in cluster.nodes:
        name = groups[job.locality.level](node)
        count[name] = count.get(name, 0) + node.devices
    most = max(count.values(), default=0)
    if job.gpus <= most:
        return None
    level = job.locality.level.name.lower()
    return f"needs {job.gpus:g} devices in one {level}, and no {level} has more than {most}"


def _by_count(job: Job, cluster: Cluster) -> str:
    if job.gpus <= cluster.devices:
        return f"needs {job.gpus:g} devices with their CPUs and memory, which never fit together into the nodes"
    return f"needs {job.gpus:g} devices and can never fit into the cluster ({cluster.devices} devices)"
