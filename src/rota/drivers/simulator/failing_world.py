"""A world in which machines fail: checkpoints take time, failures are noticed late, and every loss has a cause.

A struck job stands still from the failure until it is noticed. Writing checkpoints slows a job evenly: of each period,
an interval and a write, only the interval is work.
"""

from __future__ import annotations

import math
import random

from rota.core.messages.decisions import Start
from rota.core.messages.events import End, Event, Interrupted, JobEnded, NodeLost
from rota.core.model.cluster import Cluster
from rota.core.model.job import JobId
from rota.core.model.placement import held_milli
from rota.drivers.simulator.job_run import JobRun
from rota.drivers.simulator.world import World
from rota.health.checkpoint_interval import mean_time_to_failure, young
from rota.health.failure_model import FailureModel, JobFaultClass
from rota.health.failure_process import Breakdown
from rota.health.lost_time import CauseLoss, JobLosses
from rota.network.load import NetworkLoad
from rota.perf.speed.model import Costs, SpeedModel
from rota.traces.workload import Submission


class _JobFault:
    """The fault that a job brings with it, and the run time until it fails in its present attempt."""

    def __init__(self, kind: JobFaultClass, after_s: float) -> None:
        self.kind = kind
        self.after_s = after_s
        self.at_s = math.inf
        self.attempts = 0


class FailingWorld(World):
    """All runs, and what failures cost them."""

    def __init__(
        self,
        cluster: Cluster,
        speed: SpeedModel,
        costs: Costs,
        known_speed: SpeedModel | None,
        model: FailureModel,
        seed: int,
        *,
        overlaps: bool = False,
        meters: bool = False,
        network: NetworkLoad | None = None,
    ) -> None:
        super().__init__(cluster, speed, costs, known_speed, overlaps=overlaps, meters=meters, network=network)
        self._model = model
        self._seed = seed
        self._index_by_id = {node.id: index for index, node in enumerate(cluster.nodes)}
        self._down: dict[int, str] = {}
        """Nodes that have failed, noticed or not, by index, with the cause."""
        self._struck: dict[JobId, tuple[str, float]] = {}
        """Jobs that stand still: the cause, and since when."""
        self._job_faults: dict[JobId, _JobFault] = {}
        self._repairs: list[tuple[str, int, float, float]] = []
        """The cause, the devices, and from when to when they are away."""
        self.losses: dict[JobId, JobLosses] = {}
        self._causes: dict[str, CauseLoss] = {}

    def expect(self, submission: Submission) -> None:
        """Take in a submission; its job may have a fault of its own."""
        super().expect(submission)
        run = self._runs[submission.job.id]
        write_s = self._costs.checkpoint_write_s
        if 0 < run.interval_s < math.inf:
            run.interval_s += write_s
        model = self._model
        if model.job_classes and model.job_failures:
            rng = random.Random(f"{self._seed}/{submission.job.id}")
            if rng.random() < model.job_failures:
                kind = rng.choices(model.job_classes, [each.weight for each in model.job_classes])[0]
                self._job_faults[submission.job.id] = _JobFault(kind, rng.expovariate(1.0 / kind.mean_s))

    def causes_until(self, end_s: float) -> dict[str, CauseLoss]:
        """What each cause cost; repairs count until the end of the run."""
        for cause, devices, from_s, to_s in self._repairs:
            self._loss(cause).repair_s += devices * max(min(to_s, end_s) - from_s, 0.0)
        self._repairs.clear()
        return self._causes

    def strike(self, breakdown: Breakdown, now_s: float) -> list[Event]:
        """Fail nodes, unnoticed as yet: their jobs stand still, and lose what they did since their last checkpoint."""
        loss = self._loss(breakdown.cause)
        loss.breakdowns += 1
        struck = [self._index_by_id[node_id] for node_id in breakdown.nodes if node_id in self._index_by_id]
        for index, repaired_s in zip(struck, breakdown.repaired_s, strict=False):
            self._down[index] = breakdown.cause
            self._repairs.append((breakdown.cause, self._nodes[index].devices, breakdown.detected_s, repaired_s))
        for run in self._runs.values():
            if run.placement is not None and any(slot.node in struck for slot in run.placement):
                self._stand_still(run, breakdown.cause, now_s)
        return []

    def lose(self, lost: NodeLost, now_s: float) -> list[Event]:
        """Notice that a node has failed; its jobs are interrupted."""
        index = self._index_by_id.get(lost.node_id)
        cause = self._down.pop(index, "") if index is not None else ""
        devices = {
            run.job.id: held_milli(run.placement) / 1000
            for run in self._runs.values()
            if run.placement is not None and any(slot.node == index for slot in run.placement)
        }
        stood = {job_id: self._struck.get(job_id, (cause, now_s)) for job_id in devices}
        interrupted = super().lose(lost, now_s)
        for event in interrupted:
            if isinstance(event, Interrupted):
                why, since_s = stood[event.job_id]
                losses = self._note_failure(event.job_id, why, now_s)
                losses.undetected_s += now_s - since_s
                self._loss(why).undetected_s += devices[event.job_id] * (now_s - since_s)
        return interrupted

    def _stand_still(self, run: JobRun, cause: str, now_s: float) -> None:
        """Undo what a job did since its last checkpoint, and stop its progress."""
        if run.job.id in self._struck or run.saves_until_s is not None or run.saves_result:
            return
        run.meter(now_s)
        done, rate, placement = run.work_at(now_s), run.rate, run.placement or ()
        kept = run.kept(now_s)
        lost_s = (done - kept) / rate if rate > 0 else 0.0
        restart_s = max(run.work_from_s - now_s, 0.0)
        run.work, run.work_from_s, run.rate, run.end_s = kept, now_s, 0.0, math.inf
        run.metered = min(run.metered, kept)
        self._struck[run.job.id] = cause, now_s
        losses, loss = self._losses(run.job.id), self._loss(cause)
        devices = held_milli(placement) / 1000
        losses.work_s += lost_s
        loss.work_s += devices * lost_s
        losses.restart_s -= restart_s
        loss.restart_s -= devices * restart_s

    def _start(self, run: JobRun, order: Start, now_s: float) -> Event | None:
        losses, was_run = self._losses(run.job.id), run.ever_ran
        if self._model.adaptive and run.interval_s < math.inf:
            run.interval_s = self._adaptive_period_s(len({slot.node for slot in order.placement}))
        losses.write_part = self._write_part(run)
        fault = self._job_faults.get(run.job.id)
        if fault is not None:
            fault.at_s = now_s + self._costs.load_s + (self._costs.restart_s if was_run else 0.0) + fault.after_s
        started = super()._start(run, order, now_s)
        if losses.cause:
            lost_s = run.work_from_s - now_s
            losses.restart_s += lost_s
            losses.waited_s += now_s - losses.since_s
            self._loss(losses.cause).restart_s += held_milli(order.placement) / 1000 * lost_s
            losses.cause = ""
        if any(slot.node in self._down for slot in order.placement):
            cause = next(self._down[slot.node] for slot in order.placement if slot.node in self._down)
            self._stand_still(run, cause, now_s)
        return started

    def _adaptive_period_s(self, nodes: int) -> float:
        """Young's interval for a job on so many nodes, and the write that follows it."""
        write_s = self._costs.checkpoint_write_s
        mttf_s = mean_time_to_failure(nodes, self._model.per_1000_node_days)
        return math.inf if mttf_s == math.inf else young(write_s, mttf_s) + write_s

    def _write_part(self, run: JobRun) -> float:
        return self._costs.checkpoint_write_s / run.interval_s if 0 < run.interval_s < math.inf else 0.0

    def _rate(self, run: JobRun) -> float:
        if run.job.id in self._struck:
            return 0.0
        return super()._rate(run) * (1.0 - self._write_part(run))

    def _set_rate(self, run: JobRun, rate: float) -> None:
        super()._set_rate(run, rate)
        fault = self._job_faults.get(run.job.id)
        if fault is not None and rate > 0 and fault.at_s < run.end_s:
            self._ends.push(run, fault.at_s)

    def _hand_back(self, run: JobRun, now_s: float) -> Event:
        fault = self._job_faults.get(run.job.id)
        if fault is None or run.saves_until_s is not None or run.saves_result or now_s < fault.at_s:
            return super()._hand_back(run, now_s)
        return self._fail_by_itself(run, fault, now_s)

    def _fail_by_itself(self, run: JobRun, fault: _JobFault, now_s: float) -> Event:
        """Fail an attempt by the job's own fault; it is tried again as often as the model says."""
        devices = held_milli(run.placement or ()) / 1000
        fault.attempts += 1
        kind = fault.kind
        run.meter(now_s)
        done, rate = run.work_at(now_s), run.rate
        kept = 0.0 if kind.repeats else run.kept(now_s)  # what a wrong program did is of no use
        self._leave(run)
        run.work = kept
        losses, loss = self._note_failure(run.job.id, kind.name, now_s), self._loss(kind.name)
        lost_s = (done - kept) / rate if rate > 0 else 0.0
        losses.work_s += lost_s
        loss.work_s += devices * lost_s
        loss.breakdowns += 1
        if not kind.repeats:
            del self._job_faults[run.job.id]
        elif fault.attempts >= self._model.tries:
            return JobEnded(run.job.id, End.FAILED, kept)
        return Interrupted(run.job.id, kept)

    def _leave(self, run: JobRun) -> None:
        super()._leave(run)
        self._struck.pop(run.job.id, None)

    def _note_failure(self, job_id: JobId, cause: str, now_s: float) -> JobLosses:
        losses = self._losses(job_id)
        losses.failures += 1
        losses.cause, losses.since_s = cause, now_s
        self._loss(cause).interruptions += 1
        return losses

    def _losses(self, job_id: JobId) -> JobLosses:
        found = self.losses.get(job_id)
        if found is None:
            found = self.losses[job_id] = JobLosses()
        return found

    def _loss(self, cause: str) -> CauseLoss:
        found = self._causes.get(cause)
        if found is None:
            found = self._causes[cause] = CauseLoss()
        return found
