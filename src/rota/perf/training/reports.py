"""What jobs tell of their training while they run, for policies that learn from it.

Simulated jobs tell what the simulated world knows of them, where they have run and as far as they have come. Real jobs
tell nothing of it yet: who plans then has their speed, and nothing else.
"""

from __future__ import annotations

from rota.core.model.job import Job
from rota.perf.training.convergence import LossReport, report
from rota.perf.training.goodput import TRAININGS, Batches, Sample, steps_tried


class Reports:
    """Jobs that tell nothing."""

    def batches(self, job: Job) -> Batches | None:
        """Which batches a job may use, and the noise of its gradient as it was measured."""
        return None

    def steps(self, job: Job, devices: int, several_nodes: bool) -> tuple[Sample, ...]:
        """Steps that the job tried with a few batches where it ran."""
        return ()

    def losses(self, job: Job, work: float) -> LossReport | None:
        """The losses of a job that has done so much work."""
        return None


class SimulatedReports(Reports):
    """Jobs of models that the simulator knows tell of their steps, all others of their losses only."""

    def batches(self, job: Job) -> Batches | None:
        """As they truly are."""
        known = TRAININGS.get(job.model or "")
        return None if known is None else known.batches

    def steps(self, job: Job, devices: int, several_nodes: bool) -> tuple[Sample, ...]:
        """As they truly are."""
        return steps_tried(job.model, devices, several_nodes) if job.model in TRAININGS else ()

    def losses(self, job: Job, work: float) -> LossReport | None:
        """With noise."""
        return report(job, work)
