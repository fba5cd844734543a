"""Jobs that name a model to plan: the sizes that fit into memory, their work in steps, and plans that stay fixed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.core.model.job import WHOLE, DeviceType, Job
from rota.drivers.simulator.planned_sizes import FIXED, device_counts
from rota.perf.profiles.catalogue import REFERENCE
from rota.perf.profiles.speed_table import Profiles
from rota.planner.parallel.catalogue import MODELS
from rota.planner.parallel.cluster_speeds import PlannedSpeeds, best_plan
from rota.planner.parallel.job_memory import MemoryCheck, memory_check
from rota.planner.parallel.model_names import is_planned, pinned
from rota.traces.workload import Submission, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlanner:
    """Turns jobs of planned models into jobs that the speed model can run."""

    check: MemoryCheck
    reference: DeviceType
    fixed: bool
    """Whether a job keeps the plan that is best for its request."""
    counts_steps: bool

    def planned(self, submission: Submission) -> Submission | str:
        """Return the submission with sizes that fit and work in steps; a text says why no size fits."""
        job = submission.job
        if not is_planned(job.model) or not job.gpu_milli:
            return submission
        sized = self.check.within_memory(job)
        if isinstance(sized, str):
            return sized
        if self.fixed:
            sized = self._with_fixed_plan(sized)
        if not self.counts_steps and sized.work is not None:
            sized = replace(sized, work=sized.work * self._steps_per_s(job, sized))
        return replace(submission, job=sized)

    def _fastest(self, job: Job) -> tuple[DeviceType, int]:
        """Return the type on which a job of the requested size is fastest, and its devices."""
        devices = job.gpu_milli // WHOLE
        rates = {
            kind: self.check.speeds.rate(kind, str(job.model), devices) or 0.0
            for kind in self.check.kinds(job, devices)
        }
        return max(rates, key=lambda kind: rates[kind]), devices

    def _with_fixed_plan(self, job: Job) -> Job:
        """Return the job with the plan of its request in its model's name, and sizes that this plan can use."""
        kind, devices = self._fastest(job)
        plan = best_plan(str(job.model), kind, devices, self.check.speeds.per_node[kind]).plan
        assert plan is not None, "the requested size fits"
        fixed = self.check.within_memory(replace(job, model=pinned(str(job.model), plan)))
        assert isinstance(fixed, Job), "the plan fits at the requested size"
        return fixed

    def _steps_per_s(self, asked: Job, sized: Job) -> float:
        """Return the speed in whose seconds the work is: on the reference at the requested size, or the fastest."""
        model, devices = str(asked.model), sized.gpu_milli // WHOLE
        at_reference = self.check.speeds.rate(self.reference, model, devices) or 0.0
        return (
            at_reference or self.check.speeds.rate(self._fastest(replace(sized, model=model))[0], model, devices) or 0.0
        )


def with_plans(
    name: str, workload: Workload, cluster: Cluster, reference: str | None, *, skip: bool
) -> tuple[Workload, PlannedSpeeds, int]:
    """Return the workload with its planned jobs ready to run, their speeds, and how many were left out.

    A job that fits into memory at none of its sizes is left out with `skip`, and an error otherwise.
    """
    if not any(is_planned(submission.job.model) for submission in workload.submissions):
        raise RotaError(f"--profiles {name}: no job of {workload.source} names a model to plan ({', '.join(MODELS)})")
    planner = JobPlanner(
        check=memory_check(cluster),
        reference=REFERENCE if reference is None else DeviceType(reference),
        fixed=name == FIXED,
        counts_steps=workload.counts_steps,
    )
    kept, refused = [], []
    for submission in workload.submissions:
        answer = planner.planned(submission)
        if isinstance(answer, str):
            refused.append((submission.job, answer))
        else:
            kept.append(answer)
    if refused and (not skip or not kept):
        job, why = refused[0]
        raise RotaError(f"job {job.id}: {why}; or leave such jobs out with --skip-oversized ({len(refused):,} here)")
    return replace(workload, submissions=tuple(kept)), planner.check.speeds, len(refused)


def plan_table(speeds: PlannedSpeeds, workload: Workload, others: Profiles | None) -> Profiles:
    """Return the speeds of a workload's planned models at all sizes that its jobs may have, with those of others."""
    sizes: dict[str, set[int]] = {}
    for submission in workload.submissions:
        job = submission.job
        if job.model is not None and is_planned(job.model) and job.gpu_milli:
            sizes.setdefault(job.model, set()).update(device_counts(job))
    return speeds.table({model: sorted(counts) for model, counts in sizes.items()}, others)
