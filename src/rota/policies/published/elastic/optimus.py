"""Optimus (Peng et al., EuroSys 2018): workers go where they shorten the time to convergence most.

The remaining time of a job is predicted from its losses so far, and its speed by size from a few profiled steps and all
sizes it ran at; both models are fitted online. In every interval each job gets its smallest size, then one worker at a
time goes to the job with the largest gain in time per share of the cluster. Elastic jobs here have one type of task:
each worker is assumed to have a parameter server next to it.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import Any

from rota.core.errors import RotaError
from rota.core.model.placement import tasks_of
from rota.core.state.job_record import LiveJob
from rota.mechanisms.declare import Knowledge, Traits
from rota.mechanisms.elastic.declare import elastic
from rota.mechanisms.elastic.rule import UNKNOWN_WORK_S, Candidate, DefaultSizeRule, SizePlan, SizeQuestion, Target
from rota.perf.training.convergence import fit
from rota.perf.training.speed_fit import SpeedCurve, fit_speed

_PROFILED = (1, 2, 4, 8, 16)
"""Sizes, as multiples of the smallest, at which a new job is profiled for a few steps."""
_LONGEST_EPOCHS = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimusParams:
    """Seconds between two plans."""

    round_s: float = 600.0

    def __post_init__(self) -> None:
        if not 0 < self.round_s < math.inf:
            raise RotaError(f"round_s is {self.round_s:g}; it must be above 0 and not endless")


class Optimus(DefaultSizeRule):
    """Rule that keeps the measured speeds by size of each job."""

    def __init__(self, params: OptimusParams, knowledge: Knowledge) -> None:
        self.interval_s: float | None = params.round_s
        self.replans_without_events = True
        self._speed = knowledge.speed
        self._reports = knowledge.reports
        self._measured: dict[int, dict[int, float]] = {}
        self._curves: dict[int, SpeedCurve] = {}
        self._epochs_left: dict[int, tuple[int, float]] = {}

    @property
    def memory(self) -> Any:
        """Measured speeds by job and size."""
        return [[seq, list(map(list, speeds.items()))] for seq, speeds in self._measured.items()]

    def recall(self, memory: Any) -> None:
        """Restore the measurements; models are fitted again on demand."""
        self._measured = {seq: dict(speeds) for seq, speeds in memory}
        self._curves, self._epochs_left = {}, {}

    def observe(self, live: LiveJob, nodes: int, now_s: float) -> None:
        """Record the speed of a job at its present size."""
        if live.job.elastic is not None and live.placement is not None:
            self._measured.setdefault(live.seq, {})[tasks_of(live.placement)] = live.rate
            self._curves.pop(live.seq, None)

    def forget(self, live: LiveJob) -> None:
        """Drop the measurements of a job that has ended."""
        for known in (self._measured, self._curves, self._epochs_left):
            known.pop(live.seq, None)

    def plan(self, question: SizeQuestion) -> SizePlan:
        """Give every job its smallest size in order of submission, then add workers one by one."""
        given: dict[int, int] = {}
        free_milli = question.free_milli
        for found in question.candidates:
            if found.sizes and found.sizes[0] * found.per_task_milli <= free_milli:
                given[found.seq] = found.sizes[0]
                free_milli -= found.sizes[0] * found.per_task_milli
        jobs = {found.seq: found for found in question.candidates if found.seq in given and found.is_elastic}
        heap: list[tuple[float, int]] = []
        work = {seq: self._work_left(found, question.now_s) for seq, found in jobs.items()}

        def offer(seq: int) -> None:
            found, tasks = jobs[seq], given[seq]
            if tasks < found.sizes[-1]:
                gain = self._gain_s(found, tasks, work[seq], question) / found.gpus(1)
                if gain > 0:
                    heapq.heappush(heap, (-gain, seq))

        for seq in jobs:
            offer(seq)
        while heap:
            _, seq = heapq.heappop(heap)
            if jobs[seq].per_task_milli <= free_milli:
                free_milli -= jobs[seq].per_task_milli
                given[seq] += 1
                offer(seq)
        by_seq = {found.seq: found for found in question.candidates}
        smallest_first = sorted(given, key=lambda seq: (by_seq[seq].gpus(given[seq]), seq))
        return SizePlan({seq: Target(given[seq]) for seq in smallest_first})

    def _gain_s(self, found: Candidate, tasks: int, work: float, question: SizeQuestion) -> float:
        """Return by how many seconds one more worker shortens the job."""
        curve = self._curve(found, question)
        now, then = curve.speed(tasks), curve.speed(tasks + 1)
        return work / now - work / then if now > 0 and then > 0 else 0.0

    def _curve(self, found: Candidate, question: SizeQuestion) -> SpeedCurve:
        curve = self._curves.get(found.seq)
        if curve is None:
            measured = self._measured.get(found.seq)
            if measured is None:
                measured = self._measured[found.seq] = self._profile(found, question)
            curve = self._curves[found.seq] = fit_speed(measured)
        return curve

    def _profile(self, found: Candidate, question: SizeQuestion) -> dict[int, float]:
        """Profile a few steps at a few sizes before the job starts."""
        job = found.live.job
        sizes = [found.sizes[0] * factor for factor in _PROFILED]
        return {
            tasks: max(
                self._speed.at_size(
                    job, pool.device_type, tasks, several_nodes=found.gpus(tasks) > question.node_devices
                )
                for pool in question.pools
            )
            for tasks in sizes
            if tasks in found.sizes
        }

    def _work_left(self, found: Candidate, now_s: float) -> float:
        """Return the work until convergence by the fitted loss curve, or by the user's estimate without losses."""
        live = found.live
        done = live.work_done(now_s)
        reports = self._reports.losses(live.job, done)
        if reports is None or len(reports.losses) < 3:
            guess_s = UNKNOWN_WORK_S if live.job.estimate_s is None else live.job.estimate_s
            return max(guess_s * live.nominal_rate - done, live.nominal_rate)
        epochs = len(reports.losses)
        known = self._epochs_left.get(live.seq)
        if known is None or known[0] != epochs:
            curve = fit(reports.losses)
            at = epochs + 1.0 if curve is None else curve.converges_at(reports.threshold)
            known = self._epochs_left[live.seq] = (epochs, min(max(at - epochs, 0.5), _LONGEST_EPOCHS))
        return known[1] * done / epochs


optimus = elastic(
    "optimus",
    Optimus,
    cites="Peng et al., EuroSys 2018",
    summary="One more worker goes to the job whose convergence it speeds up most, by models fitted online.",
    differs=(
        "elastic jobs have one type of task. Workers and parameter servers are not counted separately: one "
        "server is assumed next to each worker, and their load is not balanced."
    ),
    params=OptimusParams,
    plans_in_rounds=True,
    placement="even",
    traits=Traits(
        prior_knowledge="a few profiled steps",
        scheduling_input="losses, measured speeds",
        dimensions="time and space",
        priority="largest gain in time per share",
        preemption="at intervals, and resizing",
        placement="even over few nodes",
        intrusiveness="loss reports, checkpoint",
    ),
)
