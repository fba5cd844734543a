"""The life cycle of a gang: the states of its pods become events for the engine.

A gang is reconciled whenever something about it changed. Reconciling may write to the cluster and add events for the
engine, and its result does not depend on the order in which changes arrived.
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
"""Pause of a job after a failed start or a lost placement."""


class GangController:
    """Reconciles gangs."""

    def __init__(self, around: DriverContext, ask_first_s: float = 0.0) -> None:
        self._around = around
        self._gathering = GangAssembly(around)
        self._ask_first_s = ask_first_s
        """How long a pod with a slot waits for kube-scheduler to bind it."""

    def look(self, gang: Gang) -> None:
        """Reconcile a gang after a change."""
        match gang.stage:
            case Stage.GATHERING:
                self._gathering.gather(gang)
            case Stage.WAITING:
                if not gang.is_whole:
                    gang.stage = Stage.GATHERING
                    self._around.report.events.append(JobHeld(gang.id))
                    self._gathering.linger(gang)
            case Stage.SEATED:
                self._reconcile_placed(gang)
            case Stage.LEAVING:
                self._see_off(gang)
            case Stage.OVER:
                self._around.roster.retire(gang)

    def _reconcile_placed(self, gang: Gang) -> None:
        """Bind pods to open slots, then report whether the gang runs, misses pods, or has ended."""
        self._update_slots(gang)
        self._assign_pods(gang)
        if all(place.outcome is not None for place in gang.places):
            self._conclude(gang)
            return
        self._report_if_running(gang)
        self._set_deadline(gang)

    def _update_slots(self, gang: Gang) -> None:
        """Bring each slot up to date with its pod."""
        for place in gang.places:
            pod = None if place.pod is None else gang.members.get(place.pod)
            if pod is None and place.pod is not None and place.outcome is None:
                gang.seated.pop(place.pod, None)
                place.pod, place.bound = None, False
            elif pod is not None:
                place.bound = place.bound or pod.node is not None
                place.outcome = pod.phase if pod.phase.is_over else None

    def _assign_pods(self, gang: Gang) -> None:
        """Bind waiting pods to open slots, and split surplus pods off."""
        for place, pod in fill(gang):
            self._around.occupancy.drop(pod.uid)
            self._around.headroom.put(pod.uid, str(place.seat.node.id))
            self._around.work.do(self._bind(gang, place, pod))
        for pod in late(gang):
            self._around.roster.part(gang, pod)

    def _report_if_running(self, gang: Gang) -> None:
        """Report the start or the resize once all pods run and the evicted ones are gone."""
        phases = [self._phase(gang, place) for place in gang.places]
        gang.leavers = {uid for uid in gang.leavers if self._is_in_the_way(gang, uid)}
        runs = all(phase in (PodPhase.RUNNING, PodPhase.SUCCEEDED) for phase in phases)
        if not gang.started and runs and not gang.leavers:
            gang.started = True
            self._began(gang)

    def _set_deadline(self, gang: Gang) -> None:
        """Limit how long a gang with failed or missing pods may stay so."""
        if not any(place.outcome is PodPhase.FAILED or not (place.bound or place.outcome) for place in gang.places):
            gang.deadline_s = None
            return
        if not gang.may_come_back:
            gang.deadline_s = time.time()
            return
        if gang.deadline_s is None:
            gang.deadline_s = time.time() + self._around.settings.gang_timeout
        if any(place.pod is None or place.outcome is PodPhase.FAILED for place in gang.places):
            self._gathering.watch_owner(gang)

    def _is_in_the_way(self, gang: Gang, uid: str) -> bool:
        """Whether an evicted pod may still hold its devices."""
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
        """Finish a gang whose pods have all ended; its controller may retry it."""
        work = self._around.done_work(gang)
        failed = [place for place in gang.places if place.outcome is not PodPhase.SUCCEEDED]
        if not gang.started:
            self._around.report.events.append(Started(gang.id, 1.0, time.time()))
        self._around.occupancy.repeat(gang.nodes)
        self._unseat(gang)
        if not failed:
            gang.stage = Stage.OVER
            self._around.report.events.append(JobEnded(gang.id, End.SUCCEEDED, work))
            for pod in gang.waiting:  # spare pods of an elastic job have nothing left to do
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
        """Remove all slots; what its pods still hold counts as occupancy."""
        left = gang.holders
        for uid in gang.seated:
            if uid in gang.members and gang.members[uid].node is None:
                self._around.headroom.put(uid, None)
        gang.unseat()
        for pod in left:
            self._around.occupancy.count(pod)

    def leave(self, gang: Gang) -> None:
        """Evict every pod that has a slot."""
        gang.stage, gang.deadline_s = Stage.LEAVING, None
        for pod in gang.holders:
            if not pod.ending:
                self._around.work.do(self._around.binder.evict(pod))

    def _give_up(self, gang: Gang, why: str) -> None:
        """Stop a gang that can't continue, so that it can be retried."""
        retry_s = time.time() + RETRY_S
        gang.why = why
        gang.answer = (
            Interrupted(gang.id, self._around.done_work(gang), retry_s)
            if gang.started or gang.resizing
            else StartFailed(gang.id, why, retry_s)
        )
        log.warning("job gives up its placement", extra={"job": gang.id, "why": why})
        self.leave(gang)
        self._around.roster.touch(gang)

    def turn_away(self, gang: Gang, node: str) -> None:
        """Refuse a start because a node has no pod capacity left."""
        why = f"node {node} has no pod capacity left"
        gang.stage = Stage.WAITING
        self._around.report.why[gang.id] = why
        self._around.report.events.append(StartFailed(gang.id, why, time.time() + RETRY_S))

    def _see_off(self, gang: Gang) -> None:
        """Report the stop of a gang once none of its pods runs on a reachable node."""
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
        """Handle expired deadlines and lost nodes."""
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
        """Postpone all deadlines while the API server is unreachable."""
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
        """Shrink a gang whose pods have been missing too long if its controller wants fewer; else stop it."""
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
        """Bind a pod to its slot and handle the outcome."""
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
                if gang.stage is Stage.SEATED:  # the watch will report this too; one reconciliation is enough
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
        """Reopen the slot of a failed bind. A pod that is gone is not tried again."""
        if is_gone:
            gang.members.get(pod.uid, pod).ending = True
        gang.seated.pop(pod.uid, None)
        self._around.headroom.put(pod.uid, None)
        if place.pod == pod.uid:
            place.pod, place.bound = None, False

    def remove(self, gang: Gang) -> None:
        """Delete the waiting pods of a gang and its controller."""
        if gang.owner is not None:
            self._around.work.do(self._around.binder.delete_owner(gang.key.namespace, gang.owner))
        for pod in gang.waiting:
            self._around.work.do(self._around.binder.delete(pod))
