"""Slurm's records as Rota's types: nodes, jobs, placements, and accounts as tenants."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import WHOLE, Checkpoint, DeviceType, Job, JobId, NodeId, Role, TenantId
from rota.core.model.labels import NODE_NAME, Operator, Requirement, Terms
from rota.core.model.placement import Placement, Slot, lowest
from rota.core.model.tenants import ANY_TYPE, Share, TenantPlan
from rota.core.state.job_record import LiveJob
from rota.drivers.slurm import marks
from rota.drivers.slurm.printed.accounts import Association
from rota.drivers.slurm.printed.records import SlurmJob, SlurmNode
from rota.scenario.partitions import NODE_LABEL, YES

PARTITION = NODE_LABEL
FEATURE = "slurm.feature/"
_YES = YES
UNTYPED = "gpu"
NAMED = "reservation"
"""The label of a job that names a reservation."""
_HELD = "held-"
"""How the names of roles begin that say what a job holds."""
_ALL = (1 << 4096) - 1
"""As many devices as a node may have."""


def node_of(node: SlurmNode) -> Node:
    """A node; its partitions and features are labels."""
    labels = [(f"{PARTITION}{name}", _YES) for name in node.partitions]
    labels += [(f"{FEATURE}{name}", _YES) for name in node.features]
    return Node(
        id=NodeId(node.name),
        device_type=DeviceType(node.gpus.type or UNTYPED),
        devices=node.gpus.count,
        cpu_milli=node.cpus * 1000,
        memory_bytes=node.memory_bytes,
        labels=tuple(labels),
    )


def cluster_of(nodes: Sequence[SlurmNode], associations: Sequence[Association] = ()) -> Cluster:
    """The cluster, with accounts as tenants where there are any."""
    return Cluster(nodes=tuple(node_of(node) for node in nodes), tenants=tenants_of(associations))


def tenants_of(associations: Sequence[Association]) -> TenantPlan | None:
    """Accounts as tenants: GrpTRES=gres/gpu is the limit, the fair share the weight. Slurm guarantees nothing."""
    accounts = {each.account: each for each in associations if not each.user}
    if not accounts:
        return None
    shares = {}
    for name, each in accounts.items():
        limit = {} if each.group_gpus is None else {ANY_TYPE: each.group_gpus}
        shares[TenantId(name)] = Share(
            limit=limit,
            parent=TenantId(each.parent) if each.parent in accounts else None,
            weight=max(each.shares, 1e-6),
            per_user=each.user_gpus,
        )
    return TenantPlan(shares=shares)


def job_of(job: SlurmJob, qos: Mapping[str, int] | None = None) -> Job:
    """A job. Its priority is that of its QOS. Its time limit is an estimate here, for Slurm enforces it.

    One that must not be requeued is never preempted.
    """
    return Job(
        id=JobId(job.id),
        roles=(_role_of(job),),
        name=job.name,
        tenant=TenantId(job.account or "default"),
        user=job.user,
        priority=(qos or {}).get(job.qos, 0),
        estimate_s=job.time_limit_s,
        exclusive=job.exclusive,
        preemptible=job.requeue,
        checkpoint=Checkpoint(interval_s=math.inf, grace_s=30.0),
        labels=tuple((name, value) for name, value in (("slurm.qos", job.qos), (NAMED, job.reservation)) if value),
    )


def _role_of(job: SlurmJob) -> Role:
    """One task per node where GPUs are asked for by node, or none are; as asked by task, or one per GPU elsewhere."""
    nodes = job.nodes_wanted
    gpus = job.gpus.count
    tasks = nodes if not gpus or (job.gpus_per_node and gpus % nodes == 0) or gpus < nodes else gpus
    if job.gpus_per_task and gpus % job.gpus_per_task == 0:
        tasks = gpus // job.gpus_per_task
    elif nodes == 1 and gpus and not _may_spread(job):
        tasks = 1
    return Role(
        count=tasks,
        device_milli=WHOLE * (gpus // tasks),
        device_types=(DeviceType(job.gpus.type),) if job.gpus.type else (),
        cpu_milli=1000 * job.cpus // tasks,
        memory_bytes=job.memory_bytes // tasks,
        requires=terms_of(job),
    )


def _may_spread(job: SlurmJob) -> bool:
    """Whether Slurm may use more nodes than the least: GPUs are asked for by job, not by node."""
    return not job.gpus_per_node


def terms_of(job: SlurmJob) -> Terms:
    """What nodes must have: the partition, the features (`a&b`, `a|b`), named nodes and no excluded ones."""
    more: tuple[Requirement, ...] = ()
    if job.excluded_nodes:
        more = (Requirement(NODE_NAME, Operator.NOT_IN.value, tuple(job.excluded_nodes)),)
    partitions: list[tuple[str, ...]] = [(f"{PARTITION}{name}",) for name in job.partitions] or [()]
    choices = [tuple(f"{FEATURE}{name}" for name in choice) for choice in feature_choices(job.features)]
    return tuple(
        (*(Requirement(key, Operator.IN.value, (_YES,)) for key in (*partition, *choice)), *more)
        for partition in partitions
        for choice in choices
    )


def feature_choices(features: str) -> list[tuple[str, ...]]:
    """The ways to meet a constraint of `&` and `|`; counts and brackets are left to Slurm (`is_simple`)."""
    if not features:
        return [()]
    return [tuple(name for name in choice.split("&") if name) for choice in features.replace(",", "&").split("|")]


def is_simple(job: SlurmJob) -> str | None:
    """Why a job is left to Slurm by name; None if Rota can place it."""
    if job.is_het:
        return "heterogeneous jobs are left to Slurm"
    if job.reservation:
        return "jobs in a reservation are left to Slurm"
    if any(sign in job.features for sign in "[]*()"):
        return "constraints with counts or brackets are left to Slurm"
    if job.required_nodes and job.admin_comment not in (marks.PLACED, marks.PREEMPTED):
        return "jobs that name their nodes are left to Slurm"
    return None


def why_left(job: SlurmJob, nodes: Iterable[SlurmNode]) -> str | None:
    """Why a job is left to Slurm by name on these nodes; None if Rota can place it."""
    why = is_simple(job)
    if why is not None or not job.gpus.count:
        return why
    found = [
        node.is_mixed
        for node in nodes
        if node.gpus.count
        and (not job.gpus.type or job.gpus.type in node.gpu_types)
        and (not job.partitions or not set(job.partitions).isdisjoint(node.partitions))
    ]
    return (
        "nodes with GPUs of several types, which alone it may use, are left to Slurm" if found and all(found) else None
    )


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why what a job holds can't be told as a placement."""

    why: str


def placement_of(
    job: SlurmJob, shaped: Job, index_by_node: Mapping[str, int], taken: Mapping[int, int]
) -> Placement | Misfit:
    """Where a running job is; `taken` are the devices of others by node, for GPUs whose index Slurm does not say."""
    role = shaped.roles[0]
    each = role.device_milli // WHOLE
    slots = []
    placed = 0
    for share in job.shares:
        index = index_by_node.get(share.node)
        if index is None:
            return Misfit(f"node {share.node} is not known")
        tasks = share.gpus.count // each if each else 1
        if each and (not share.gpus.count or share.gpus.count % each):
            return Misfit(f"{share.gpus.count} GPUs on node {share.node}, {each} to a task")
        mask = share.gpus.mask
        if each and mask.bit_count() != share.gpus.count:
            mask = lowest(~taken.get(index, 0) & _ALL, share.gpus.count)
        slots.append(Slot(index, mask, tasks, 0))
        placed += tasks
    if not each and placed < role.count and len(slots) == 1:
        slots = [slots[0]._replace(tasks=role.count)]
        placed = role.count
    if placed != role.count:
        return Misfit(f"{placed} tasks on its nodes, {role.count} were expected")
    return tuple(sorted(slots))


def claim_of(
    job: SlurmJob, shaped: Job, index_by_node: Mapping[str, int], taken: Mapping[int, int]
) -> tuple[Job, Placement] | Misfit:
    """Where a running job is, and the job as it is there.

    Where Slurm gave it other amounts than it asked for (whole nodes, GPUs divided unevenly), it asks for those.
    """
    found = placement_of(job, shaped, index_by_node, taken)
    if isinstance(found, Misfit) and job.exclusive:
        found = _placement_on_whole_nodes(job, shaped, index_by_node) or found
    if not isinstance(found, Misfit):
        return shaped, found
    if not job.shares or any(share.node not in index_by_node for share in job.shares):
        return found
    kinds = sorted({(share.gpus.count, share.cpus, share.memory_bytes) for share in job.shares}, reverse=True)
    roles, slots = [], []
    for number, kind in enumerate(kinds):
        alike = [share for share in job.shares if (share.gpus.count, share.cpus, share.memory_bytes) == kind]
        gpus, cpus, memory = kind
        role = replace(
            shaped.roles[0],
            name=f"{_HELD}{number + 1}",
            count=len(alike),
            device_milli=WHOLE * gpus,
            cpu_milli=1000 * cpus,
            memory_bytes=memory,
        )
        roles.append(role)
        for share in alike:
            index, mask = index_by_node[share.node], share.gpus.mask
            if mask.bit_count() != gpus:
                mask = lowest(~taken.get(index, 0) & _ALL, gpus)
            slots.append(Slot(index, mask, 1, number))
    return replace(shaped, roles=tuple(roles)), tuple(sorted(slots))


def _placement_on_whole_nodes(job: SlurmJob, shaped: Job, index_by_node: Mapping[str, int]) -> Placement | None:
    """The tasks of a job that has its nodes for itself, among all devices of these nodes; None if they don't fit."""
    each, count = shaped.roles[0].device_milli // WHOLE, shaped.roles[0].count
    tasks = [min(1, count)] * len(job.shares)
    for at, share in enumerate(job.shares):
        most = share.gpus.count // each if each else count
        tasks[at] += max(min(most - 1, count - sum(tasks)), 0)
    if sum(tasks) != count or any(
        share.node not in index_by_node or each * number > share.gpus.count
        for share, number in zip(job.shares, tasks, strict=True)
    ):
        return None
    return tuple(
        sorted(
            Slot(index_by_node[share.node], lowest(share.gpus.mask or _ALL, each * number), number, 0)
            for share, number in zip(job.shares, tasks, strict=True)
        )
    )


def runs_as_planned(job: SlurmJob, live: LiveJob, names: Sequence[str]) -> bool:
    """Whether a job has the time limit that was known and as many GPUs of each node as was planned.

    Slurm divides them among the nodes itself, and raises a limit above `--time-min`.
    """
    if job.time_limit_s != live.job.estimate_s:
        return False
    planned: Counter[str] = Counter()
    for slot in live.placement or ():
        planned[names[slot.node]] += slot.devices.bit_count()
    held = {share.node: share.gpus.count for share in job.shares}
    return not held or held == planned or (live.job.exclusive and held.keys() == planned.keys())


def nodes_of(placement: Placement, names: Sequence[str]) -> list[str]:
    """The names of a placement's nodes, each once, in order."""
    return list(dict.fromkeys(names[slot.node] for slot in placement))
