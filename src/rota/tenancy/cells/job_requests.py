"""What a job asks of cells: labels, and requests that are refused. Messages begin with the field."""

from __future__ import annotations

from rota.core.errors import did_you_mean
from rota.core.model.cells import PinnedId
from rota.core.model.job import OPPORTUNISTIC, WHOLE, DeviceType, Job
from rota.tenancy.cells.build import Forest, TenantForest
from rota.tenancy.cells.schedule import nodes_of

PINNED_LABEL = "pinned_cell"
"""The label with which a job asks for a pinned cell."""
LAZY_LABEL = "lazy_preemption"
"""The label (`true`) of a job that prefers to lose its guarantee, not its devices."""


def pinned_cell(job: Job) -> PinnedId | None:
    """The pinned cell that a job asks for; None without a guarantee."""
    label = _label(job, PINNED_LABEL)
    return PinnedId(label) if label and job.priority > OPPORTUNISTIC else None


def is_lazy(job: Job) -> bool:
    """Whether a job prefers to lose its guarantee, not its devices."""
    return _label(job, LAZY_LABEL) == "true"


def _label(job: Job, name: str) -> str | None:
    return next((value for key, value in job.labels if key == name), None)


def unsupported(job: Job) -> str | None:
    """What cells don't support: fractions of devices, exclusive nodes, types by role."""
    for role in job.roles:
        if role.is_fraction:
            return f"gpus is {role.device_milli / WHOLE:g}; tenancy 'cells' gives whole devices, ask for one"
    if job.exclusive:
        return "exclusive is true; tenancy 'cells' can't keep others off a node, ask for all of its devices instead"
    types = list(dict.fromkeys(role.device_types for role in job.roles if role.device_milli and role.device_types))
    if len(types) > 1:
        return (
            f"gpu is {', '.join(types[0])} for one role and {', '.join(types[1])} for another; a gang in tenancy "
            "'cells' has devices of one type, name the same for all roles"
        )
    return None


def pinned_without_guarantee(job: Job) -> str | None:
    """The pinned cell that an opportunistic job asks for: those are for jobs with a guarantee."""
    label = _label(job, PINNED_LABEL)
    if not label:
        return None
    return f"labels.{PINNED_LABEL} is {label!r}; a job of priority {job.priority} can't ask for a pinned cell"


def not_owned(job: Job, forest: Forest) -> str | None:
    """What a job with a guarantee asks for beyond what its tenant owns, however idle that is."""
    estate = forest.estates.get(job.tenant)
    if estate is None:
        return f"tenant is {job.tenant!r}, which owns no cells; {did_you_mean(job.tenant, forest.estates)}"
    pinned = pinned_cell(job)
    if pinned is not None and pinned not in estate.pinned:
        known = did_you_mean(pinned, estate.pinned)
        return f"labels.{PINNED_LABEL} is {pinned!r}, which tenant {job.tenant!r} does not own; {known}"
    owned = [[estate.pinned[pinned]]] if pinned is not None else list(estate.roots.values())
    wanted = next((role.device_types for role in job.roles if role.device_types), ())
    fit = [roots for roots in owned if not wanted or DeviceType(forest.chains[roots[0].chain].leaf_type) in wanted]
    if not fit:
        if not owned and not wanted:
            return f"gpus: tenant {job.tenant!r} owns no cells; ask for priority -1{_or_pinned(pinned, estate)}"
        types = {forest.chains[roots[0].chain].leaf_type for roots in owned}
        return f"gpu is {', '.join(wanted)}; tenant {job.tenant!r} owns {', '.join(sorted(types)) or 'nothing'}"
    most = max(sum(root.leaves for root in roots) for roots in fit)
    if job.gpu_milli > most * WHOLE:
        return (
            f"gpus: the job needs {job.gpus:g} devices, tenant {job.tenant!r} owns {most} of one type; "
            f"ask for less, or for priority -1{_or_pinned(pinned, estate)}"
        )
    largest = max(node.leaves for roots in fit for node in nodes_of(roots, forest.chains[roots[0].chain].node_level))
    task = max(role.device_milli for role in job.roles)
    if task > largest * WHOLE:
        return (
            f"gpus: a task needs {task // WHOLE} devices, the cells of tenant {job.tenant!r} have at most {largest} on "
            f"one node; ask for less per task, or for priority -1{_or_pinned(pinned, estate)}"
        )
    return None


def _or_pinned(pinned: PinnedId | None, estate: TenantForest) -> str:
    """What else a tenant has, which a job gets only if it asks for it."""
    if pinned is not None or not estate.pinned:
        return ""
    return f", or for a pinned cell with labels.{PINNED_LABEL} ({', '.join(estate.pinned)})"
