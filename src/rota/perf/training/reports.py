"""What jobs report of their training while they run, for policies that learn from it.

Simulated jobs report what the simulated world knows of them, as far as they have run. Of real jobs, policies see their
speed, and the fraction of their steps that they say they have done (`reported` in the record of a job).
"""

from __future__ import annotations

from rota.core.model.job import Job
from rota.perf.training.convergence import LossReport, report
from rota.perf.training.goodput import TRAININGS, Batches, Sample, steps_tried

REPORTS = "progress_reports"
"""Label of a simulated job that reports its progress: how many times while it runs."""
OVERSTATES = "overstates_progress"
"""Label of a simulated job that reports this many times the progress that it made."""


class Reports:
    """Reports of jobs that report nothing."""

    def batches(self, job: Job) -> Batches | None:
        """Return the batch sizes a job may use, and its measured gradient noise."""
        return None

    def steps(self, job: Job, devices: int, several_nodes: bool) -> tuple[Sample, ...]:
        """Return the steps that the job measured with a few batch sizes where it ran."""
        return ()

    def losses(self, job: Job, work: float) -> LossReport | None:
        """Return the losses of a job that has done that much work."""
        return None

    def fraction_done(self, job: Job, work: float) -> float | None:
        """Return the fraction of its steps or epochs that a job says it has done; None if it does not say."""
        return None


class SimulatedReports(Reports):
    """Reports of steps by models that the simulator knows, and of losses by all jobs."""

    def batches(self, job: Job) -> Batches | None:
        """Return the true values."""
        known = TRAININGS.get(job.model or "")
        return None if known is None else known.batches

    def steps(self, job: Job, devices: int, several_nodes: bool) -> tuple[Sample, ...]:
        """Return the true values."""
        return steps_tried(job.model, devices, several_nodes) if job.model in TRAININGS else ()

    def losses(self, job: Job, work: float) -> LossReport | None:
        """Return noisy losses."""
        return report(job, work)

    def fraction_done(self, job: Job, work: float) -> float | None:
        """Return the true fraction at the last report, or what a job that overstates its progress claims."""
        claims = dict(job.labels)
        if REPORTS not in claims or not job.work:
            return None
        times = max(int(float(claims[REPORTS])), 1)
        done = int(work / job.work * times + 1e-9) / times
        return min(done * float(claims.get(OVERSTATES, 1.0)), 0.999) if done < 1 else 1.0
