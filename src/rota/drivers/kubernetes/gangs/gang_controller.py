"""The life cycle of a gang: the states of its pods become events for the engine.

A gang is reconciled whenever something about it changed. Reconciling may write to the cluster and add events for the
engine, and its result does not depend on the order in which changes arrived.
"""

from __future__ import annotations

import asyncio
import logging

from rota.core.errors import Unavailable
from rota.core.messages.decisions import Cause
from rota.core.messages.events import (
    End,
    Interrupted,
    JobEnded,
    JobHeld,
    Resized,
    SpeedChanged,
    Started,
    StartFailed,
    Stopped,
)
from rota.drivers.kubernetes.gangs.binder import Bound
from rota.drivers.kubernetes.gangs.context import DriverContext
from rota.drivers.kubernetes.gangs.gang import Gang, PodSlot, Stage
from rota.drivers.kubernetes.gangs.gang_assembly import GangAssembly
from rota.drivers.kubernetes.gangs.narrowing import Narrowing
from rota.drivers.kubernetes.objects.binding_annotations import binding_note, fill, late
from rota.drivers.kubernetes.objects.controller_sizes import ask_size
from rota.drivers.kubernetes.objects.pods import Pod, PodPhase
from rota.store import clock

log = logging.getLogger("rota.drivers.kubernetes")
RETRY_S = 2.0
"""Pause of a job after a failed start or a lost placement."""
PODS_MISSING = "pods are missing"
"""How the message of a job ends whose pods a user has deleted."""


class GangController:
    """Reconciles gangs."""

    def __init__(self, context: DriverContext, ask_first_s: float = 0.0) -> None:
        self._context = context
        self.narrowing = Narrowing(context)
        self._gathering = GangAssembly(context, self.narrowing)
        self._ask_first_s = ask_first_s
        """How long a pod with a slot waits for kube-scheduler to bind it."""
        self._looked_at: dict[Gang, None] = {}
        """Gangs that were reconciled since the last tick."""
        self._timed: dict[Gang, None] = {}
        """Gangs that may have a deadline."""
        self._lost: set[str] = set()
        """The nodes that counted as lost at the last tick."""

    def look(self, gang: Gang) -> None:
        """Reconcile a gang after a change."""
        self._looked_at[gang] = None
        match gang.stage:
            case Stage.GATHERING:
                self._gathering.gather(gang)
            case Stage.WAITING:
                if not gang.is_whole:
                    gang.stage = Stage.GATHERING
                    self._context.report.events.append(JobHeld(gang.id))
                    self._gathering.linger(gang)
            case Stage.PLACED:
                self._reconcile_placed(gang)
            case Stage.LEAVING:
                self._see_off(gang)
            case Stage.OVER:
                self._context.gang_index.retire(gang)

    def _reconcile_placed(self, gang: Gang) -> None:
        """Bind pods to open slots, then report whether the gang runs, misses pods, or has ended."""
        self._update_slots(gang)
        self._assign_pods(gang)
        if all(slot.outcome is not None for slot in gang.slots):
            self._conclude(gang)
            return
        self._report_if_running(gang)
        self._set_deadline(gang)

    def _update_slots(self, gang: Gang) -> None:
        """Bring each slot up to date with its pod."""
        for slot in gang.slots:
            pod = None if slot.pod is None else gang.members.get(slot.pod)
            if pod is None and slot.pod is not None and slot.outcome is None:
                gang.assigned.pop(slot.pod, None)
                slot.pod, slot.bound = None, False
            elif pod is not None:
                slot.bound = slot.bound or pod.node is not None
                slot.outcome = pod.phase if pod.phase.is_over else None

    def _assign_pods(self, gang: Gang) -> None:
        """Bind waiting pods to open slots, and split surplus pods off."""
        for slot, pod in fill(gang):
            node = str(slot.task.node.id)
            why = self.narrowing.check([(pod, node)])
            if why is not None:  # one that was made for a pod that is gone; the gang gives up if that lasts
                gang.why = why
                gang.assigned.pop(pod.uid, None)
                slot.pod, slot.bound = None, False
                continue
            self._context.occupancy.drop(pod.uid)
            self._context.places.plan(pod, node)
            self._context.work.do(self._bind(gang, slot, pod))
        for pod in late(gang):
            self._context.gang_index.part(gang, pod)

    def _report_if_running(self, gang: Gang) -> None:
        """Report the start or the resize once all pods run and the evicted ones are gone."""
        phases = [self._phase(gang, slot) for slot in gang.slots]
        gang.leavers = {uid for uid in gang.leavers if self._is_in_the_way(gang, uid)}
        runs = all(phase in (PodPhase.RUNNING, PodPhase.SUCCEEDED) for phase in phases)
        if not gang.started and runs and not gang.leavers:
            gang.started = True
            self._began(gang)

    def _set_deadline(self, gang: Gang) -> None:
        """Limit how long a gang with failed or missing pods may stay so."""
        if not any(slot.outcome is PodPhase.FAILED or not (slot.bound or slot.outcome) for slot in gang.slots):
            gang.deadline_s = None
            return
        if not gang.may_come_back:
            gang.deadline_s = clock.now_s()
            return
        if gang.deadline_s is None:
            gang.deadline_s = clock.now_s() + self._context.settings.gang_timeout
        if any(slot.pod is None or slot.outcome is PodPhase.FAILED for slot in gang.slots):
            self._gathering.watch_owner(gang)

    def _is_in_the_way(self, gang: Gang, uid: str) -> bool:
        """Whether an evicted pod may still hold its devices."""
        pod = gang.members.get(uid)
        return pod is not None and pod.holds and not self._context.node_cache.is_lost(str(pod.node))

    def _phase(self, gang: Gang, slot: PodSlot) -> PodPhase:
        if slot.outcome is not None:
            return slot.outcome
        return PodPhase.PENDING if slot.pod is None or not slot.bound else gang.members[slot.pod].phase

    def _began(self, gang: Gang) -> None:
        now_s, rate = clock.now_s(), self._context.rate(gang)
        if gang.resizing:
            gang.resizing = False
            self._context.report.events.append(Resized(gang.id, self._context.done_work(gang), rate, now_s))
        else:
            self._context.report.events.append(Started(gang.id, rate, now_s))

    def _conclude(self, gang: Gang) -> None:
        """Finish a gang whose pods have all ended; its controller may retry it."""
        work = self._context.done_work(gang)
        failed = [slot for slot in gang.slots if slot.outcome is not PodPhase.SUCCEEDED]
        if not gang.started:
            self._context.report.events.append(Started(gang.id, self._context.rate(gang), clock.now_s()))
        self._context.occupancy.repeat(gang.nodes)
        self._release_slots(gang)
        if not failed:
            gang.stage = Stage.OVER
            self._context.report.events.append(JobEnded(gang.id, End.SUCCEEDED, work))
            for pod in gang.waiting:  # spare pods of an elastic job have nothing left to do
                self._context.work.do(self._context.binder.delete(pod))
        elif gang.owner is None:
            self._context.fail(gang, work)
        else:
            self._context.report.why[gang.id] = f"{len(failed)} of its pods failed"
            self._context.report.events.append(Interrupted(gang.id, self._context.kept_work(gang)))
            gang.stage = Stage.GATHERING
            self._context.report.events.append(JobHeld(gang.id))
            self._gathering.linger(gang)
        self._context.gang_index.touch(gang)

    def _release_slots(self, gang: Gang) -> None:
        """Remove all slots; what its pods still hold counts as occupancy."""
        left = gang.holders
        for uid in gang.assigned:
            if uid in gang.members and gang.members[uid].node is None:
                self._context.places.drop(uid)
        gang.clear_slots()
        for pod in left:
            self._context.occupancy.count(pod)

    def leave(self, gang: Gang) -> None:
        """Evict every pod that has a slot."""
        gang.stage, gang.deadline_s = Stage.LEAVING, None
        for pod in gang.holders:
            if not pod.ending:
                self._context.work.do(self._context.binder.evict(pod))

    def _give_up(self, gang: Gang, why: str) -> None:
        """Stop a gang that can't continue, so that it can be retried."""
        retry_s = clock.now_s() + RETRY_S
        gang.why = why
        gang.answer = (
            Interrupted(gang.id, self._context.kept_work(gang), retry_s)
            if gang.started or gang.resizing
            else StartFailed(gang.id, why, retry_s)
        )
        log.warning("job gives up its placement", extra={"job": gang.id, "why": why})
        if gang.started:  # the journal has it before the pods are gone, which may take long
            self._context.report.events.append(SpeedChanged(gang.id, self._context.done_work(gang), 0.0))
        self.leave(gang)
        self._context.gang_index.touch(gang)

    def turn_away(self, gang: Gang, why: str) -> None:
        """Refuse a start because a node can't take its pod."""
        gang.stage = Stage.WAITING
        self._context.report.why[gang.id] = why
        self._context.report.events.append(StartFailed(gang.id, why, clock.now_s() + RETRY_S))

    def _see_off(self, gang: Gang) -> None:
        """Report the stop of a gang once none of its pods runs on a reachable node."""
        if any(not self._context.node_cache.is_lost(str(pod.node)) for pod in gang.holders):
            return
        binds_under_way = any(not slot.bound and slot.pod in gang.members for slot in gang.slots)
        if binds_under_way:
            return
        cause, answer, work = gang.ordered, gang.answer, self._context.kept_work(gang)
        gang.ordered, gang.answer = None, None
        self._context.report.why[gang.id] = gang.why
        self._context.report.events.append(answer if cause is None and answer is not None else Stopped(gang.id, work))
        self._context.occupancy.repeat(gang.nodes)
        self._context.node_cache.look_again(gang.nodes)
        self._release_slots(gang)
        if cause in (Cause.CANCELLED, Cause.TIME_LIMIT):
            gang.stage = Stage.OVER
        else:
            gang.stage = Stage.GATHERING
            self._context.report.events.append(JobHeld(gang.id))
            self._gathering.linger(gang)
        self._context.gang_index.touch(gang)

    def tick(self, now_s: float) -> None:
        """Handle expired deadlines and lost nodes."""
        self._context.headroom.tick(now_s)
        self.narrowing.refresh()
        if self._context.api.is_silent:
            self._postpone(now_s + self._context.settings.gang_timeout)
            self._context.node_cache.excuse_lost(now_s)
            return
        self._leave_lost_nodes(now_s - self._context.settings.lost_after)
        self._collect_timed()
        for gang in [gang for gang in self._timed if gang.deadline_s is not None and now_s >= gang.deadline_s]:
            gang.deadline_s = None
            self._expire(gang)

    def _leave_lost_nodes(self, limit_s: float) -> None:
        """Give up gangs on nodes that have been lost since before the limit: all when a node is added to these."""
        lost = {name for name, since_s in self._context.node_cache.lost_since_s.items() if since_s <= limit_s}
        gangs = self._context.gang_index.gangs if lost - self._lost else list(self._looked_at)
        self._lost = lost
        for gang in gangs if lost else ():
            if gang.stage is Stage.PLACED and lost & {str(pod.node) for pod in gang.holders}:
                self._give_up(gang, "a node was lost")

    def _collect_timed(self) -> None:
        """Gangs get a deadline only when they are reconciled: no other has to be looked at in a tick."""
        self._timed.update(self._looked_at)
        self._looked_at.clear()
        self._timed = {gang: None for gang in self._timed if gang.deadline_s is not None}

    def _postpone(self, until_s: float) -> None:
        """Postpone all deadlines while the API server is unreachable, or this replica may not write."""
        for gang in (*self._timed, *self._looked_at):
            if gang.deadline_s is not None:
                gang.deadline_s = max(gang.deadline_s, until_s)

    def _expire(self, gang: Gang) -> None:
        if gang.stage is Stage.PLACED:
            failed = sum(slot.outcome is PodPhase.FAILED for slot in gang.slots)
            if failed:
                self._give_up(gang, f"{failed} of {len(gang.slots)} pods failed")
            else:
                self._context.work.do(self._do_without(gang), writes=False)
        elif gang.stage is Stage.GATHERING and gang.job is not None:
            self._gathering.expire(gang)

    async def _do_without(self, gang: Gang) -> None:
        """Shrink a gang whose pods have been missing too long if its controller wants fewer; else stop it."""
        wanted = await ask_size(self._context.api, gang) if gang.started else None
        missing = gang.missing
        if gang.stage is not Stage.PLACED or not missing:
            return
        if _runs_smaller(gang):  # a controller may take minutes to make pods again after some were evicted
            gang.deadline_s = clock.now_s() + self._context.settings.gang_timeout
            self._context.outdated.set()
        elif self._context.gang_index.does_without(gang, wanted):
            for slot in missing:
                slot.outcome = PodPhase.SUCCEEDED
            self._context.outdated.set()
        else:
            self._give_up(gang, f"{len(missing)} of {len(gang.slots)} {PODS_MISSING}")
        self._context.gang_index.touch(gang)
        self._context.flush()

    async def _bind(self, gang: Gang, slot: PodSlot, pod: Pod) -> None:
        if self._ask_first_s:
            await asyncio.sleep(self._ask_first_s)
        if slot.pod == pod.uid and not slot.bound:
            await self.bind(gang, slot, pod)

    async def bind(self, gang: Gang, slot: PodSlot, pod: Pod) -> None:
        """Bind a pod to its slot and handle the outcome."""
        within_s = self._context.settings.gang_timeout
        node = str(slot.task.node.id)
        try:
            if pod.wants.needs.volumes:
                await self._context.volume_binder.bind(pod, node, within_s=within_s)
            if pod.wants.needs.claims:
                await self._context.claim_binder.bind(pod, within_s=within_s)
            came = await self._context.binder.bind(pod, node, binding_note(gang, slot.task, pod), within_s=within_s)
        except Unavailable as error:
            if self._context.sink is None:
                return
            self._unbound(gang, slot, pod, is_gone=False)
            if gang.stage is Stage.PLACED:
                self._give_up(gang, f"pod {pod.name} could not be bound: {error}")
        else:
            if came is Bound.YES and slot.pod != pod.uid:  # deleted since, as the watch has reported before the answer
                self._context.places.drop(pod.uid)
            elif came is Bound.YES:
                slot.bound = True
                pod = gang.members.get(pod.uid, pod)
                pod.node = pod.node or node
                if gang.stage is Stage.PLACED:  # the watch will report this too; one reconciliation is enough
                    self._context.gang_index.touch(gang)
                    return
            else:
                self._unbound(gang, slot, pod, is_gone=True)
                if came is Bound.ELSEWHERE and gang.stage is Stage.PLACED:
                    self._give_up(gang, f"pod {pod.name} was bound by another scheduler")
        if gang.stage is Stage.LEAVING and pod.holds and pod.uid in gang.assigned:
            await self._context.binder.evict(pod)
        self._context.gang_index.touch(gang)
        self._context.flush()

    def _unbound(self, gang: Gang, slot: PodSlot, pod: Pod, *, is_gone: bool) -> None:
        """Reopen the slot of a failed bind. A pod that is gone is not tried again."""
        if is_gone:
            gang.members.get(pod.uid, pod).ending = True
        gang.assigned.pop(pod.uid, None)
        self._context.places.drop(pod.uid)
        if pod.wants.needs.claims:
            self._context.work.do(self._context.claim_binder.give_back(pod))
        if slot.pod == pod.uid:
            slot.pod, slot.bound = None, False

    def remove(self, gang: Gang) -> None:
        """Delete the waiting pods of a gang and its controller."""
        if gang.owner is not None:
            self._context.work.do(self._context.binder.delete_owner(gang.key.namespace, gang.owner))
        for pod in gang.waiting:
            self._context.work.do(self._context.binder.delete(pod))


def _runs_smaller(gang: Gang) -> bool:
    """Whether pods are missing only because an elastic gang was to grow: those that run suffice."""
    elastic = None if gang.job is None else gang.job.elastic
    return gang.resizing and elastic is not None and len(gang.slots) - len(gang.missing) >= elastic.min_tasks
