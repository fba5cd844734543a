"""The figures that alert rules read: what `/metrics` answers, and figures of single jobs and nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from rota.api.metrics import collector
from rota.api.service import Service
from rota.core.model.job import JobState
from rota.core.state.job_record import LiveJob
from rota.files.alerts.expression import Labels, Samples
from rota.files.alerts.sources import SCRAPED, SINGLE
from rota.store import clock

Sample = tuple[Labels, float]
BUSY_OVER_S = 600.0
"""Over which time a job's GPUs are averaged."""


async def read_samples(parts: Service, names: frozenset[str]) -> Samples:
    """Return the values of the metrics of these names."""
    found: dict[str, list[Sample]] = {name: [] for name in names}
    if names & SCRAPED.keys():
        for family in (await collector(parts)).collect():
            for sample in family.samples:
                if sample.name in names and math.isfinite(sample.value):
                    found[sample.name].append((tuple(sorted(sample.labels.items())), float(sample.value)))
    if names & SINGLE.keys():
        await parts.control.at_rest()
        for name in sorted(names & SINGLE.keys()):
            found[name].extend(_SINGLE[name](parts))
    return found


def _job_labels(parts: Service, live: LiveJob) -> Labels:
    record = parts.control.kept.get(live.job.id)
    user = "" if record is None else record.owner
    return (("job", str(live.job.id)), ("name", live.job.name), ("tenant", str(live.job.tenant)), ("user", user))


def _live(parts: Service) -> Iterator[LiveJob]:
    return (live for live in list(parts.control.state.jobs.values()) if not live.state.is_final)


def _waits(parts: Service) -> Iterator[Sample]:
    now_s = clock.now_s()
    for live in _live(parts):
        if live.is_contending:
            yield _job_labels(parts, live), now_s - live.since_s


def _runs(parts: Service) -> Iterator[Sample]:
    now_s = clock.now_s()
    for live in _live(parts):
        if live.state is JobState.RUNNING:
            yield _job_labels(parts, live), live.run_s(now_s)


def _failures(parts: Service) -> Iterator[Sample]:
    for live in _live(parts):
        record = parts.control.kept.get(live.job.id)
        if record is not None:
            yield _job_labels(parts, live), float(record.failures)


def _preemptions(parts: Service) -> Iterator[Sample]:
    for live in _live(parts):
        yield _job_labels(parts, live), float(live.preemptions)


def _busy(parts: Service) -> Iterator[Sample]:
    if parts.gpus is None:
        return
    now_s = clock.now_s()
    for live in _live(parts):
        if live.state is not JobState.RUNNING or live.run_s(now_s) < BUSY_OVER_S:
            continue
        busy = parts.gpus.telemetry.busy_of(live.job.id, now_s - BUSY_OVER_S)
        if busy is not None:
            yield _job_labels(parts, live), busy


def _nodes(parts: Service) -> Iterator[Sample]:
    for account in parts.control.state.inventory.nodes:
        if not account.removed and (health := parts.health_of(account.node.id)):
            yield (("node", str(account.node.id)), ("state", health["health"])), 1.0


_SINGLE: Mapping[str, Callable[[Service], Iterator[Sample]]] = {
    "job_wait_seconds": _waits,
    "job_run_seconds": _runs,
    "job_failures": _failures,
    "job_preemptions": _preemptions,
    "job_gpu_busy_percent": _busy,
    "node_in_state": _nodes,
}
