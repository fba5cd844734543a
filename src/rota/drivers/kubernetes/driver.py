"""The Kubernetes driver: carries decisions out on pods and answers with events.

The cluster is the store of what runs. The driver can rebuild all of its state: a bound pod carries the
placement of its whole gang, so that a replica that starts after a crash continues where the last one stopped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rota.core.engine.driver import DriverContract
from rota.core.messages.decisions import Cause, Decision, DecisionKind, Renew, Resize, Start, Stop
from rota.core.messages.events import Event, SpeedChanged
from rota.core.model.cluster import Node
from rota.core.model.job import Job, JobId
from rota.core.model.placement import Placement
from rota.core.state.state import State
from rota.drivers.kubernetes.api.background_tasks import BackgroundTasks
from rota.drivers.kubernetes.api.client import Api
from rota.drivers.kubernetes.filters.world import FilterState
from rota.drivers.kubernetes.gangs.binder import Binder
from rota.drivers.kubernetes.gangs.claim_binder import ClaimBinder
from rota.drivers.kubernetes.gangs.claims_check import ClaimsCheck, RepairCount
from rota.drivers.kubernetes.gangs.context import DriverContext, EventSink, Report
from rota.drivers.kubernetes.gangs.gang import Gang, PodSlot, Stage
from rota.drivers.kubernetes.gangs.gang_controller import GangController
from rota.drivers.kubernetes.gangs.gang_index import GangIndex
from rota.drivers.kubernetes.gangs.gang_links import GangLinks
from rota.drivers.kubernetes.gangs.headroom import Headroom
from rota.drivers.kubernetes.gangs.node_cache import NodeCache
from rota.drivers.kubernetes.gangs.occupancy import Occupancy
from rota.drivers.kubernetes.gangs.pod_places import PodPlaces
from rota.drivers.kubernetes.gangs.volume_binder import VolumeBinder
from rota.drivers.kubernetes.objects.binding_annotations import (
    Unreadable,
    assign_slots,
    has_gaps,
    planned_nodes,
    reassign_slots,
    recover_gang,
    restore_slots,
)
from rota.drivers.kubernetes.objects.controller_sizes import ask_size
from rota.drivers.kubernetes.objects.gang_jobs import job_id
from rota.drivers.kubernetes.objects.pod_annotations import JOB_ID, PLACEMENT
from rota.drivers.kubernetes.objects.pods import PodPhase
from rota.drivers.kubernetes.objects.progress_annotations import fractions
from rota.drivers.kubernetes.objects.reading import name_of, read_pod, uid_of
from rota.drivers.kubernetes.settings import ClusterSettings
from rota.store import clock

log = logging.getLogger("rota.drivers.kubernetes")
Json = dict[str, Any]
TICK_S = 0.25
CONTRACT = DriverContract(
    name="Kubernetes",
    supports=frozenset({DecisionKind.START, DecisionKind.STOP, DecisionKind.RESIZE, DecisionKind.LEASE}),
)
"""Kubernetes assigns whole devices to pods, which can be neither suspended nor moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A gang that runs already, with what it holds."""

    gang: Gang
    job: Job
    placement: Placement
    is_running: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the engine knew when the driver was attached to it: running gangs, and jobs that wait for pods."""

    found: Sequence[Found] = ()
    waiting: Mapping[JobId, Job] = field(default_factory=dict)


class KubernetesDriver:
    """All gangs of a cluster, from their first pod to their last."""

    contract = CONTRACT

    def __init__(
        self,
        api: Api,
        settings: ClusterSettings,
        *,
        ask_first_s: float = 0.0,
        running: Container[str] = (),
        repair_count: RepairCount | None = None,
    ) -> None:
        self._settings = settings
        self._running = running
        """Jobs that this Rota has started: their bound pods stay its own if the scheduler's name changes."""
        self.occupancy = Occupancy()
        self._headroom = Headroom()
        self.world = FilterState()
        places = PodPlaces(self._headroom, self.world)
        self.node_cache = NodeCache(settings, self.occupancy, self._headroom, self.world)
        self.gang_index = GangIndex(self.occupancy, places)
        self._work = BackgroundTasks()
        self._binder = Binder(api)
        self._context = DriverContext(
            api=api,
            settings=settings,
            binder=self._binder,
            volume_binder=VolumeBinder(api, self.world.volumes),
            claim_binder=ClaimBinder(api, self.world.devices),
            gang_index=self.gang_index,
            node_cache=self.node_cache,
            occupancy=self.occupancy,
            headroom=self._headroom,
            places=places,
            work=self._work,
            flush=self._flush,
        )
        self._controller = GangController(self._context, ask_first_s)
        self._links = GangLinks(settings)
        self._claims_check = ClaimsCheck(self._context, repair_count or RepairCount(), running)
        self._attached: tuple[EventSink, Known] | None = None

    @property
    def failed(self) -> asyncio.Future[None]:
        """Completed with the error when the driver can't continue."""
        return self._work.failed

    @property
    def outdated(self) -> asyncio.Event:
        """Set once gangs hold slots that no pod will take: they are released when the state is rebuilt."""
        return self._context.outdated

    @property
    def _sink(self) -> EventSink | None:
        return self._context.sink

    # -- changes of the cluster -------------------------------------------------------------------

    def nodes_listed(self, values: list[Json]) -> None:
        """Take in the list of all nodes."""
        self.node_cache.replace(values, clock.now_s())
        self._flush()

    def nodes_changed(self, changes: list[Json]) -> None:
        """Take in changes of nodes."""
        for change in changes:
            if change["type"] == "DELETED":
                self.node_cache.gone(name_of(change["object"]), clock.now_s())
            else:
                self.node_cache.see(change["object"], clock.now_s())
        self._flush()

    def pods_listed(self, values: list[Json]) -> None:
        """Take in the list of all pods."""
        found = (read_pod(value, self._settings, self._running) for value in values)
        self.gang_index.replace([pod for pod in found if pod is not None])
        self._flush()

    def pods_changed(self, changes: list[Json]) -> None:
        """Take in changes of pods."""
        for change in changes:
            if change["type"] == "DELETED":
                self.gang_index.gone(uid_of(change["object"]))
            elif (pod := read_pod(change["object"], self._settings, self._running)) is not None:
                self.gang_index.see(pod)
        self._flush()

    # -- starting up -----------------------------------------------------------------------------

    async def ask_sizes(self) -> None:
        """Ask the API server whether gangs with missing pods have become smaller."""
        for gang in self.gang_index.gangs:
            if has_gaps(gang):
                wanted = await ask_size(self._context.api, gang)
                gang.wanted = None if wanted is None else wanted - len(self.gang_index.late_of(gang))

    def resync(self, nodes: Sequence[Node]) -> list[Found]:
        """Return the gangs that hold devices by their pods' annotations; `nodes` are in the engine's order."""
        found = []
        for gang in self.gang_index.gangs:
            try:
                known = recover_gang(gang, nodes, self._settings)
            except Unreadable as error:
                self.leave_alone(gang, f"their annotations make no sense: {error}")
                continue
            if known is None:
                gang.left_alone = _runs_outside(gang, nodes)
                continue
            restore_slots(gang, known, nodes)
            is_running = all(
                slot.pod is not None and (slot.outcome or gang.members[slot.pod].phase) is not PodPhase.PENDING
                for slot in gang.slots
            )
            found.append(Found(gang=gang, job=known.job, placement=known.placement, is_running=is_running))
        return found

    def names_waiting(self) -> set[JobId]:
        """Return the ids of jobs that have pods but hold no devices."""
        return {job_id(gang, gang.waiting) for gang in self.gang_index.gangs if gang.job is None and gang.waiting}

    def names_left_alone(self) -> set[JobId]:
        """Return the ids of jobs whose pods run outside of what the settings describe."""
        return {
            JobId(pod.annotations[JOB_ID])
            for gang in self.gang_index.gangs
            if gang.left_alone
            for pod in gang.members.values()
            if pod.holds and JOB_ID in pod.annotations
        }

    def phases_by_job(self) -> dict[JobId, list[PodPhase]]:
        """Return the phases of the pods that were bound, by job."""
        found: dict[JobId, list[PodPhase]] = {}
        for gang in self.gang_index.gangs:
            for pod in gang.members.values():
                if JOB_ID in pod.annotations:
                    found.setdefault(JobId(pod.annotations[JOB_ID]), []).append(pod.phase)
        return found

    def leave_alone(self, gang: Gang, why: str) -> None:
        """Let the pods of a gang run that can't be scheduled as they are; what they hold is kept for them."""
        names = [pod.name for pod in gang.members.values() if pod.holds]
        log.warning("pods run on, and are not scheduled", extra={"pods": " ".join(sorted(names)[:8]), "why": why})
        gang.clear_slots()
        gang.job, gang.left_alone = None, True

    def attach(self, sink: EventSink, known: Known) -> None:
        """Send events to this sink from `take_up` on; the engine knows these gangs and jobs, and no others."""
        self._attached = (sink, known)

    def take_up(self) -> None:
        """Continue with the gangs that were found, and begin to report events."""
        assert self._attached is not None, "the driver is attached to a loop first"
        sink, known = self._attached
        for each in known.found:
            each.gang.stage = Stage.PLACED
            each.gang.started = each.is_running
            self.gang_index.by_job[each.job.id] = each.gang
            for uid in each.gang.assigned:
                self.occupancy.drop(uid)
        for gang in self.gang_index.gangs:
            if gang.stage is Stage.GATHERING and gang.members and gang.job is None:
                name = job_id(gang, list(gang.members.values()))
                if name in known.waiting and name not in self.gang_index.by_job:  # others may state its id
                    gang.job = known.waiting[name]
                    self.gang_index.by_job[name] = gang
        self._context.sink = sink
        growing = next((each.gang for each in known.found if each.job.elastic is not None), None)
        if growing is not None:  # sizes are planned after an event only, and by its memory the policy is done
            self._context.report.events.append(self.occupancy.restated(min(growing.nodes)))
        self.gang_index.touch_all()
        self._work.do(self._tick(), writes=False)
        self._work.do(self._claims_check.run(), writes=False)
        self._flush()

    async def close(self) -> None:
        """Stop working; the pods continue to run."""
        self._context.sink = None
        await self._work.close()

    async def fractions_done(self, job_ids: Iterable[JobId]) -> dict[JobId, float]:
        """Return the fractions of their steps that running jobs have done, of those whose pods state it."""
        return fractions(self.gang_index.by_job, job_ids)

    # -- orders ----------------------------------------------------------------------------------

    def carry_out(self, decisions: Sequence[Decision], now_s: float) -> list[Event]:
        """Begin to carry out decisions. A renewed lease is answered at once."""
        answers: list[Event] = []
        if decisions:
            self._controller.narrowing.note_change()
        for decision in decisions:
            live = self._engine_state.jobs[decision.job_id]
            self.contract.refuse_decision(decision, live.job)
            match decision:
                case Start(name, placement):
                    self.start(name, placement)
                case Stop(name, cause):
                    self.stop(name, cause)
                case Resize(name, placement):
                    self.resize(name, placement)
                case Renew(name):
                    answers.append(SpeedChanged(name, live.work, 1.0))
        return answers

    @property
    def _engine_state(self) -> State:
        assert self._sink is not None, "decisions come after the driver took up"
        return self._sink.state

    def start(self, name: JobId, placement: Placement) -> None:
        """Bind all pods of a job."""
        gang = self.gang_index.by_job[name]
        if gang.stage is Stage.OVER:  # its end was reported, and the engine will order a stop
            gang.stage = Stage.LEAVING
            return
        gang.stage, gang.ordered, gang.started = Stage.PLACED, None, False
        nodes = [account.node for account in self._engine_state.inventory.nodes if not account.removed]
        terms = self._links.begin(gang, placement, nodes, self.gang_index.by_job.values(), self._node_at)
        assign_slots(gang, placement, self._node_at, terms)
        crowded = self._headroom.crowded([str(slot.task.node.id) for slot in gang.slots], clock.now_s())
        narrowing = self._controller.narrowing
        barred = None if crowded is not None else narrowing.check(planned_nodes(gang))
        if crowded is not None:
            gang.clear_slots()
            self._controller.turn_away(gang, f"node {crowded} has no pod capacity left")
        elif barred is not None:
            gang.clear_slots()
            self._controller.turn_away(gang, barred)
            narrowing.watch(gang)
        else:
            gang.deadline_s = clock.now_s() + self._settings.gang_timeout
        self.gang_index.touch(gang)
        self._flush()

    def _node_at(self, index: int) -> Node:
        return self._engine_state.inventory.nodes[index].node

    def resize(self, name: JobId, placement: Placement) -> None:
        """Run a job on other slots: pods whose slot stays continue, the others are evicted, and more are bound."""
        gang = self.gang_index.by_job[name]
        if gang.stage is not Stage.PLACED:
            return
        gang.started, gang.resizing = False, True
        for pod in reassign_slots(gang, placement, self._node_at):
            gang.leavers.add(pod.uid)
            self._work.do(self._binder.evict(pod))
        gang.deadline_s = clock.now_s() + self._settings.gang_timeout
        self.gang_index.touch(gang)
        self._flush()

    def stop(self, name: JobId, cause: Cause) -> None:
        """Evict all pods of a job, each with its grace period."""
        gang = self.gang_index.by_job.get(name)
        if gang is None or gang.stage not in (Stage.PLACED, Stage.LEAVING):
            return
        gang.ordered = cause
        if cause in (Cause.CANCELLED, Cause.TIME_LIMIT):
            self._controller.remove(gang)
        if gang.stage is Stage.PLACED:
            self._controller.leave(gang)
        self.gang_index.touch(gang)
        self._flush()

    async def bind_now(self, gang: Gang, slot: PodSlot) -> None:
        """Bind the pod of a slot at the request of kube-scheduler."""
        if slot.pod in gang.members and not slot.bound:
            await self._controller.bind(gang, slot, gang.members[slot.pod])

    def ended(self, name: JobId, *, cancelled: bool) -> None:
        """Forget an ended job. If it was cancelled while it waited, delete its pods so that they do not return."""
        gang = self.gang_index.by_job.pop(name, None)
        if gang is not None and cancelled and gang.stage in (Stage.GATHERING, Stage.WAITING):
            gang.stage = Stage.OVER
            self._controller.remove(gang)

    # -- reporting -------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Examine every changed gang, and report the resulting events to the engine."""
        sink = self._sink
        if sink is None:
            return
        context = self._context
        self.node_cache.look_again(self._headroom.take_turned())
        context.report.events.extend(self.node_cache.news(sink.state))
        for gang in self.gang_index.take_touched():
            self._controller.look(gang)
        context.report.events.extend(self.occupancy.news(sink.state.inventory.by_name))
        report, context.report = context.report, Report()
        if report.events:
            self._controller.narrowing.note_change()
            sink.deliver(report.facts_first(), report.arriving, report.why)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._controller.tick(clock.now_s())
            self.node_cache.release(clock.now_s())
            self._flush()


def _runs_outside(gang: Gang, nodes: Sequence[Node]) -> bool:
    """Whether pods that Rota bound run on nodes that it no longer schedules."""
    names = {str(node.id) for node in nodes}
    return any(pod.holds and PLACEMENT in pod.annotations and pod.node not in names for pod in gang.members.values())
