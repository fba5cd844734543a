"""The simulated cluster: carries decisions out, and knows the true work and speed of each job."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from rota.core.engine.driver import DriverContract
from rota.core.messages.decisions import ALL_KINDS, Decision, Move, Renew, Resize, Resume, Start, Stop, Suspend
from rota.core.messages.events import (
    Event,
    Interrupted,
    JobArrived,
    JobEnded,
    Lapsed,
    Moved,
    NodeAdded,
    NodeLost,
    Resized,
    Resumed,
    SpeedChanged,
    Started,
    Stopped,
    Suspended,
    WorkDone,
)
from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import WHOLE, Job, JobId
from rota.core.model.placement import Placement, has_devices_alone, meet, same_devices
from rota.drivers.simulator.job_run import SLACK, EndQueue, JobRun
from rota.drivers.simulator.neighbours import Neighbours, duties_among, duty_among, mates_of
from rota.network.load import NetworkLoad
from rota.perf.speed.model import Costs, SpeedModel
from rota.perf.speed.shared_servers import SharedServers, contends
from rota.perf.speed.utilisation import busy_devices
from rota.traces.workload import Submission

CONTRACT = DriverContract(name="simulator", supports=ALL_KINDS)


class World:
    """All runs. `carry_out` answers decisions; `due_s` and `pop_due` return which jobs end when."""

    contract: ClassVar[DriverContract] = CONTRACT

    def __init__(
        self,
        cluster: Cluster,
        speed: SpeedModel,
        costs: Costs,
        known_speed: SpeedModel | None = None,
        *,
        overlaps: bool = False,
        meters: bool = False,
        network: NetworkLoad | None = None,
    ) -> None:
        self._nodes: list[Node] = list(cluster.nodes)
        self._speed = speed
        self._is_even = speed.is_even
        self._known_speed = speed if known_speed is None else known_speed
        self._costs = costs
        self._overlaps = overlaps
        """Whether a job that only saves its result leaves its devices to others."""
        self._meters = meters
        """Whether to measure how busy devices are."""
        self._runs: dict[JobId, JobRun] = {}
        self._ends = EndQueue()
        self._saving: dict[JobId, JobRun] = {}
        """Jobs that save their results and may have left their devices to others."""
        self._neighbours = Neighbours() if speed.sees_neighbours or speed.knows_pairs else None
        self._shared = SharedServers(self._nodes) if speed.contention else None
        self._network = network

    def expect(self, submission: Submission) -> None:
        """Take in a submission, with the true work and end of its job."""
        job, interval_s = submission.job, self._costs.checkpoint_interval_s
        self._runs[job.id] = JobRun(job, submission.target, submission.outcome, interval_s, submission.delays)

    def take_over(self, run: JobRun, *, rerate: bool = False) -> None:
        """Take in a job that is under way; with `rerate`, at the speed of this world and not the recorded one."""
        self._runs[run.job.id] = run
        if run.placement is None or run.rests:
            return
        if run.saves_result:
            self._saving[run.job.id] = run
            self._ends.push(run, run.work_from_s + self._costs.save_s)
        else:
            self._enter(run.job.id, run.placement)
            if not run.lapsed:
                self._set_rate(run, self._rate(run) if rerate else run.rate)

    def arrival(self, job: Job) -> JobArrived:
        """Return the event of a submission, with the speed that the scheduler knows beforehand."""
        return JobArrived(job, False, self._known_speed.nominal_rate(job))

    def busy_s(self, job_id: JobId) -> float | None:
        """Return the device-seconds in which a job kept devices busy, up to when its work was last counted."""
        run = self._runs.get(job_id)
        return run.busy_s if self._meters and run is not None else None

    @property
    def sees_neighbours(self) -> bool:
        """Whether a start or stop changes the speed of other jobs."""
        return self._neighbours is not None or self._network is not None

    @property
    def due_s(self) -> float:
        """The time at which the next job ends."""
        return self._ends.due_s

    def pop_due(self, now_s: float) -> list[Event]:
        """Return the events of jobs that end now."""
        ended: list[Event] = []
        while (run := self._ends.pop(now_s)) is not None:
            ended.append(self._hand_back(run, now_s))
        return ended

    def carry_out(self, decisions: Sequence[Decision], now_s: float) -> list[Event]:
        """Carry decisions out and return the answers that come at once. Changes of neighbours' speeds come last."""
        answers: list[Event | None] = []
        for decision in decisions:
            run = self._runs[decision.job_id]
            if isinstance(decision, Start):
                answers.append(self._start(run, decision, now_s))
            elif isinstance(decision, Stop):
                answers.append(self._stop(run, now_s))
            elif isinstance(decision, Renew):
                answers.append(self._renew(run, decision, now_s))
            elif isinstance(decision, Suspend):
                answers.append(self._suspend(run, now_s))
            elif isinstance(decision, Resume):
                answers.append(self._resume(run, decision, now_s))
            else:
                answers.append(self._resize(run, decision, now_s))
        return [*(each for each in answers if each is not None), *self.adjust(now_s)]

    def lose(self, lost: NodeLost, now_s: float) -> list[Event]:
        """Fail a node; return the jobs that it interrupts, with the work that their checkpoints kept."""
        index = next(i for i, node in enumerate(self._nodes) if node.id == lost.node_id)
        interrupted: list[Event] = []
        for run in self._runs.values():
            if run.placement is not None and any(slot.node == index for slot in run.placement):
                run.meter(now_s)
                run.work = run.kept(now_s)
                self._leave(run)
                interrupted.append(Interrupted(run.job.id, run.work))
        return interrupted

    def adjust(self, now_s: float) -> list[Event]:
        """Return changes of speed of jobs whose neighbours changed; they run at another speed from now on."""
        if not self.sees_neighbours:
            return []
        affected = [] if self._neighbours is None else self._neighbours.pop_affected()
        if self._network is not None:
            affected = list(dict.fromkeys([*affected, *self._network.pop_affected()]))
        changed: list[Event] = []
        for job_id in affected:
            run = self._runs[job_id]
            if run.placement is None or run.is_idle:
                continue
            rate = self._rate(run)
            run.meter(now_s)
            if rate == run.rate:
                if self._meters:
                    self._set_load(run)
                continue
            run.save(now_s)
            run.work = run.work_at(now_s)
            run.work_from_s = max(now_s, run.work_from_s)
            self._set_rate(run, rate)
            changed.append(SpeedChanged(job_id, run.work, rate))
        return changed

    def add_node(self, event: NodeAdded) -> None:
        """Add a node, or replace the one of the same name."""
        for index, node in enumerate(self._nodes):
            if node.id == event.node.id:
                self._nodes[index] = event.node
                return
        self._nodes.append(event.node)
        if self._network is not None:
            self._network.add_node(event.node)

    def _start(self, run: JobRun, order: Start, now_s: float) -> Event | None:
        placement = run.placement = order.placement
        run.lease = order.lease
        run.work_from_s = self._loaded_s(run, placement, now_s)
        run.saved, run.saved_s = run.work, run.work_from_s
        run.metered = run.work
        self._enter(run.job.id, placement)
        if run.is_starting:
            self._ends.push(run, now_s + run.startup_s)
            return None
        self._set_rate(run, self._rate(run))
        return Started(run.job.id, run.rate, run.work_from_s)

    def _loaded_s(self, run: JobRun, placement: Placement, now_s: float) -> float:
        """Return when a job that starts now begins to work: it has loaded, and no job saves on its devices any more."""
        ready_s = now_s + run.begin_start(self._costs.load_s, self._costs.restart_s)
        for other in self._saving.values():
            if meet(other.placement or (), placement):
                ready_s = max(ready_s, other.end_s)
        return ready_s

    def _stop(self, run: JobRun, now_s: float) -> Event | None:
        """Stop a job. One that saves its state first leaves its devices when that is done."""
        run.meter(now_s)
        work = run.work_at(now_s) if run.placement is not None else run.work
        checkpoint, stop_s = run.job.checkpoint, run.begin_stop(self._costs.checkpoint_s)
        if run.placement is None or not stop_s:
            self._leave(run)
            run.work = 0.0 if run.starts_over else work
            return Stopped(run.job.id, run.work)
        run.save(now_s)
        run.work, run.work_from_s, run.rate = work, now_s, 0.0
        run.saves_until_s = now_s + stop_s
        self._part(run.job.id, run.placement or ())
        self._ends.push(run, min(run.saves_until_s, now_s + (math.inf if checkpoint is None else checkpoint.grace_s)))
        return None if run.is_starting else SpeedChanged(run.job.id, work, 0.0)

    def _stopped(self, run: JobRun, saves_until_s: float, now_s: float) -> Event:
        """Complete a stop. Work is kept, unless the job was killed before it was saved."""
        is_saved = (now_s >= saves_until_s or not run.interval_s) and not run.starts_over
        self._leave(run)
        run.work = run.work if is_saved else run.saved
        return Stopped(run.job.id, run.work)

    def _renew(self, run: JobRun, order: Renew, now_s: float) -> Event:
        """Begin the next lease on the same devices; no work is lost."""
        run.meter(now_s)
        run.work = run.work_at(now_s)
        run.work_from_s = max(now_s, run.work_from_s)
        run.lease, run.lapsed = order.lease, False
        if self.sees_neighbours and run.placement is not None and run.placement != order.placement:
            self._part(run.job.id, run.placement)
            self._enter(run.job.id, order.placement)
        run.placement = order.placement
        self._set_rate(run, self._rate(run))
        return SpeedChanged(run.job.id, run.work, run.rate)

    def _hand_back(self, run: JobRun, now_s: float) -> Event:
        """Return the event at the end of a run, a lease or a grace period."""
        if run.saves_until_s is not None:
            return self._stopped(run, run.saves_until_s, now_s)
        if run.is_starting:
            run.is_starting = False
            self._set_rate(run, self._rate(run))
            return Started(run.job.id, run.rate, run.work_from_s)
        run.meter(now_s)
        work = run.target if run.lease is None else run.work_leased(run.lease, now_s)
        if work >= run.target and self._costs.save_s and not run.saves_result:
            return self._save_result(run, now_s)
        if work >= run.target:
            self._leave(run)
            run.work = run.target
            return JobEnded(run.job.id, run.outcome, run.target)
        run.save(now_s)
        run.work, run.work_from_s = work, now_s
        run.rate, run.end_s, run.lapsed = 0.0, math.inf, True
        return Lapsed(run.job.id, work)

    def _save_result(self, run: JobRun, now_s: float) -> Event:
        """Begin to save the result of a job, which causes no more contention."""
        run.work, run.work_from_s, run.rate = run.target, now_s, 0.0
        run.saves_result = True
        if self._overlaps:
            self._saving[run.job.id] = run
        if run.placement is not None:
            self._part(run.job.id, run.placement)
        self._ends.push(run, now_s + self._costs.save_s)
        return WorkDone(run.job.id, run.target) if self._overlaps else SpeedChanged(run.job.id, run.target, 0.0)

    def _resize(self, run: JobRun, decision: Resize | Move, now_s: float) -> Event:
        """Resize or move a job, at the cost of that; another fraction of the same devices is free."""
        run.save(now_s)
        run.meter(now_s)
        is_move = isinstance(decision, Move)
        in_place = run.placement is not None and same_devices(run.placement, decision.placement) and not is_move
        run.work = 0.0 if run.starts_over and not in_place else run.work_at(now_s)
        run.metered = min(run.metered, run.work)
        self._leave(run)
        run.placement = decision.placement
        if in_place:
            run.work_from_s = max(now_s, run.work_from_s)
        else:
            run.work_from_s = now_s + (self._costs.of_move_s if is_move else self._costs.of_resize_s)
            run.saved, run.saved_s = run.work, run.work_from_s
        self._enter(run.job.id, decision.placement)
        self._set_rate(run, self._rate(run))
        return (Moved if is_move else Resized)(run.job.id, run.work, run.rate, run.work_from_s)

    def _suspend(self, run: JobRun, now_s: float) -> Event:
        """Suspend a job; its tasks stay in place, and no work is lost."""
        run.save(now_s)
        self._forget_saving(run)
        run.meter(now_s)
        run.owed_s = max(run.work_from_s - now_s, 0.0)
        run.work, run.work_from_s, run.rate = run.work_at(now_s), now_s, 0.0
        run.end_s = math.inf
        run.rests = True
        if run.placement is not None:
            self._part(run.job.id, run.placement)
        return Suspended(run.job.id, run.work)

    def _resume(self, run: JobRun, decision: Resume, now_s: float) -> Event:
        run.placement = decision.placement
        run.rests = False
        run.saved_s += now_s + self._costs.resume_s - run.work_from_s
        run.work_from_s = now_s + self._costs.resume_s + run.owed_s
        self._enter(run.job.id, decision.placement)
        self._set_rate(run, self._rate(run))
        return Resumed(run.job.id, run.rate, run.work_from_s)

    def _enter(self, job_id: JobId, placement: Placement) -> None:
        """Enter a job into the index of neighbours, as far as that matters for speed."""
        first, job = placement[0], self._runs[job_id].job
        if self._network is not None:
            self._network.enter(job, placement)
        if first.in_turn:
            return
        is_packed = any(slot.milli != WHOLE for slot in placement)
        if self._neighbours is None and is_packed and not job.roles[first.role].is_fraction:
            self._neighbours = Neighbours()
        if self._neighbours is not None and (self._speed.sees_neighbours or is_packed):
            self._neighbours.enter(job_id, placement)
        if self._shared is not None and contends(job):
            self._shared.enter(job, placement, duty_among(self._neighbours, job, placement))

    def _leave(self, run: JobRun) -> None:
        run.end_s = math.inf
        run.lease, run.lapsed, run.saves_until_s, run.is_starting = None, False, None, False
        self._forget_saving(run)
        rested, run.rests = run.rests, False
        if run.placement is not None:
            if not rested:
                self._part(run.job.id, run.placement)
            run.placement = None

    def _forget_saving(self, run: JobRun) -> None:
        """Drop an unfinished save; the result is saved again when the job continues."""
        if run.saves_result:
            run.saves_result = False
            self._saving.pop(run.job.id, None)

    def _part(self, job_id: JobId, placement: Placement) -> None:
        """Remove a job from the index of neighbours."""
        if self._neighbours is not None:
            self._neighbours.leave(job_id, placement)
        if self._shared is not None:
            self._shared.leave(job_id)
        if self._network is not None:
            self._network.leave(job_id)

    def _set_rate(self, run: JobRun, rate: float) -> None:
        run.rate = rate
        if self._meters:
            self._set_load(run)
        lease = run.lease
        if lease is None:
            run.end_s = run.goal_s(run.target)
        elif lease.together:
            run.end_s = lease.until_s
        else:
            goal_s = run.goal_s(min(lease.work, run.target))
            is_early = goal_s < lease.until_s - SLACK * max(goal_s, 1.0)
            run.end_s = goal_s if is_early else lease.until_s
        self._ends.push(run, run.end_s)

    def _set_load(self, run: JobRun) -> None:
        """Update how busy a job keeps its devices."""
        if run.placement is not None and run.rate > 0:
            mates = self._mates(run, run.placement) if self._neighbours is not None else []
            busy = busy_devices(self._speed, run.job, run.placement, self._nodes, run.rate, mates)
            run.busy_by_work = busy / run.rate

    def _rate(self, run: JobRun) -> float:
        rate = self._rate_beside(run)
        return rate if self._network is None else rate * self._network.speed(run.job.id)

    def _rate_beside(self, run: JobRun) -> float:
        """Return the speed of a job among its neighbours, with the network to itself."""
        placement = run.placement or ()
        if self._neighbours is None:
            is_usual = self._is_even and run.job.elastic is None and has_devices_alone(placement)
            return 1.0 if is_usual else self._speed.rate(run.job, placement, self._nodes)
        mates = self._mates(run, placement) if any(slot.milli != WHOLE for slot in placement) else []
        around = self._neighbours.around(run.job.id, placement) if self._speed.sees_neighbours else ([], [])
        on_device, on_node = [duties_among(self._neighbours, self._runs, names) for names in around]
        rate = self._speed.rate(run.job, placement, self._nodes, [] if mates else on_device, on_node, mates)
        if self._shared is not None and placement and not placement[0].in_turn and contends(run.job):
            rate *= self._shared.speed(run.job.id)
        return rate

    def _mates(self, run: JobRun, placement: Placement) -> list[tuple[Job, float]]:
        assert self._neighbours is not None
        return mates_of(self._neighbours, self._runs, run, placement, knows_pairs=self._speed.knows_pairs)
