"""The life of a gang, from its first pod to its last: what its pods come to, and what the engine is told of that.

Everything starts from a look at one gang of which something changed; a look may write to the cluster and add to what
the engine is told, and leads to the same whatever order things came in.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rota.core.decisions import Cause
from rota.core.errors import RotaError, Unavailable
from rota.core.events import (
    End,
    Event,
    Interrupted,
    JobArrived,
    JobCancelled,
    JobEnded,
    JobHeld,
    JobReleased,
    Resized,
    Started,
    StartFailed,
    Stopped,
)
from rota.core.model import Job, JobId
from rota.core.state import State
from rota.drivers.kubernetes.binder import Binder, Bound
from rota.drivers.kubernetes.client import Api, MissingRight
from rota.drivers.kubernetes.fleet import Fleet
from rota.drivers.kubernetes.gang import Gang, Place, Source, Stage, job_id, job_of, role_index
from rota.drivers.kubernetes.notes import PLACEMENT
from rota.drivers.kubernetes.occupancy import Occupancy
from rota.drivers.kubernetes.pods import Phase, Pod
from rota.drivers.kubernetes.roster import Roster
from rota.drivers.kubernetes.seating import binding_note, fill
from rota.drivers.kubernetes.settings import ClusterSettings
from rota.drivers.kubernetes.sizes import ask_size, has_ended, owner_path
from rota.drivers.kubernetes.work import Work

log = logging.getLogger("rota.drivers.kubernetes")
RETRY_S = 2.0
"""How long a job pauses after it could not be started, or lost its place."""
GROUP_S = 2.0
"""Between two looks for a PodGroup that is not there yet."""


class Desk(Protocol):
    """Where the driver's events go, and what it may know of the engine."""

    @property
    def state(self) -> State:
        """What the engine knows; for reading only."""

    def tell(self, events: Sequence[Event], told: dict[JobId, Gang], why: dict[JobId, str]) -> None:
        """These things happened, in this order; `told` are the gangs of jobs that arrive."""

    def refuse(self, job: Job) -> str | None:
        """What about a job can never be had."""

    def is_used(self, name: JobId) -> bool:
        """Whether a job of this id has been here before."""


@dataclass(slots=True)
class Report:
    """What the engine is to be told: events in order, gangs of jobs that arrive, and words that go with ends."""

    events: list[Event] = field(default_factory=list)
    told: dict[JobId, Gang] = field(default_factory=dict)
    why: dict[JobId, str] = field(default_factory=dict)


class Shepherd:
    """Looks after gangs."""

    def __init__(
        self,
        api: Api,
        settings: ClusterSettings,
        roster: Roster,
        fleet: Fleet,
        occupancy: Occupancy,
        work: Work,
        flush: Callable[[], None],
        ask_first_s: float = 0.0,
    ) -> None:
        self._api = api
        self._settings = settings
        self._binder = Binder(api)
        self._roster = roster
        self._fleet = fleet
        self._occupancy = occupancy
        self._work = work
        self._flush = flush
        self._ask_first_s = ask_first_s
        """How long a pod with a seat waits for kube-scheduler to bind it."""
        self.report = Report()
        self.desk: Desk | None = None

    def look(self, gang: Gang) -> None:
        """Something about a gang changed: do what follows from that."""
        match gang.stage:
            case Stage.GATHERING:
                self._gather(gang)
            case Stage.WAITING:
                if not gang.is_whole:
                    gang.stage = Stage.GATHERING
                    self.report.events.append(JobHeld(gang.id))
                    self._linger(gang)
            case Stage.SEATED:
                self._tend(gang)
            case Stage.LEAVING:
                self._see_off(gang)
            case Stage.OVER:
                self._roster.retire(gang)

    def _gather(self, gang: Gang) -> None:
        """Tell the engine of a gang once it is whole."""
        self._clear_strays(gang)
        if gang.size is None and gang.waiting:
            self._find_size(gang)
        if not gang.is_whole:
            if gang.job is not None:
                self._linger(gang)
            elif not gang.members:
                self._roster.retire(gang)
            return
        gang.deadline_s = None
        pods = [*gang.waiting, *gang.finished][: gang.size]
        if gang.job is not None and all(role_index(gang.job, pod) is not None for pod in pods):
            gang.stage = Stage.WAITING
            self.report.events.append(JobReleased(gang.id))
            return
        self._announce(gang, pods)

    def _clear_strays(self, gang: Gang) -> None:
        """A pod that was bound for seats which the gang has no more must go, so that a new one can take its part."""
        for pod in gang.members.values():
            if pod.holds and not pod.ending and PLACEMENT in pod.annotations:
                pod.ending = True
                self._work.do(self._binder.evict(pod))

    def _announce(self, gang: Gang, pods: list[Pod]) -> None:
        assert self.desk is not None
        if gang.job is not None:  # its pods ask for other things than they did: that is another job
            self.report.events.append(JobCancelled(gang.id))
            self._roster.by_job.pop(gang.id, None)
        name = job_id(gang, pods)
        tries = 1
        unique = name
        while unique in self._roster.by_job or unique in self.report.told or self.desk.is_used(unique):
            tries += 1
            unique = JobId(f"{name}.{tries}")
        gang.refused = next((pod.wants.refused for pod in pods if pod.wants.refused), "")
        try:
            job = job_of(gang, pods, self._settings, unique)
            gang.refused = gang.refused or self.desk.refuse(job) or ""
        except RotaError as error:
            gang.refused = str(error)
        if gang.refused:
            return
        gang.job, gang.stage = job, Stage.WAITING
        self._roster.by_job[unique] = gang
        self.report.told[unique] = gang
        self.report.events.append(JobArrived(job))

    def _find_size(self, gang: Gang) -> None:
        """Ask whoever knows how many pods there will be; a controller that nobody knows is watched until it rests."""
        if gang.asked_size:
            return
        gang.asked_size = True
        self._work.do(self._learn_size(gang, gang.waiting[0]), writes=False)

    async def _learn_size(self, gang: Gang, pod: Pod) -> None:
        while gang.size is None and gang.members:
            gang.size = await ask_size(self._api, gang, pod)
            if gang.size is None and gang.key.source is Source.GROUP:
                await asyncio.sleep(GROUP_S)
            elif gang.size is None:
                quiet_s = time.time() - gang.touched_s
                if quiet_s < self._settings.settle:
                    await asyncio.sleep(self._settings.settle - quiet_s)
                else:
                    gang.size = len(gang.waiting) or None
        gang.asked_size = False
        self._roster.touch(gang)
        self._flush()

    def _tend(self, gang: Gang) -> None:
        """A gang that has seats: bind who has none yet, see whether all run, one is missing, or it is over."""
        for place in gang.places:
            pod = None if place.pod is None else gang.members.get(place.pod)
            if pod is None and place.pod is not None and place.outcome is None:
                gang.seated.pop(place.pod, None)
                place.pod, place.bound = None, False
            elif pod is not None:
                place.bound = place.bound or pod.node is not None
                place.outcome = pod.phase if pod.phase.is_over else None
        for place, pod in fill(gang):
            self._occupancy.drop(pod.uid)
            self._work.do(self._bind(gang, place, pod))
        if all(place.outcome is not None for place in gang.places):
            self._conclude(gang)
            return
        phases = [self._phase(gang, place) for place in gang.places]
        if not gang.started and all(phase in (Phase.RUNNING, Phase.SUCCEEDED) for phase in phases):
            gang.started = True
            self._began(gang)
        amiss = any(not place.bound or place.outcome is Phase.FAILED for place in gang.places)
        if not amiss:
            gang.deadline_s = None
        elif gang.deadline_s is None:
            gang.deadline_s = time.time() + self._settings.gang_timeout

    def _phase(self, gang: Gang, place: Place) -> Phase:
        if place.pod is None or not place.bound:
            return Phase.PENDING
        return place.outcome or gang.members[place.pod].phase

    def _began(self, gang: Gang) -> None:
        now_s = time.time()
        if gang.resizing:
            gang.resizing = False
            self.report.events.append(Resized(gang.id, self._done_work(gang), 1.0, now_s))
        else:
            self.report.events.append(Started(gang.id, 1.0, now_s))

    def _conclude(self, gang: Gang) -> None:
        """All pods have ended. Who has a controller may be tried again by it."""
        work = self._done_work(gang)
        failed = [place for place in gang.places if place.outcome is not Phase.SUCCEEDED]
        if not gang.started:
            self.report.events.append(Started(gang.id, 1.0, time.time()))
        self._occupancy.repeat(gang.nodes)
        gang.unseat()
        if not failed:
            gang.stage = Stage.OVER
            self.report.events.append(JobEnded(gang.id, End.SUCCEEDED, work))
        elif gang.owner is None:
            self._fail(gang, work)
        else:
            self.report.why[gang.id] = f"{len(failed)} of its pods failed"
            self.report.events.append(Interrupted(gang.id, work))
            gang.stage = Stage.GATHERING
            self.report.events.append(JobHeld(gang.id))
            self._linger(gang)
        self._roster.touch(gang)

    def _fail(self, gang: Gang, work: float) -> None:
        gang.stage = Stage.OVER
        self.report.why[gang.id] = gang.why or "pods failed"
        self.report.events.append(JobEnded(gang.id, End.FAILED, work))

    def leave(self, gang: Gang) -> None:
        """Tell every pod that has a seat to go."""
        gang.stage, gang.deadline_s = Stage.LEAVING, None
        for pod in gang.holders:
            if not pod.ending:
                self._work.do(self._binder.evict(pod))

    def _give_up(self, gang: Gang, why: str) -> None:
        """A gang that can't go on as it is leaves its seats, so that it can be tried anew."""
        retry_s = time.time() + RETRY_S
        gang.why = why
        gang.answer = (
            Interrupted(gang.id, self._done_work(gang), retry_s) if gang.started else StartFailed(gang.id, why, retry_s)
        )
        log.warning("job gives up its seats", extra={"job": gang.id, "why": why})
        self.leave(gang)
        self._roster.touch(gang)

    def _see_off(self, gang: Gang) -> None:
        """Once nothing of a gang runs where it could still be reached, its devices are free."""
        if any(not self._fleet.is_lost(str(pod.node)) for pod in gang.holders):
            return
        binds_under_way = any(not place.bound and place.pod in gang.members for place in gang.places)
        if binds_under_way:
            return
        cause, answer, work = gang.ordered, gang.answer, self._done_work(gang)
        gang.ordered, gang.answer = None, None
        self.report.why[gang.id] = gang.why
        self.report.events.append(answer if cause is None and answer is not None else Stopped(gang.id, work))
        self._occupancy.repeat(gang.nodes)
        self._fleet.look_again(gang.nodes)
        left = gang.holders
        gang.unseat()
        for pod in left:
            self._occupancy.count(pod)
        if cause in (Cause.CANCELLED, Cause.TIME_LIMIT):
            gang.stage = Stage.OVER
        else:
            gang.stage = Stage.GATHERING
            self.report.events.append(JobHeld(gang.id))
            self._linger(gang)
        self._roster.touch(gang)

    def _linger(self, gang: Gang) -> None:
        """A job without pods is kept for a while if something may make new ones."""
        if any(not pod.phase.is_over for pod in gang.members.values()):
            gang.deadline_s = None
        elif gang.deadline_s is None:
            gang.deadline_s = time.time() + (self._settings.linger if gang.owner is not None else 0.0)
            if gang.owner is not None and gang.key.source is Source.OWNER:
                self._work.do(self._watch_owner(gang), writes=False)

    async def _watch_owner(self, gang: Gang) -> None:
        """Find out early that a controller has ended or is gone, so that nobody waits for pods in vain."""
        pod = next(iter(gang.members.values()), None)
        path = None if pod is None else owner_path(gang, pod)
        while path is not None and gang.stage is Stage.GATHERING and gang.deadline_s is not None:
            try:
                ended = has_ended(await self._api.get(path))
            except Unavailable as error:
                ended = getattr(error, "status", 0) == 404
            except MissingRight:
                return
            if ended and gang.deadline_s is not None:
                gang.deadline_s = time.time()
                return
            await asyncio.sleep(1.0)

    def tick(self, now_s: float) -> None:
        """Time has passed: what was to last only so long is over."""
        limit_s = now_s - self._settings.lost_after
        lost = {name for name, since_s in self._fleet.lost_since_s.items() if since_s <= limit_s}
        for gang in self._roster.gangs:
            if lost and gang.stage is Stage.SEATED and lost & {str(pod.node) for pod in gang.holders}:
                self._give_up(gang, "a node was lost")
            elif gang.deadline_s is not None and now_s >= gang.deadline_s:
                gang.deadline_s = None
                self._expire(gang)

    def _expire(self, gang: Gang) -> None:
        if gang.stage is Stage.SEATED:
            missing = sum(place.pod is None for place in gang.places)
            failed = sum(place.outcome is Phase.FAILED for place in gang.places)
            words = f"{missing} of {len(gang.places)} pods are missing"
            self._give_up(gang, f"{failed} of {len(gang.places)} pods failed" if failed else words)
        elif gang.stage is Stage.GATHERING and gang.job is not None:
            has_failed = any(pod.phase is Phase.FAILED for pod in gang.members.values())
            if has_failed:
                self._fail(gang, self._done_work(gang))
            else:
                self.report.why[gang.id] = "its pods are gone"
                self.report.events.append(JobCancelled(gang.id))
                gang.stage = Stage.OVER
            self._roster.touch(gang)

    async def _bind(self, gang: Gang, place: Place, pod: Pod) -> None:
        if self._ask_first_s:
            await asyncio.sleep(self._ask_first_s)
        if place.pod == pod.uid and not place.bound:
            await self.bind(gang, place, pod)

    async def bind(self, gang: Gang, place: Place, pod: Pod) -> None:
        """Bind a pod to its seat, whatever comes of it."""
        within_s = self._settings.gang_timeout
        node = str(place.seat.node.id)
        try:
            came = await self._binder.bind(pod, node, binding_note(gang, place.seat, pod), within_s=within_s)
        except Unavailable as error:
            if self.desk is None:
                return
            self._unbound(gang, place, pod, is_gone=False)
            if gang.stage is Stage.SEATED:
                self._give_up(gang, f"pod {pod.name} could not be bound: {error}")
        else:
            if came is Bound.YES:
                place.bound = True
                pod = gang.members.get(pod.uid, pod)
                pod.node = pod.node or node
            else:
                self._unbound(gang, place, pod, is_gone=True)
                if came is Bound.ELSEWHERE and gang.stage is Stage.SEATED:
                    self._give_up(gang, f"pod {pod.name} was bound by another scheduler")
        if gang.stage is Stage.LEAVING and pod.holds and pod.uid in gang.seated:
            await self._binder.evict(pod)
        self._roster.touch(gang)
        self._flush()

    def _unbound(self, gang: Gang, place: Place, pod: Pod, *, is_gone: bool) -> None:
        """A bind came to nothing: the seat is open again. A pod that is not to be had is not tried once more."""
        if is_gone:
            gang.members.get(pod.uid, pod).ending = True
        gang.seated.pop(pod.uid, None)
        if place.pod == pod.uid:
            place.pod, place.bound = None, False

    def _done_work(self, gang: Gang) -> float:
        assert self.desk is not None
        live = self.desk.state.jobs.get(gang.id)
        return 0.0 if live is None else live.work_done(time.time())

    def remove(self, gang: Gang) -> None:
        """Delete the pods of a gang that do not run, and who would make new ones."""
        if gang.owner is not None:
            self._work.do(self._binder.delete_owner(gang.key.namespace, gang.owner))
        for pod in gang.waiting:
            self._work.do(self._binder.delete(pod))
