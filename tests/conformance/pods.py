"""HiveD's questions, pod by pod, put to the engine with tenancy `cells`: the code that users run.

The first pod of a gang submits the whole gang as a job. What the engine decides is the answer: a start binds the pods,
stops of other jobs are a preemption, anything else is a wait. A gang that waits is withdrawn, since HiveD is asked
again for each of its pods. Nodes that are suggested are a requirement on labels of the nodes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import yaml

from builders import Script
from conformance.pod_types import Answer, Bind, Gang, PodRefused, PodSpec, Preempt, Question, Task, Wait
from rota.core.codec import snapshot
from rota.core.codec.values import encode_placement
from rota.core.engine.draft import Draft
from rota.core.engine.engine import Engine
from rota.core.engine.invariants import check
from rota.core.errors import RotaError
from rota.core.messages import events as told
from rota.core.messages.reasons import Reason
from rota.core.model.cells import CellPlan, CellTypeName
from rota.core.model.cluster import Cluster
from rota.core.model.job import WHOLE, DeviceType, Job, JobId, JobState, Role, TenantId
from rota.core.model.labels import Operator, Requirement
from rota.core.model.placement import Placement, device_indexes
from rota.core.state.job_record import LiveJob
from rota.core.state.phases import LEAVING, Phase
from rota.core.state.state import State
from rota.drivers.kubernetes.objects.hived_pods import REQUEST, notes_of
from rota.files.hived import cluster_from
from rota.placement import style
from rota.tenancy.cells.accounts import CellAccounts
from rota.tenancy.cells.allocator import CellAllocator
from rota.tenancy.cells.tree import Virtual

NAME = "name"
"""The label of a node that is its machine's address."""


class PodFront:
    """Gangs of pods on a cluster of cells, under an engine without a policy of its own."""

    def __init__(self, plan: CellPlan, *, extra: Cluster | None = None) -> None:
        self.plan = plan
        self.cluster = _labelled(cluster_from(plan), extra)
        self._script = Script()
        self._start(State(self.cluster))
        self._gangs: dict[str, Gang] = {}
        self._numbers = 0

    def _start(self, state: State) -> None:
        self.allocator = CellAllocator(style("any"), self.cluster)
        self.engine = Engine(state, self._script, self.allocator)

    # -- the questions ---------------------------------------------------------------------------

    def schedule(self, pod: str, spec: PodSpec, question: Question, suggested: Collection[str] | None = None) -> Answer:
        """Where a pod goes, which pods must go first, or why it waits. Only `commit` lets it keep its place."""
        _refuse_nonsense(pod, spec)
        name = spec.group or pod
        gang = self._gangs.get(name)
        ignores = gang.spec.ignores_suggestions if gang is not None else spec.ignores_suggestions
        allowed = None if ignores else suggested
        if gang is not None:
            stranded = self.state_of(name) == "Preempting" and self._is_stranded(gang, allowed)
            if not (stranded and question is Question.PREEMPTING):
                return self._join(gang, pod, spec)
            self._withdraw(gang)
        return self._found(name, pod, spec, question, allowed)

    def commit(self, pod: str, bind: Bind) -> None:
        """The pod is bound."""
        gang = self._gangs[bind.group]
        gang.pods[bind.place] = pod
        gang.waiting.clear()
        live = self._live(gang)
        if live.phase is Phase.STARTING:
            self._step(told.Started(gang.job, 1.0, self._now_s))

    def discard(self, bind: Bind) -> None:
        """The pod was not bound: as if it had not been asked for."""
        gang = self._gangs[bind.group]
        if not gang.pods:
            self._withdraw(gang)

    def delete(self, pod: str, spec: PodSpec) -> None:
        """A pod is gone, bound or not; with the last one its gang ends."""
        gang = self._gangs.get(spec.group or pod)
        if gang is None:
            return
        gang.waiting.pop(pod, None)
        gang.pods = {place: other for place, other in gang.pods.items() if other != pod}
        if not gang.pods and not gang.waiting:
            self._withdraw(gang)

    def turn(self, machine: str, *, is_up: bool) -> None:
        """A machine fails, or works again."""
        names = [node.id for node in self.cluster.nodes if dict(node.labels).get(NAME) == machine]
        self._step(*((told.NodeBack if is_up else told.NodeLost)(name) for name in names))

    def recover(self, bound: dict[str, tuple[PodSpec, Bind]], down: Collection[str]) -> None:
        """Start again with the pods that were bound before: their gangs run where they are."""
        binds = {bind.group: (spec, bind) for spec, bind in bound.values()}
        pairs: list[tuple[Job, dict[str, Any]]] = []
        for name, (spec, bind) in binds.items():
            job = self._job(name, spec, None)
            gang = self._gangs[name] = Gang(name, job.id, spec)
            gang.pods = {other.place: pod for pod, (_, other) in bound.items() if other.group == name}
            on = encode_placement(bind.placement, bind.names)
            pairs.append((job, _running(len(pairs), on, job.gpu_milli)))
        known = {node.id for node in cluster_from(self.plan).nodes}
        frame = snapshot.Snapshot(
            now_s=0.0,
            down=tuple(node.id for node in self.cluster.nodes if dict(node.labels).get(NAME) in down),
            removed=tuple(node.id for node in self.cluster.nodes if node.id not in known),
        )
        self._start(snapshot.rebuild(self.cluster, pairs, frame))

    # -- what is seen ----------------------------------------------------------------------------

    @property
    def accounts(self) -> CellAccounts:
        """The allocator's accounts of cells."""
        return self.allocator.accounts

    @property
    def gangs(self) -> list[Gang]:
        """All gangs with their pods."""
        return list(self._gangs.values())

    def standings(self) -> dict[str, int]:
        """The priority at which each gang holds its devices, of those that hold any."""
        claims = {gang.name: self.allocator.claim_of(self._live(gang)) for gang in self.gangs}
        return {name: claim.standing for name, claim in claims.items() if claim is not None}

    @property
    def groups(self) -> list[str]:
        """Gangs that have devices or reserve them."""
        return [name for name in self._gangs if self.state_of(name) is not None]

    def state_of(self, name: str) -> str | None:
        """A gang's state in HiveD's words; None if it has no devices."""
        gang = self._gangs.get(name)
        if gang is None:
            return None
        live = self._live(gang)
        if live.phase is Phase.RESERVED or (live.phase is Phase.STARTING and gang.waiting):
            return "Preempting"  # to HiveD a gang preempts until one of its pods is asked for again
        if live.phase in LEAVING:
            return "BeingPreempted"
        return "Allocated" if live.state in (JobState.STARTING, JobState.RUNNING) else None

    def downgraded_by(self, name: str) -> str | None:
        """The gang that took a gang's guarantee, if one did."""
        claim = self.allocator.claim_of(self._live(self._gangs[name]))
        by = None if claim is None else claim.downgraded_by
        return None if by is None else by.partition("#")[0]

    def promised(self, tenant: str, chain: str) -> list[Virtual]:
        """A tenant's own cells of a chain, pinned ones left out."""
        self.allocator.accounts.settle()
        estate = self.allocator.accounts.forest.estates.get(TenantId(tenant))
        return [] if estate is None else estate.roots.get(CellTypeName(chain), [])

    # -- how answers come about ------------------------------------------------------------------

    def _found(self, name: str, pod: str, spec: PodSpec, question: Question, allowed: Collection[str] | None) -> Answer:
        job = self._job(name, spec, allowed)
        refused = self.engine.refuse(job)
        if refused is not None and not refused.startswith("gpus"):  # HiveD lets those wait that are too large
            raise PodRefused(refused)
        if refused is not None:
            return Wait(why=refused)
        self._step(told.JobArrived(job))
        gang = self._gangs[name] = Gang(name, job.id, spec)
        found = self._plan(gang, may_preempt=question is Question.PREEMPTING)
        live = self._live(gang)
        if live.phase is Phase.STARTING:
            bind = self._bind(gang, spec)
            assert bind is not None
            return bind
        if live.phase is Phase.RESERVED and (isinstance(found, Preempt) or self._is_above_victims(live)):
            found = Preempt(victims=self._pods_on(live))
            if question is Question.PREEMPTING:
                gang.waiting[pod] = None
                return found
        elif live.phase is Phase.RESERVED:
            found = Wait(why="its devices are being vacated")
        self._withdraw(gang)
        return found

    def _plan(self, gang: Gang, *, may_preempt: bool) -> Answer:
        """Let the engine plan for one gang; what it would have to preempt, or why the gang waits."""
        live = self._live(gang)
        found: list[Answer] = []

        def plan(draft: Draft) -> None:
            answer = draft.offer(live)
            if not isinstance(answer, Reason):
                draft.assign(live, answer)
                return
            offer = draft.allocator.displace(live, draft.inventory, draft.now_s)
            if offer is None:
                found.append(Wait(why=answer.sentence()))
                return
            victims = tuple(pod for each in offer.victims for pod in self._pods_of(each))
            found.append(Preempt(victims=victims))
            if may_preempt or not victims:  # gangs without bound pods have no more than a reservation
                for victim in offer.victims:
                    draft.release(victim)
                draft.assign(live, offer.placement)

        self._script.todo, self._script.wakeup_s = [plan], self._now_s
        self._step(told.TimerFired())
        for other in [each for each in self._gangs.values() if not each.pods and self._live(each).phase in LEAVING]:
            self._withdraw(other)  # its start was ordered, but none of its pods has been bound yet
        for other in [each for each in self._gangs.values() if self.state_of(each.name) is None and each is not gang]:
            self._withdraw(other)  # it lost its reservation
        return found[0] if found else Wait(why="its devices are being vacated")

    def _join(self, gang: Gang, pod: str, spec: PodSpec) -> Answer:
        """A pod of a gang whose places are decided."""
        live = self._live(gang)
        bind = self._bind(gang, spec)
        if bind is None:
            raise PodRefused(f"pod {pod}: group {gang.name!r} has all its pods of {spec.devices} devices")
        if live.phase in LEAVING:
            return Wait(why=f"group {gang.name} is being preempted")
        if live.phase is Phase.RESERVED:
            gang.waiting[pod] = None
            return Preempt(victims=self._pods_on(live))
        return bind

    def _bind(self, gang: Gang, spec: PodSpec) -> Bind | None:
        """A free place for a pod of so many devices, if its gang has one."""
        live = self._live(gang)
        placement = live.placement or self._held(live)
        tasks = self._tasks(placement)
        place = next(
            (at for at, task in enumerate(tasks) if len(task.indexes) == spec.devices and at not in gang.pods), None
        )
        if place is None:
            return None
        chain = self.allocator.sites.devices(placement)
        return Bind(
            node=tasks[place].node,
            indexes=tasks[place].indexes,
            chain=chain[0].chain if chain else CellTypeName(""),
            group=gang.name,
            place=place,
            records=tuple(tasks),
            placement=placement,
            names=tuple(node.id for node in self.cluster.nodes),
        )

    def _tasks(self, placement: Placement) -> list[Task]:
        """The tasks of a placement; devices by their numbers in the cells of their machine."""
        tasks: list[Task] = []
        for slot in placement:
            machine = dict(self.cluster.nodes[slot.node].labels)[NAME]
            leaves = self.allocator.sites.devices((slot,))
            numbers = [leaf.index for leaf in leaves] or device_indexes(slot.devices)
            each = len(numbers) // slot.tasks
            tasks += [
                Task(node=machine, indexes=tuple(numbers[at * each : (at + 1) * each])) for at in range(slot.tasks)
            ]
        return sorted(tasks, key=lambda task: len(task.indexes))

    def _held(self, live: LiveJob) -> Placement:
        return self.engine.state.vacating.get(live.job.id, (live, ()))[1]

    def _is_above_victims(self, live: LiveJob) -> bool:
        """Whether all that a job waits for are gangs of lower priority: to others HiveD does not give their devices."""
        return all(victim.standing < live.standing for victim in self._leavers(live))

    def _pods_on(self, live: LiveJob) -> tuple[str, ...]:
        """Pods of the gangs that are still on the devices that a job claims."""
        return tuple(pod for victim in self._leavers(live) for pod in self._pods_of(victim))

    def _leavers(self, live: LiveJob) -> list[LiveJob]:
        """Jobs that are still on the devices that a job claims."""
        claimed = {(slot.node, device) for slot in live.placement or () for device in device_indexes(slot.devices)}
        return [
            victim
            for victim, held in self.engine.state.vacating.values()
            if any((slot.node, device) in claimed for slot in held for device in device_indexes(slot.devices))
        ]

    def _pods_of(self, live: LiveJob) -> list[str]:
        gang = next((gang for gang in self._gangs.values() if gang.job == live.job.id), None)
        return [] if gang is None else list(gang.pods.values())

    def _is_stranded(self, gang: Gang, allowed: Collection[str] | None) -> bool:
        """Whether a reservation lies on a node that is not suggested."""
        tasks = self._tasks(self._live(gang).placement or ())
        return allowed is not None and any(task.node not in allowed for task in tasks)

    def _withdraw(self, gang: Gang) -> None:
        """A gang leaves what it has or reserves."""
        del self._gangs[gang.name]
        live = self._live(gang)
        if live.state.is_final:
            return
        if live.phase not in LEAVING:
            self._step(told.JobCancelled(gang.job))
        if live.phase in LEAVING:
            self._step(told.Stopped(gang.job, 0.0))

    def _job(self, name: str, spec: PodSpec, allowed: Collection[str] | None) -> Job:
        """The gang as a job."""
        self._numbers += 1
        sizes = sorted(spec.members or ((1, spec.devices),), key=lambda member: member[1])
        require = () if allowed is None else ((Requirement(NAME, Operator.IN.value, tuple(sorted(allowed))),),)
        types = () if spec.leaf_type is None else (DeviceType(spec.leaf_type),)
        roles = tuple(
            Role(name=f"r{at}", count=pods, device_milli=devices * WHOLE, device_types=types, requires=require)
            for at, (pods, devices) in enumerate(sizes)
        )
        labels = (("pinned_cell", spec.pinned or ""), ("lazy_preemption", "true" if spec.lazy else ""))
        return Job(
            id=JobId(f"{name}#{self._numbers}"),
            tenant=TenantId(spec.tenant),
            priority=spec.priority,
            roles=roles,
            labels=tuple((key, value) for key, value in labels if value),
        )

    def _live(self, gang: Gang) -> LiveJob:
        return self.engine.state.live(gang.job)

    @property
    def _now_s(self) -> float:
        return self.engine.state.now_s

    def _step(self, *events: told.Event) -> None:
        self.engine.step(self._now_s, events)
        check(self.engine.state)


def _labelled(cluster: Cluster, extra: Cluster | None) -> Cluster:
    """The nodes of a cluster, and those of another that it lacks, each with its machine as a label."""
    nodes = {node.id: node for node in (*cluster.nodes, *(() if extra is None else extra.nodes))}
    named = (replace(node, labels=((NAME, str(node.id).partition("+")[0]),)) for node in nodes.values())
    return replace(cluster, nodes=tuple(named))


def _refuse_nonsense(pod: str, spec: PodSpec) -> None:
    """Refuse what the reader of HiveD's annotation refuses, and a pod that no member of its gang describes."""
    asked: dict[str, Any] = {
        "virtualCluster": spec.tenant,
        "priority": spec.priority,
        "leafCellNumber": spec.devices,
        "affinityGroup": {"name": spec.group or pod, "members": [{"podNumber": n} for n, _ in spec.members]},
    }
    try:
        notes_of({REQUEST: yaml.safe_dump(asked)}, pod)
    except RotaError as error:
        raise PodRefused(str(error)) from error
    if spec.members and all(devices != spec.devices for _, devices in spec.members):
        raise PodRefused(f"affinityGroup.members has no entry with the pod's leafCellNumber, {spec.devices}")


def _running(seq: int, on: list[list[Any]], run_milli: int) -> dict[str, Any]:
    """A job's record in a snapshot: it runs since the beginning."""
    return {
        "state": JobState.RUNNING.value,
        "seq": seq,
        "submitted_s": 0.0,
        "since_s": 0.0,
        "run_since_s": 0.0,
        "work_from_s": 0.0,
        "first_start_s": 0.0,
        "rate": 1.0,
        "run_milli": run_milli,
        "on": on,
    }
