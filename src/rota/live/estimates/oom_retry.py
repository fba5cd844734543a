"""A retry with more memory for a job that ran out of the amount that the manager had estimated.

What a user asked for stands, whatever becomes of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rota.core.messages.failures import FailureCode
from rota.core.model.job import WHOLE, Job
from rota.core.state.job_record import LiveJob
from rota.core.state.node_accounts import NodeAccount
from rota.files.auto import raised
from rota.files.job import job_file, job_of
from rota.files.quantities import parse_bytes

MOST_RAISES = 4
"""How often memory is doubled before the job fails."""
FIELD_BY_FAILURE: Mapping[str, str] = {
    FailureCode.OUT_OF_MEMORY.value: "memory",
    FailureCode.GPU_OUT_OF_MEMORY.value: "gpu_memory",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Raise:
    """The request of the next attempt, and the message about it."""

    spec: dict[str, Any]
    job: Job
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoMore:
    """Why a job gets no more of what it ran out of."""

    message: str


def more_memory(spec: str, live: LiveJob, nodes: Sequence[NodeAccount], failure: str | None) -> Raise | NoMore | None:
    """Return what to do about a failed job; None if it did not run out of an amount that the manager chose."""
    values = json.loads(spec)
    field = FIELD_BY_FAILURE.get(failure or "")
    estimate = (values.get("estimated") or {}).get(field)
    if field is None or estimate is None:
        return None
    had = parse_bytes(estimate["given"])
    if field == "gpu_memory" and _had_all(live):
        had = max([had, *(nodes[slot.node].node.device_memory_bytes or 0 for slot in live.placement or ())])
        amount = min((size for size in _sizes(field, nodes) if size is not None and size > had), default=None)
        ran_out = "out of GPU memory with a whole GPU"
    else:
        amount = _more(field, had, nodes)
        ran_out = f"out of {_WORDS[field]} with {_size(had)}, which Rota chose"
    if amount is None:
        return NoMore(message=f"{ran_out}; no {_WHERE[field]} is known to have more")
    limit = values.get("max_restarts")
    most = MOST_RAISES if limit is None else min(MOST_RAISES, limit)
    if estimate.get("raised", 0) >= most:
        times = "time" if most == 1 else "times"
        return NoMore(message=f"{ran_out}; that is raised at most {most} {times}: ask for what it needs yourself")
    values = raised(values, field, amount, ran_out)
    job = replace(live.job, roles=job_of(job_file(values), live.job.id).roles)
    return Raise(spec=values, job=job, message=f"{ran_out}; tried again with {_size(amount)}")


_WORDS = {"memory": "memory", "gpu_memory": "GPU memory"}
_WHERE = {"memory": "node", "gpu_memory": "GPU"}


def largest(field: str, nodes: Sequence[NodeAccount]) -> int | None:
    """How much memory a task can have at most; None where that is not counted."""
    sizes = _sizes(field, nodes)
    return None if None in sizes else max((size for size in sizes if size is not None), default=None)


def _sizes(field: str, nodes: Sequence[NodeAccount]) -> list[int | None]:
    present = [books.node for books in nodes if not books.removed]
    if field == "memory":
        return [node.memory_bytes for node in present]
    return [node.device_memory_bytes for node in present if node.devices]


def _had_all(live: LiveJob) -> bool:
    """Return whether it had its devices to itself."""
    return all(slot.milli == WHOLE for slot in live.placement or ())


def _more(field: str, had: int, nodes: Sequence[NodeAccount]) -> int | None:
    """Twice as much, or all that there is; None if that is no more."""
    most = largest(field, nodes)
    amount = 2 * had if most is None else min(2 * had, most)
    return amount if amount > had else None


def _size(amount: int) -> str:
    return f"{amount / 2**30:.2f} GiB" if amount >= 2**30 else f"{amount / 2**20:.0f} MiB"
