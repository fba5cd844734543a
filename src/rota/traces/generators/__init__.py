"""Synthetic workloads of a known kind, size and load; the same seed gives the same workload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

from rota.core.errors import RotaError, did_you_mean
from rota.core.model.job import Job, JobId, Role, TenantId
from rota.perf.profiles.catalogue import catalogue
from rota.traces.assemble import collection_paused
from rota.traces.generators.constraints import constrained
from rota.traces.generators.mixes import DEADLINES, FAILING, PROBE, RETRAIN, SWEEP
from rota.traces.generators.planned import Campaign, Planned, WorkloadKind
from rota.traces.generators.published import ALIBABA_LIKE, GAVEL_LIKE, PHILLY_LIKE
from rota.traces.workload import Submission, Workload

DEFAULT_GPUS = 440
DEFAULT_LOAD = 0.85

KINDS: Mapping[str, WorkloadKind] = {
    kind.name: kind for kind in (PHILLY_LIKE, GAVEL_LIKE, ALIBABA_LIKE, SWEEP, PROBE, RETRAIN, FAILING, DEADLINES)
}
"""Kinds of one pattern, by name."""

MIXED = "mixed"
MIXED_SHARES: Mapping[str, float] = {
    "philly-like": 0.40,
    "sweep": 0.25,
    "probe": 0.10,
    "retrain": 0.10,
    "failures": 0.10,
    "deadlines": 0.05,
}
"""How many of the jobs of `mixed` are of which kind."""

DESCRIPTIONS: Mapping[str, str] = {
    **{kind.name: kind.description for kind in KINDS.values()},
    MIXED: "sweeps, probes, retraining, failures and deadlines over a stream of philly-like jobs",
}
"""Every name that `generate` knows, with a line about it."""


def generate(
    kind: str,
    *,
    jobs: int,
    seed: int,
    gpus: int = DEFAULT_GPUS,
    load: float = DEFAULT_LOAD,
    elastic: float = 0.0,
    deadlines: float = 0.0,
) -> Workload:
    """A workload whose mean demand, from first submission to last, is `load` times `gpus`; no job asks for more.

    A share of `elastic` of the jobs may be resized; `deadlines` is the share that has one.
    """
    _check(kind, jobs, gpus, load)
    with collection_paused():
        made = _generated(kind, jobs, seed, gpus, load)
        return replace(made, submissions=constrained(made.submissions, elastic=elastic, deadlines=deadlines, seed=seed))


def _generated(kind: str, jobs: int, seed: int, gpus: int, load: float) -> Workload:
    rng = Random(seed)
    parts = [(KINDS[name], KINDS[name].draw(rng, count)) for name, count in _counts(kind, jobs).items()]
    _name_models([campaign for _, campaigns in parts for campaign in campaigns], seed)
    planned = [job for _, campaigns in parts for campaign in campaigns for job in campaign]
    for job in planned:
        job.gpus = min(job.gpus, gpus)
    span_s = sum(job.gpu_s for job in planned) / (load * gpus)
    for part, campaigns in parts:
        part.place(rng, campaigns, span_s)
    planned.sort(key=lambda job: job.submit_s)
    _stretch(planned, span_s)
    return Workload(submissions=_submissions(planned), source=f"generated ({kind}, seed {seed})", format="rota")


def _name_models(campaigns: list[Campaign], seed: int) -> None:
    """Each campaign trains one model of the catalogue, all equally likely: an assumption, the traces name none.

    Drawn from a source of its own, so that sizes, lengths and times are the same with and without models.
    """
    rng = Random(f"models of {seed}")
    models = sorted(catalogue().models)
    for campaign in campaigns:
        model = rng.choice(models)
        for job in campaign:
            job.model = model


def _check(kind: str, jobs: int, gpus: int, load: float) -> None:
    if kind not in DESCRIPTIONS:
        raise RotaError(f"unknown kind of workload {kind!r}; {did_you_mean(kind, DESCRIPTIONS)}")
    if jobs < 1:
        raise RotaError(f"jobs is {jobs}; it must be at least 1")
    if gpus < 1:
        raise RotaError(f"gpus is {gpus}; it must be at least 1")
    if not 0 < load < float("inf"):
        raise RotaError(f"load is {load:g}; it must be a number above 0, such as 0.85")


def _counts(kind: str, jobs: int) -> dict[str, int]:
    """How many jobs to draw of which kind; what rounding leaves goes to the first."""
    if kind != MIXED:
        return {kind: jobs}
    counts = {name: int(jobs * share) for name, share in MIXED_SHARES.items()}
    counts[next(iter(counts))] += jobs - sum(counts.values())
    return {name: count for name, count in counts.items() if count}


def _stretch(planned: list[Planned], span_s: float) -> None:
    """Stretch time so that it begins at 0 and is exactly as long as the load demands."""
    first_s, last_s = planned[0].submit_s, planned[-1].submit_s
    factor = span_s / (last_s - first_s) if last_s > first_s else 0.0
    for job in planned:
        job.submit_s = round((job.submit_s - first_s) * factor, 3)
        if job.due_s is not None:
            job.due_s = round((job.due_s - first_s) * factor, 3)


LEAST_SLACK = 1.1


def _submissions(planned: list[Planned]) -> tuple[Submission, ...]:
    """Jobs in order of time, numbered from 0; a deadline leaves each at least a tenth more than its run."""
    id_of = {job: JobId(str(number)) for number, job in enumerate(planned)}
    shapes: dict[tuple[float, bool], tuple[Role, ...]] = {}
    return tuple(
        [
            Submission(
                job=Job(
                    id=id_of[job],
                    roles=shapes.get(key := (job.gpus, job.is_pod)) or shapes.setdefault(key, job.shape[0]),
                    name=job.name,
                    tenant=TenantId(job.tenant),
                    user=job.user,
                    priority=job.priority,
                    work=job.work,
                    depends_on=() if job.after is None else (id_of[job.after],),
                    deadline_s=None if job.due_s is None else max(job.due_s, _earliest_s(job)),
                    time_limit_s=job.time_limit_s,
                    labels=job.labels,
                    model=job.model,
                ),
                submit_s=job.submit_s,
                outcome=job.outcome,
                ends_at=job.ends_at,
            )
            for job in planned
        ]
    )


def _earliest_s(job: Planned) -> float:
    return round(job.submit_s + LEAST_SLACK * job.work, 3)


__all__ = ["DEFAULT_GPUS", "DEFAULT_LOAD", "DESCRIPTIONS", "KINDS", "WorkloadKind", "generate"]
