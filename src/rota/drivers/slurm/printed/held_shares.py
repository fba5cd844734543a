"""What a job holds, or held, of each node, from the forms in which releases of Slurm say it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rota.drivers.slurm.printed.fields import MEBI, BadField, Gpus, gres, hosts, memory_bytes, text, tres_gpus, whole

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShare:
    """What a job holds of one node."""

    node: str
    gpus: Gpus
    cpus: int
    memory_bytes: int


def shares_of(value: Json, resources: dict[str, str], asked: Gpus) -> tuple[NodeShare, ...]:
    """What a job holds of its nodes, or held before its end; `asked` counts where Slurm does not track GPUs.

    After the end Slurm has forgotten which GPUs of which node they were: then they are divided evenly.
    """
    allocated = tres_gpus(resources)
    gpus = allocated if allocated.count else asked
    names = hosts(text(value.get("nodes")))
    shares = _detailed(value) or tuple(
        NodeShare(
            node=name,
            gpus=Gpus(0),
            cpus=whole(resources.get("cpu")) // len(names),
            memory_bytes=memory_bytes(resources.get("mem", "")) // len(names),
        )
        for name in names
    )
    if gpus.count and shares and not any(share.gpus.count for share in shares):
        return _divided(shares, gpus)
    return shares


def _divided(shares: Sequence[NodeShare], gpus: Gpus) -> tuple[NodeShare, ...]:
    each, more = divmod(gpus.count, len(shares))
    return tuple(replace(share, gpus=Gpus(each + (at < more), gpus.type)) for at, share in enumerate(shares))


def _detailed(value: Json) -> tuple[NodeShare, ...]:
    """What Slurm says of each node; GPUs are listed in the order of the nodes."""
    held = value.get("job_resources")
    if not isinstance(held, dict) or not held:
        return ()
    listed = held.get("allocated_nodes")
    if listed is None and isinstance(held.get("nodes"), dict):
        listed = held["nodes"].get("allocation")
    if isinstance(listed, dict):
        listed = list(listed.values())
    if not isinstance(listed, list):
        return ()
    details = value.get("gres_detail") or []
    if not isinstance(details, list):
        raise BadField("gres_detail is not a list")
    shares = []
    for index, each in enumerate(listed):
        if not isinstance(each, dict):
            raise BadField("job_resources is not a list of nodes")
        name = text(each.get("nodename") or each.get("name"))
        gpus = gres(text(details[index])) if index < len(details) else Gpus(0)
        memory = each.get("memory_allocated")
        if isinstance(each.get("memory"), dict):
            memory = each["memory"].get("allocated")
        shares.append(NodeShare(node=name, gpus=gpus, cpus=_cpus_of(each), memory_bytes=whole(memory) * MEBI))
    return tuple(shares)


def _cpus_of(share: Json) -> int:
    """CPUs of a job on a node: the cores that are marked as allocated, or the count where a release says it."""
    cpus = share.get("cpus")
    if isinstance(cpus, dict):
        return whole(cpus.get("count"))
    sockets = share.get("sockets")
    if isinstance(sockets, dict):
        cores = [core for socket in sockets.values() if isinstance(socket, dict) for core in _cores(socket)]
        return sum(core.lower().startswith("allocated") for core in cores)
    return whole(share.get("cpus_used"))


def _cores(socket: Json) -> list[str]:
    cores = socket.get("cores")
    return [str(each) for each in cores.values()] if isinstance(cores, dict) else []
