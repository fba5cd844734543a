"""The life of a gang, from its first pod to its last: what its pods come to, and what the engine is told of that.

Everything starts from a look at one gang of which something changed; a look may write to the cluster and add to what
the engine is told, and leads to the same whatever order things came in.
"""

from __future__ import annotations

import asyncio
import logging
import time

from rota.core.errors import Unavailable
from rota.core.messages.decisions import Cause
from rota.core.messages.events import End, Interrupted, JobEnded, JobHeld, Resized, Started, StartFailed, Stopped
from rota.drivers.kubernetes.gangs.binder import Bound
from rota.drivers.kubernetes.gangs.context import DriverContext
from rota.drivers.kubernetes.gangs.gang import Gang, PodSlot, Stage
from rota.drivers.kubernetes.gangs.gang_assembly import GangAssembly
from rota.drivers.kubernetes.objects.binding_annotations import binding_note, fill, late
from rota.drivers.kubernetes.objects.controller_sizes import ask_size
from rota.drivers.kubernetes.objects.pods import Pod, PodPhase

log = logging.getLogger("rota.drivers.kubernetes")
RETRY_S = 2.0
"""How long a job pauses after it could not be started, or lost its place."""


class GangController:
    """Looks after gangs."""

    def __init__(self, around: DriverContext, ask_first_s: float = 0.0) -> None:
        self._around = around
        self._gathering = GangAssembly(around)
        self._ask_first_s = ask_first_s
        """How long a pod with a seat waits for kube-scheduler to bind it."""

    def look(self, gang: Gang) -> None:
        """Something about a gang changed: do what follows from that."""
        match gang.stage:
            case Stage.GATHERING:
                self._gathering.gather(gang)
            case Stage.WAITING:
                if not gang.is_whole:
                    gang.stage = Stage.GATHERING
                    self._around.report.events.append(JobHeld(gang.id))
                    self._gathering.linger(gang)
            case Stage.SEATED:
                self._tend(gang)
            case Stage.LEAVING:
                self._see_off(gang)
            case Stage.OVER:
                self._around.roster.retire(gang)

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
            self._around.occupancy.drop(pod.uid)
            self._around.headroom.put(pod.uid, str(place.seat.node.id))
            self._around.work.do(self._bind(gang, place, pod))
        for pod in late(gang):
            self._around.roster.part(gang, pod)
        if all(place.outcome is not None for place in gang.places):
            self._conclude(gang)
            return
        phases = [self._phase(gang, place) for place in gang.places]
        gang.leavers = {uid for uid in gang.leavers if self._is_in_the_way(gang, uid)}
        runs = all(phase in (PodPhase.RUNNING, PodPhase.SUCCEEDED) for phase in phases)
        if not gang.started and runs and not gang.leavers:
            gang.started = True
            self._began(gang)
        amiss = any(place.outcome is PodPhase.FAILED or not (place.bound or place.outcome) for place in gang.places)
        if not amiss:
            gang.deadline_s = None
        elif not gang.may_come_back:
            gang.deadline_s = time.time()
        else:
            if gang.deadline_s is None:
                gang.deadline_s = time.time() + self._around.settings.gang_timeout
            if any(place.pod is None or place.outcome is PodPhase.FAILED for place in gang.places):
                self._gathering.watch_owner(gang)

    def _is_in_the_way(self, gang: Gang, uid: str) -> bool:
        """Whether a pod that was told to leave still holds its devices, as far as anybody can know."""
        pod = gang.members.get(uid)
        return pod is not None and pod.holds and not self._around.fleet.is_lost(str(pod.node))

    def _phase(self, gang: Gang, place: PodSlot) -> PodPhase:
        if place.outcome is not None:
            return place.outcome
        return PodPhase.PENDING if place.pod is None or not place.bound else gang.members[place.pod].phase

    def _began(self, gang: Gang) -> None:
        now_s = time.time()
        if gang.resizing:
            gang.resizing = False
            self._around.report.events.append(Resized(gang.id, self._around.done_work(gang), 1.0, now_s))
        else:
            self._around.report.events.append(Started(gang.id, 1.0, now_s))

    def _conclude(self, gang: Gang) -> None:
        """All pods have ended. Who has a controller may be tried again by it."""
        work = self._around.done_work(gang)
        failed = [place for place in gang.places if place.outcome is not PodPhase.SUCCEEDED]
        if not gang.started:
            self._around.report.events.append(Started(gang.id, 1.0, time.time()))
        self._around.occupancy.repeat(gang.nodes)
        self._unseat(gang)
        if not failed:
            gang.stage = Stage.OVER
            self._around.report.events.append(JobEnded(gang.id, End.SUCCEEDED, work))
            for pod in gang.waiting:  # spare ones of an elastic job: there is nothing left to do for them
                self._around.work.do(self._around.binder.delete(pod))
        elif gang.owner is None:
            self._around.fail(gang, work)
        else:
            self._around.report.why[gang.id] = f"{len(failed)} of its pods failed"
            self._around.report.events.append(Interrupted(gang.id, work))
            gang.stage = Stage.GATHERING
            self._around.report.events.append(JobHeld(gang.id))
            self._gathering.linger(gang)
        self._around.roster.touch(gang)

    def _unseat(self, gang: Gang) -> None:
        """Take all seats away; what pods of it still hold is nobody's now."""
        left = gang.holders
        for uid in gang.seated:
            if uid in gang.members and gang.members[uid].node is None:
                self._around.headroom.put(uid, None)
        gang.unseat()
        for pod in left:
            self._around.occupancy.count(pod)

    def leave(self, gang: Gang) -> None:
        """Tell every pod that has a seat to go."""
        gang.stage, gang.deadline_s = Stage.LEAVING, None
        for pod in gang.holders:
            if not pod.ending:
                self._around.work.do(self._around.binder.evict(pod))

    def _give_up(self, gang: Gang, why: str) -> None:
        """A gang that can't go on as it is leaves its seats, so that it can be tried anew."""
        retry_s = time.time() + RETRY_S
        gang.why = why
        gang.answer = (
            Interrupted(gang.id, self._around.done_work(gang), retry_s)
            if gang.started or gang.resizing
            else StartFailed(gang.id, why, retry_s)
        )
        log.warning("job gives up its seats", extra={"job": gang.id, "why": why})
        self.leave(gang)
        self._around.roster.touch(gang)

    def turn_away(self, gang: Gang, node: str) -> None:
        """A gang can't start where it was to: the node does not take so many pods."""
        why = f"node {node} does not take so many pods"
        gang.stage = Stage.WAITING
        self._around.report.why[gang.id] = why
        self._around.report.events.append(StartFailed(gang.id, why, time.time() + RETRY_S))

    def _see_off(self, gang: Gang) -> None:
        """Once nothing of a gang runs where it could still be reached, its devices are free."""
        if any(not self._around.fleet.is_lost(str(pod.node)) for pod in gang.holders):
            return
        binds_under_way = any(not place.bound and place.pod in gang.members for place in gang.places)
        if binds_under_way:
            return
        cause, answer, work = gang.ordered, gang.answer, self._around.done_work(gang)
        gang.ordered, gang.answer = None, None
        self._around.report.why[gang.id] = gang.why
        self._around.report.events.append(answer if cause is None and answer is not None else Stopped(gang.id, work))
        self._around.occupancy.repeat(gang.nodes)
        self._around.fleet.look_again(gang.nodes)
        self._unseat(gang)
        if cause in (Cause.CANCELLED, Cause.TIME_LIMIT):
            gang.stage = Stage.OVER
        else:
            gang.stage = Stage.GATHERING
            self._around.report.events.append(JobHeld(gang.id))
            self._gathering.linger(gang)
        self._around.roster.touch(gang)

    def tick(self, now_s: float) -> None:
        """Time has passed: what was to last only so long is over."""
        self._around.headroom.tick(now_s)
        if self._around.api.is_silent:
            self._postpone(now_s + self._around.settings.gang_timeout)
            return
        limit_s = now_s - self._around.settings.lost_after
        lost = {name for name, since_s in self._around.fleet.lost_since_s.items() if since_s <= limit_s}
        for gang in self._around.roster.gangs:
            if lost and gang.stage is Stage.SEATED and lost & {str(pod.node) for pod in gang.holders}:
                self._give_up(gang, "a node was lost")
            elif gang.deadline_s is not None and now_s >= gang.deadline_s:
                gang.deadline_s = None
                self._expire(gang)

    def _postpone(self, until_s: float) -> None:
        """While the API server is away nobody can do what is waited for, nor be told to leave."""
        for gang in self._around.roster.gangs:
            if gang.deadline_s is not None:
                gang.deadline_s = max(gang.deadline_s, until_s)

    def _expire(self, gang: Gang) -> None:
        if gang.stage is Stage.SEATED:
            failed = sum(place.outcome is PodPhase.FAILED for place in gang.places)
            if failed:
                self._give_up(gang, f"{failed} of {len(gang.places)} pods failed")
            else:
                self._around.work.do(self._do_without(gang), writes=False)
        elif gang.stage is Stage.GATHERING and gang.job is not None:
            self._gathering.expire(gang)

    async def _do_without(self, gang: Gang) -> None:
        """Pods have been missing for too long: whoever makes them may want fewer by now; otherwise the gang leaves."""
        wanted = await ask_size(self._around.api, gang) if gang.started else None
        missing = gang.missing
        if gang.stage is not Stage.SEATED or not missing:
            return
        if self._around.roster.does_without(gang, wanted):
            for place in missing:
                place.outcome = PodPhase.SUCCEEDED
            self._around.outdated.set()
        else:
            self._give_up(gang, f"{len(missing)} of {len(gang.places)} pods are missing")
        self._around.roster.touch(gang)
        self._around.flush()

    async def _bind(self, gang: Gang, place: PodSlot, pod: Pod) -> None:
        if self._ask_first_s:
            await asyncio.sleep(self._ask_first_s)
        if place.pod == pod.uid and not place.bound:
            await self.bind(gang, place, pod)

    async def bind(self, gang: Gang, place: PodSlot, pod: Pod) -> None:
        """Bind a pod to its seat, whatever comes of it."""
        within_s = self._around.settings.gang_timeout
        node = str(place.seat.node.id)
        try:
            came = await self._around.binder.bind(pod, node, binding_note(gang, place.seat, pod), within_s=within_s)
        except Unavailable as error:
            if self._around.desk is None:
                return
            self._unbound(gang, place, pod, is_gone=False)
            if gang.stage is Stage.SEATED:
                self._give_up(gang, f"pod {pod.name} could not be bound: {error}")
        else:
            if came is Bound.YES:
                place.bound = True
                pod = gang.members.get(pod.uid, pod)
                pod.node = pod.node or node
                if gang.stage is Stage.SEATED:  # the watch is about to say so too: one look is enough
                    self._around.roster.touch(gang)
                    return
            else:
                self._unbound(gang, place, pod, is_gone=True)
                if came is Bound.ELSEWHERE and gang.stage is Stage.SEATED:
                    self._give_up(gang, f"pod {pod.name} was bound by another scheduler")
        if gang.stage is Stage.LEAVING and pod.holds and pod.uid in gang.seated:
            await self._around.binder.evict(pod)
        self._around.roster.touch(gang)
        self._around.flush()

    def _unbound(self, gang: Gang, place: PodSlot, pod: Pod, *, is_gone: bool) -> None:
        """A bind came to nothing: the seat is open again. A pod that is not to be had is not tried once more."""
        if is_gone:
            gang.members.get(pod.uid, pod).ending = True
        gang.seated.pop(pod.uid, None)
        self._around.headroom.put(pod.uid, None)
        if place.pod == pod.uid:
            place.pod, place.bound = None, False

    def remove(self, gang: Gang) -> None:
        """Delete the pods of a gang that do not run, and who would make new ones."""
        if gang.owner is not None:
            self._around.work.do(self._around.binder.delete_owner(gang.key.namespace, gang.owner))
        for pod in gang.waiting:
            self._around.work.do(self._around.binder.delete(pod))
