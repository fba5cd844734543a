"""Keeps waiting jobs to the nodes that the filters leave them, so that the engine places nothing that can't be bound.

A job without constraints is not looked at. The pods of a gang with constraints are roles of their own: nodes are found
for all of them together, and each role is kept to its node. The engine decides whether and when the job starts, and may
stop others for it. A gang that only the anti-affinity of other pods concerns keeps its roles, without those nodes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from rota.core.messages.events import JobUpdated
from rota.core.model.job import Job, Role
from rota.core.model.labels import Requirement
from rota.core.state.inventory import Inventory
from rota.drivers.kubernetes.filters.affinity import away_from_guarding
from rota.drivers.kubernetes.filters.assignment import assign, assumed
from rota.drivers.kubernetes.filters.facts import NO_NEEDS, PodFacts
from rota.drivers.kubernetes.filters.verdict import judge, summary, verdicts
from rota.drivers.kubernetes.filters.world import FilterState
from rota.drivers.kubernetes.gangs.context import DriverContext
from rota.drivers.kubernetes.gangs.gang import Gang, Stage
from rota.drivers.kubernetes.gangs.room import EVERYWHERE, InventoryRoom, cells_of, members
from rota.drivers.kubernetes.objects.gang_jobs import pods_by_role, widened
from rota.drivers.kubernetes.objects.pod_annotations import PLACE
from rota.drivers.kubernetes.objects.pods import Pod
from rota.drivers.kubernetes.objects.topology_request import ANYWHERE, TopologyRequest, topology_of

BUDGET_S = 0.005
"""Time for looking again at waiting jobs, per tick."""
NOWHERE = (Requirement(PLACE, "DoesNotExist"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowed:
    """The roles of a job, each kept to its nodes, and why there are none for it, in words."""

    roles: tuple[Role, ...]
    words: str = ""


class Narrowing:
    """The constraints of all gangs that wait."""

    def __init__(self, context: DriverContext) -> None:
        self._context = context
        self._watched: dict[Gang, None] = {}
        """Waiting gangs with constraints, the one that was looked at first to come next."""
        self._seen: tuple[int, int] = (-1, -1)
        self._changes = 0

    @property
    def _world(self) -> FilterState:
        return self._context.places.world

    def note_change(self) -> None:
        """Look again at the waiting gangs: what the engine holds has changed."""
        self._changes += 1

    def first(self, gang: Gang, job: Job, pods: Sequence[Pod]) -> Job:
        """Return a job as it is announced: kept to the nodes that suit it now."""
        gang.barred = ""
        if not self._is_constrained(pods) and topology_of(pods[0], self._context.settings.topology) == ANYWHERE:
            return job
        self._watched[gang] = None
        return self._narrowed(gang, job, pods)

    def check(self, pairs: Iterable[tuple[Pod, str]]) -> str | None:
        """Return why pods can't be bound to these nodes now, all together; None if they can."""
        chosen = [(pod.facts, node) for pod, node in pairs]
        world = self._world
        if not any(pod.needs is not NO_NEEDS for pod, _ in chosen) and not any(True for _ in world.guarding()):
            return None
        version = world.version
        with ExitStack() as stack:
            for pod, name in chosen:
                words = _words(pod, name, world)
                if words is not None:
                    world.version = version
                    return f"pod {pod.name} can't go to node {name}: {words}"
                stack.enter_context(assumed(pod, name, world))
        world.version = version
        return None

    def watch(self, gang: Gang) -> None:
        """Look at a gang again, for its start was refused."""
        self._watched[gang] = None
        self.note_change()

    def refresh(self) -> None:
        """Look again at watched gangs after a change, some at a time."""
        now = (self._world.version, self._changes)
        if now == self._seen or not self._watched or self._context.sink is None:
            return
        until_s = time.perf_counter() + BUDGET_S
        for gang in list(self._watched):
            del self._watched[gang]
            if gang.stage is Stage.WAITING and gang.job is not None:
                self._watched[gang] = None
                self._look_again(gang)
            if time.perf_counter() > until_s:
                return
        self._seen = now

    def _look_again(self, gang: Gang) -> None:
        assert gang.job is not None
        assert self._context.sink is not None
        live = self._context.sink.state.jobs.get(gang.id)
        if live is None or live.placement is not None:
            return
        was = gang.barred
        job = self._narrowed(gang, gang.job, [*gang.waiting, *gang.finished][: gang.size])
        if job.roles != gang.job.roles:
            gang.job = job
            self._context.report.events.append(JobUpdated(job.id, job))
        if gang.barred != was:
            self._context.gang_index.touch(gang)

    def _is_constrained(self, pods: Sequence[Pod]) -> bool:
        if any(pod.wants.needs is not NO_NEEDS for pod in pods):
            return True
        return any(away_from_guarding(pod.facts, self._world) is not None for pod in pods)

    def _narrowed(self, gang: Gang, job: Job, pods: Sequence[Pod]) -> Job:
        assert self._context.sink is not None
        inventory = self._context.sink.state.inventory
        roles = tuple(widened(role) for role in job.roles)
        topology = topology_of(pods[0], self._context.settings.topology)
        if any(pod.wants.needs is not NO_NEEDS for pod in pods):
            found = self._assigned(replace(job, roles=roles), job.roles, pods, topology)
        else:
            found = self._without_guarded(roles, pods_by_role(pods), inventory)
            if topology != ANYWHERE and not found.words:
                found = self._together(replace(job, roles=found.roles), topology, inventory)
        gang.barred = found.words
        return replace(job, roles=found.roles)

    def _together(self, job: Job, topology: TopologyRequest, inventory: Inventory) -> Narrowed:
        """All nodes of one place that has room for the whole job; a preferred place only if it has room now."""
        for emptied in (False, True):
            room = InventoryRoom(inventory, job.roles, self._context.headroom, emptied=emptied)
            for cell in cells_of(job, topology, inventory, emptied=emptied):
                if cell == EVERYWHERE:
                    return Narrowed(roles=job.roles)
                room.within(cell)
                if room.holds_all():
                    names = tuple(str(inventory.nodes[index].node.id) for index in members(cell))
                    rule = Requirement(PLACE, "In", names)
                    return Narrowed(roles=tuple(with_rule(role, rule) for role in job.roles))
        words = f"no place with one value of {topology.required} is large enough for it"
        return Narrowed(roles=tuple(map(nowhere, job.roles)), words=words)

    def _assigned(self, job: Job, now: tuple[Role, ...], pods: Sequence[Pod], topology: TopologyRequest) -> Narrowed:
        """Nodes for every pod: those that it is kept to now if they still suit, free ones, or any."""
        assert self._context.sink is not None
        inventory = self._context.sink.state.inventory
        groups = pods_by_role(pods)
        if len(groups) != len(job.roles):
            return Narrowed(roles=job.roles, words="its pods have changed")
        facts = [group[0].facts for group in groups]
        for emptied in (False, True):
            room = InventoryRoom(inventory, job.roles, self._context.headroom, emptied=emptied)
            names = self._still(now, facts, room)
            if names is not None:
                return Narrowed(roles=tuple(map(kept_to, job.roles, names)))
            for cell in cells_of(job, topology, inventory, emptied=emptied):
                room.within(cell)
                names = assign(facts, self._world, room)
                if names is not None:
                    return Narrowed(roles=tuple(map(kept_to, job.roles, names)))
        return Narrowed(roles=tuple(map(nowhere, job.roles)), words=self._why(facts))

    def _still(self, now: tuple[Role, ...], pods: Sequence[PodFacts], room: InventoryRoom) -> list[str] | None:
        """The nodes that the roles are kept to, if there is room on them and they suit."""
        names = [place_of(role) for role in now]
        found = [name for name in names if name is not None]
        if len(found) != len(pods):
            return None
        version = self._world.version
        try:
            with ExitStack() as stack:
                for index, (pod, name) in enumerate(zip(pods, found, strict=True)):
                    if name not in room.nodes(index) or _words(pod, name, self._world) is not None:
                        return None
                    room.take(index, name)
                    stack.enter_context(assumed(pod, name, self._world))
            return found
        finally:
            self._world.version = version

    def _without_guarded(
        self, roles: tuple[Role, ...], groups: Sequence[Sequence[Pod]], inventory: Inventory
    ) -> Narrowed:
        """All nodes without those that pods with anti-affinity guard against the pods of a role."""
        names = [str(account.node.id) for account in inventory.nodes if not account.removed]
        narrowed = []
        for role, group in zip(roles, groups, strict=False):
            found = verdicts(group[0].facts, self._world, names)
            barred = tuple(name for name in names if found[name] is not None)
            if len(barred) == len(names):
                return Narrowed(roles=tuple(map(nowhere, roles)), words=summary(found))
            narrowed.append(with_rule(role, Requirement(PLACE, "NotIn", barred)) if barred else role)
        return Narrowed(roles=tuple(narrowed) if len(narrowed) == len(roles) else roles)

    def _why(self, pods: Sequence[PodFacts]) -> str:
        """Why no nodes suit: the first pod that no node suits alone, or that they do not fit together."""
        for pod in pods:
            found = verdicts(pod, self._world, self._world.nodes)
            if all(words is not None for words in found.values()):
                return summary(found)
        if len(pods) == 1:
            return f"the nodes that suit it have no room or other labels; of all: {summary(found)}"
        return f"no nodes suit its {len(pods)} pods together"


def _words(pod: PodFacts, name: str, world: FilterState) -> str | None:
    test = judge(pod, world)
    node = world.nodes.get(name)
    if node is None or test is None:
        return None
    return test(node)


def kept_to(role: Role, node: str) -> Role:
    """Return a role that only one node suits."""
    return with_rule(role, Requirement(PLACE, "In", (node,)))


def nowhere(role: Role) -> Role:
    """Return a role that no node suits."""
    return with_rule(role, NOWHERE[0])


def with_rule(role: Role, rule: Requirement) -> Role:
    """Return a role with one more requirement."""
    return replace(role, requires=tuple((*term, rule) for term in role.requires or ((),)))


def place_of(role: Role) -> str | None:
    """Return the node that a role is kept to; None if that is not one node."""
    for term in role.requires:
        for rule in term:
            if rule.key == PLACE and rule.operator == "In" and len(rule.values) == 1:
                return rule.values[0]
    return None
