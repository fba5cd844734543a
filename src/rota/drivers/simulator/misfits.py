"""Why a job can never fit into a cluster: by CPU, memory, device type, the size of nodes, or topology."""

from __future__ import annotations

from collections.abc import Callable

from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import WHOLE, Job, Level, Role
from rota.core.model.labels import NODE_NAME, Requirement, is_met, is_tolerated

_AMOUNTS = (
    ("cpu_milli", "thousandths of CPUs"),
    ("memory_bytes", "bytes of memory"),
    ("network_bps", "bits a second of network"),
    ("disk_bps", "bits a second of disk"),
)


def why_never_fits(job: Job, cluster: Cluster) -> str:
    """The first thing that keeps a job out of the empty cluster, from a single task to the whole job."""
    for role in job.roles:
        found = _task_alone(role, cluster) or _by_labels(role, cluster) or _task_together(role, cluster)
        if found is not None:
            return found
    return _by_type(job, cluster) or _by_locality(job, cluster) or _by_tasks(job, cluster) or _by_count(job, cluster)


def _nodes_for(role: Role, cluster: Cluster) -> list[Node]:
    """The nodes that will do for a role, by their type, labels and taints."""
    return [node for node in _of_types(role, cluster) if _suits(role, node)]


def _of_types(role: Role, cluster: Cluster) -> list[Node]:
    return [node for node in cluster.nodes if not role.device_types or node.device_type in role.device_types]


def _suits(role: Role, node: Node) -> bool:
    labels = {NODE_NAME: str(node.id), **dict(node.labels)}
    return is_tolerated(node.taints, role.tolerates) and is_met(role.requires, labels)


def _by_labels(role: Role, cluster: Cluster) -> str | None:
    """Labels that a role requires of nodes, or taints that it does not tolerate, if they leave no node."""
    nodes = _of_types(role, cluster)
    if not nodes or _nodes_for(role, cluster):
        return None
    kinds = f" of type {' or '.join(role.device_types)}" if role.device_types else ""
    if not any(is_tolerated(node.taints, role.tolerates) for node in nodes):
        return f"does not tolerate the taints that every node{kinds} has"
    terms = (" and ".join(_condition(each) for each in term) for term in role.requires)
    return f"requires nodes with {' or '.join(terms)}, and no node{kinds} that it tolerates has that"


def _condition(requirement: Requirement) -> str:
    key, operator, values = requirement
    return f"{key} {operator} {', '.join(values)}".strip()


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


def _by_tasks(job: Job, cluster: Cluster) -> str | None:
    """How many tasks of a role fit on the nodes of one type, where that is too few, and what is short."""
    for role in job.roles if job.gpus <= cluster.devices else ():
        rooms = [_room(role, cluster, with_host=True), _room(role, cluster, with_host=False)]
        if role.count <= rooms[0]:
            continue
        needs = [f"{role.device_milli / WHOLE:g} devices"] if role.device_milli else []
        if role.count <= rooms[1]:
            needs += [f"{getattr(role, key):,} {what}" for key, what in _AMOUNTS if getattr(role, key)]
        where = "the nodes that it may use" if role.requires else "the nodes"
        of_type = " of one type" if len(cluster.devices_by_type) > 1 else ""
        return f"needs {role.count} tasks of {', '.join(needs)}, and {where}{of_type} have room for {rooms[0]}"
    return None


def _room(role: Role, cluster: Cluster, *, with_host: bool) -> int:
    """How many tasks fit on the empty nodes of the type that has most room."""
    by_type: dict[str, int] = {}
    for node in _nodes_for(role, cluster):
        rooms = []
        if role.device_milli:  # parts of one device do not add up with those of another
            whole = max(role.device_milli // WHOLE, 1)
            rooms.append(node.devices // whole * max(WHOLE // role.device_milli, 1))
        for key, _ in _AMOUNTS if with_host else ():
            need, has = getattr(role, key), getattr(node, key)
            if need and has is not None:
                rooms.append(has // need)
        by_type[node.device_type] = by_type.get(node.device_type, 0) + min(rooms, default=role.count)
    return max(by_type.values(), default=0)


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
        return f"needs {job.gpus:g} devices with all that its tasks ask for, which never fit together into the nodes"
    return f"needs {job.gpus:g} devices and can never fit into the cluster ({cluster.devices} devices)"
