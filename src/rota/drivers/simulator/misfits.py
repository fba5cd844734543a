"""Why a job can never fit into a cluster: by CPU, memory, device type, the size of nodes, or topology."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import WHOLE, Job, Level, Role
from rota.core.model.labels import NODE_NAME, Requirement, is_met, is_tolerated

_BITS = ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1.0, "bits a second"))
_AMOUNTS = {
    "cpu_milli": (((1000.0, "CPUs"),), ""),
    "memory_bytes": (((2.0**30, "GiB"), (2.0**20, "MiB"), (1.0, "bytes")), " of memory"),
    "network_bps": (_BITS, " of network"),
    "disk_bps": (_BITS, " of disk"),
}
"""What a task asks of its node beside devices: the field, the units in which people read it, and what it is."""


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


def _amount(key: str, value: float) -> str:
    units, what = _AMOUNTS[key]
    size, unit = next((each for each in units if value >= each[0]), units[-1])
    return f"{value / size:,.6g} {unit}{what}"


def _devices(count: float) -> str:
    return f"{count:g} device" if count == 1 else f"{count:g} devices"


def _devices_of(role: Role) -> list[str]:
    """The devices of a task in words, if it asks for any."""
    return [_devices(role.device_milli / WHOLE)] if role.device_milli else []


def _host_of(role: Role) -> list[str]:
    """What else a task asks of its node, in words."""
    return [_amount(key, getattr(role, key)) for key in _AMOUNTS if getattr(role, key)]


def _task_alone(role: Role, cluster: Cluster) -> str | None:
    """The resource of which a task needs more than any node has."""
    for key in _AMOUNTS:
        has = [getattr(node, key) for node in cluster.nodes]
        need = getattr(role, key)
        if has and None not in has and need > max(has):
            return f"needs {_amount(key, need)} for a task, and no node has more than {_amount(key, max(has))}"
    nodes = _nodes_for(role, cluster)
    memory = [node.device_memory_bytes for node in nodes if node.devices]
    known = [each for each in memory if each is not None]
    if role.device_milli and known and len(known) == len(memory) and role.device_memory_bytes > max(known):
        need, has_most = (f"{each / 2**30:,.6g} GiB" for each in (role.device_memory_bytes, max(known)))
        return f"needs a device with {need} of memory, and no device that it may use has more than {has_most}"
    most = max((node.devices for node in nodes), default=0)
    if role.device_milli > WHOLE * most and nodes:
        kinds = f" of type {' or '.join(role.device_types)}" if role.device_types else ""
        need = role.device_milli // WHOLE
        return f"needs {_devices(need)}{kinds} on one node for a task, and no node has more than {most}"
    return None


def _task_together(role: Role, cluster: Cluster) -> str | None:
    """What a task needs together that nodes have only apart: devices, CPUs and memory."""
    nodes = _nodes_for(role, cluster)

    def fits(node: Node) -> bool:
        enough = (getattr(node, key) is None or getattr(role, key) <= getattr(node, key) for key in _AMOUNTS)
        return all(enough) and role.device_milli <= WHOLE * node.devices and _has_device_memory(role, node)

    if not nodes or any(map(fits, nodes)):
        return None
    needs = [*_devices_of(role), *_host_of(role)]
    if role.device_memory_bytes:
        needs.append(f"devices with {role.device_memory_bytes / 2**30:,.6g} GiB of memory")
    kinds = f" of type {' or '.join(role.device_types)}" if role.device_types else ""
    return f"needs {', '.join(needs)} on one node for a task, and no node{kinds} has all of it"


def _has_device_memory(role: Role, node: Node) -> bool:
    """Whether a node's devices have the memory that a task asks of them, as far as it is known."""
    return node.device_memory_bytes is None or role.device_memory_bytes <= node.device_memory_bytes


def _by_type(job: Job, cluster: Cluster) -> str | None:
    devices = cluster.devices_by_type
    for role in job.roles:
        need = role.count * role.device_milli / WHOLE
        has = sum(devices.get(kind, 0) for kind in role.device_types)
        if role.device_types and need > has:
            return f"needs {_devices(need)} of type {' or '.join(role.device_types)}, and the cluster has {has}"
    if max(devices.values(), default=0) < job.gpus <= cluster.devices:
        each = ", ".join(f"{count} of {kind!r}" for kind, count in devices.items())
        return f"needs {_devices(job.gpus)} of one type, and the cluster has {each}"
    return None


def _by_tasks(job: Job, cluster: Cluster) -> str | None:
    """How many tasks of a role fit on the nodes of one type, where that is too few, and what is short."""
    for role in job.roles if job.gpus <= cluster.devices else ():
        rooms = [_room(role, cluster, with_host=True), _room(role, cluster, with_host=False)]
        if role.count <= rooms[0]:
            continue
        needs = [*_devices_of(role), *(_host_of(role) if role.count <= rooms[1] else ())]
        where = "the nodes that it may use" if role.requires else "the nodes"
        of_type = " of one type" if len(cluster.devices_by_type) > 1 else ""
        return f"needs {role.count} tasks of {', '.join(needs)}, and {where}{of_type} have room for {rooms[0]}"
    return None


def _room(role: Role, cluster: Cluster, *, with_host: bool) -> int:
    """How many tasks fit on the empty nodes of the type that has most room."""
    by_type: dict[str, int] = {}
    for node in _nodes_for(role, cluster):
        if not _has_device_memory(role, node):
            continue
        rooms = []
        if role.device_milli:  # parts of one device do not add up with those of another
            whole = max(role.device_milli // WHOLE, 1)
            rooms.append(node.devices // whole * max(WHOLE // role.device_milli, 1))
        for key in _AMOUNTS if with_host else ():
            need, has = getattr(role, key), getattr(node, key)
            if need and has is not None:
                rooms.append(has // need)
        by_type[node.device_type] = by_type.get(node.device_type, 0) + min(rooms, default=role.count)
    return max(by_type.values(), default=0)


def _by_locality(job: Job, cluster: Cluster) -> str | None:
    """A hard locality within which no device type has enough devices."""
    if job.locality is None or not job.locality.hard or job.locality.level not in _GROUPS:
        return None
    usable = [{node.id for node in _nodes_for(role, cluster)} for role in job.roles if role.device_milli]
    count: dict[tuple[str, str], int] = {}
    for node in cluster.nodes:
        if all(node.id in ids for ids in usable):
            for name, devices in _GROUPS[job.locality.level](node):
                count[name, node.device_type] = count.get((name, node.device_type), 0) + devices
    most = max(count.values(), default=0)
    if job.gpus <= most:
        return None
    level, of_type = job.locality.level.name.lower(), " of one type" if len(cluster.devices_by_type) > 1 else ""
    return f"needs {_devices(job.gpus)}{of_type} in one {level}, and no {level} has more than {most}"


_GROUPS: Mapping[Level, Callable[[Node], Iterable[tuple[str, int]]]] = {
    Level.SOCKET: lambda node: ((f"{node.id} {at}", count) for at, count in enumerate(node.sockets or (node.devices,))),
    Level.NODE: lambda node: [(str(node.id), node.devices)],
    Level.RACK: lambda node: [(node.rack, node.devices)],
    Level.DOMAIN: lambda node: [(node.domain, node.devices)],
}
"""The groups of a level that a node's devices belong to, and how many of them."""


def _by_count(job: Job, cluster: Cluster) -> str:
    if job.gpus <= cluster.devices:
        return f"needs {_devices(job.gpus)} with all that its tasks ask for, which never fit together into the nodes"
    return f"needs {_devices(job.gpus)} and can never fit into the cluster ({_devices(cluster.devices)})"
