"""The driver of a twin: Slurm decides, and the engine's state follows. Nothing is ever written to Slurm."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rota.core.engine.driver import DriverContract
from rota.core.messages.decisions import Decision, DecisionKind, Start, Stop
from rota.core.messages.events import (
    End,
    Event,
    Interrupted,
    JobArrived,
    JobCancelled,
    JobEnded,
    JobHeld,
    JobReleased,
    Started,
    Stopped,
    TimerFired,
)
from rota.core.model.job import Job, JobId, JobState
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.drivers.slurm import marks
from rota.drivers.slurm.changes.changed_requests import ChangedRequests
from rota.drivers.slurm.changes.running_jobs import RunningJobs
from rota.drivers.slurm.following_policy import FollowingPolicy
from rota.drivers.slurm.printed.records import CANCELLED, SUCCEEDED, SlurmJob
from rota.drivers.slurm.translate import Misfit, claim_of, job_of
from rota.drivers.slurm.view import SlurmView, node_events, occupied, occupied_events

MOST_REFUSALS = 20
CONTRACT = DriverContract(name="observing Slurm", supports=frozenset({DecisionKind.START, DecisionKind.STOP}))


class SlurmObserver:
    """Turns what Slurm says into events, one look after the other."""

    contract = CONTRACT

    def __init__(self, view: SlurmView) -> None:
        self.view = view
        self.policy = FollowingPolicy(self.view.reason)
        self._outside: dict[str, str] = {}
        """Jobs that run but can't be told as a placement, with the reason; they count as held by others."""
        self._refusals: Counter[str] = Counter()
        """How often the devices of a job were still held by another: Slurm gives them on before a job has ended."""
        self._occupied: dict[str, tuple[int, int, int]] = {}
        self.outdated = asyncio.Event()
        """Set once a job became another than the engine can make of it: the state has to be rebuilt from Slurm."""
        self._requests = ChangedRequests(self.outdated)
        self._running = RunningJobs(self.outdated)
        self._ended: dict[str, None] = {}
        """Jobs that ended here; a requeue after its end makes a job Slurm's alone."""

    def begin(self, recorded: Iterable[str]) -> None:
        """Begin with a state that is built of what Slurm said; `recorded` are jobs that ended and are on record."""
        self._ended |= dict.fromkeys(recorded)
        for job in self.view.jobs.values():
            if job.is_pending:
                self._requests.note(job)
            else:
                self._running.note(job)

    def take_up(self) -> None:
        """Nothing is under way: Slurm carries its own decisions out."""

    def carry_out(self, decisions: Sequence[Decision], now_s: float) -> list[Event]:
        """Answer at once: what is decided here has already happened in Slurm."""
        answers: list[Event] = []
        for decision in decisions:
            match decision:
                case Start(job_id, _):
                    answers.append(Started(job_id, 1.0, now_s))
                case Stop(job_id, _):
                    answers.append(Stopped(job_id, 0.0))
                case _:
                    raise AssertionError(f"{decision} is not of a kind that a follower makes")
        return answers

    def needs_nodes(self, state: State) -> bool:
        """Never: nothing is decided here that depends on them."""
        return False

    def look(self, state: State, now_s: float, wall_s: float) -> list[Event]:
        """Return the events since the last look; `wall_s` is the date, by which Slurm writes its times."""
        events = node_events(self.view.nodes, state)
        for job_id, why in self.policy.refused.items():
            self._refusals[str(job_id)] += 1
            if self._refusals[str(job_id)] > MOST_REFUSALS:
                self._outside[str(job_id)] = why
        self.policy.refused.clear()
        for name, job in self.view.jobs.items():
            live = state.jobs.get(JobId(name))
            if live is not None and live.state is JobState.RUNNING and job.holds_nodes:
                events += self._running.follow(job, live, now_s)
            else:
                events += self._job_events(job, live, state, wall_s)
        for live in list(state.jobs.values()):
            if not live.state.is_final and str(live.job.id) not in self.view.jobs:
                events += self._gone(live)
        self._outside = {name: why for name, why in self._outside.items() if name in self.view.jobs}
        self._requests.keep(self.view.jobs)
        self._running.keep(self.view.jobs)
        outside = [job for name in self._outside if (job := self.view.jobs[name]).holds_nodes]
        events += occupied_events(occupied(outside, self.view.nodes), self._occupied, state)
        if self.policy.claims:
            events.append(TimerFired())
        return events

    def _job_events(self, job: SlurmJob, live: LiveJob | None, state: State, wall_s: float) -> list[Event]:
        if job.id in self._outside and job.holds_nodes:
            return []
        if live is None or live.state.is_final:
            if job.id in self._ended or live is not None:
                return []
            if job.has_ended:
                return [JobArrived(job_of(job), held=True)]  # it came and went between two looks; the next one ends it
            shaped = job_of(job)
            if not job.holds_nodes:
                self._requests.note(job)
            else:
                shaped = self._claim(job, shaped, state)
            return [JobArrived(shaped, held=job.is_pending and self._is_held(job, wall_s))]
        if job.has_ended:
            return self._end(job, live)
        if job.is_pending:
            return self._waits(job, live, wall_s)
        if live.placement is None:
            return self._begins(job, live, state)
        return []

    def _begins(self, job: SlurmJob, live: LiveJob, state: State) -> list[Event]:
        """A job that waits here holds devices in Slurm."""
        events: list[Event] = []
        shaped = self._claim(job, replace(live.job, estimate_s=job.time_limit_s), state)
        if shaped != live.job:
            events += self._requests.change(live, shaped)
            if not events:
                self.policy.claims.pop(live.job.id, None)  # the state is read again, and the job is another there
        if live.state is JobState.HELD:
            events.append(JobReleased(live.job.id))
        return events

    def _waits(self, job: SlurmJob, live: LiveJob, wall_s: float) -> list[Event]:
        """A job that waits in Slurm: requeued if it ran here, held or released as Slurm says."""
        events: list[Event] = []
        held = self._is_held(job, wall_s)
        if live.placement is not None:
            if live.state is JobState.STARTING:
                return []
            events.append(Interrupted(live.job.id, 0.0))
        else:
            events += self._requests.update(job, live)
        if held and (events or live.state is JobState.WAITING):
            events.append(JobHeld(live.job.id))
        elif not held and live.state is JobState.HELD:
            events.append(JobReleased(live.job.id))
        return events

    def _is_held(self, job: SlurmJob, wall_s: float) -> bool:
        return marks.is_held(job) or marks.waits_for_slurm(job, self.view.jobs, wall_s)

    def _claim(self, job: SlurmJob, shaped: Job, state: State) -> Job:
        """Note where a job runs; return it as it runs there."""
        index_by_node = {str(name): index for name, index in state.inventory.by_name.items()}
        taken = {
            index: ~account.free_mask for index, account in enumerate(state.inventory.nodes) if account.node.devices
        }
        found = claim_of(job, shaped, index_by_node, taken)
        if isinstance(found, Misfit):
            self._outside[job.id] = found.why
            return shaped
        shaped, self.policy.claims[JobId(job.id)] = found
        self._running.note(job)
        return shaped

    def _end(self, job: SlurmJob, live: LiveJob) -> list[Event]:
        """The end of a job. One that ran between two looks has no start here; its record says how it ended."""
        if live.placement is not None and live.state is not JobState.STARTING:
            self._ended[job.id] = None
            return [JobEnded(live.job.id, end_of(job), 0.0)]
        if live.state is JobState.STARTING:
            return []
        self._ended[job.id] = None
        return [JobCancelled(live.job.id)]

    def _gone(self, live: LiveJob) -> list[Event]:
        """A job that Slurm has forgotten: its end was not seen."""
        if live.state is JobState.STARTING:
            return []
        self._ended[str(live.job.id)] = None
        if live.placement is None:
            return [JobCancelled(live.job.id)]
        return [JobEnded(live.job.id, End.CANCELLED, 0.0)]


def end_of(job: SlurmJob) -> End:
    """How a job ended, in Rota's words."""
    if job.state in SUCCEEDED:
        return End.SUCCEEDED
    return End.CANCELLED if job.state in CANCELLED else End.FAILED


def message_of(job: SlurmJob) -> str:
    """What to say of an end beyond its state: Slurm's own word for it."""
    code = f", exit code {job.exit_code}" if job.exit_code else ""
    return "" if job.state in SUCCEEDED else f"Slurm: {job.state}{code}"
