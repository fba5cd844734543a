"""Random histories of gangs on random clusters of cells, drawn from one source of chance.

`trace` runs a history: gangs come pod by pod and leave, nodes fail and come back, guarantees change. All
invariants are checked after every step, and that a tenant could have all it owns; at the end everything leaves and
heals, every tenant is given all it owns at once, and nothing may be missing.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from conformance.pod_types import Bind, PodRefused, PodSpec, Preempt, Question, Wait
from conformance.pods import PodFront
from rota.core.model.cells import CellTypeName, PinnedId
from rota.core.model.job import OPPORTUNISTIC, TenantId
from rota.tenancy.cells.check import check_cells
from rota.tenancy.cells.claims import HIGHEST_PRIORITY
from rota.tenancy.cells.schedule import nodes_of
from rota.tenancy.cells.tree import Virtual
from tenancy.random_plans import random_plan, random_tenants


class Trace:
    """A history in the making."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.plan = random_plan(rng)
        self.front = PodFront(self.plan)
        self.specs: dict[str, PodSpec] = {}
        self.bound: dict[str, Bind] = {}
        self.bad: set[str] = set()
        self.groups = 0

    def step(self) -> None:
        """Something happens."""
        chance = self.rng.random()
        if chance < 0.4:
            self._arrive()
        if chance < 0.65:
            self._schedule()
        elif chance < 0.8:
            self._leave()
        elif chance < 0.96:
            self._turn()
        else:
            self._reconfigure()
        check_cells(self.front.accounts)
        for gang in self.front.gangs:
            assert gang.waiting or gang.pods, f"gang {gang.name} has no pods"
        self._could_have_all(self.rng.choice(list(self.front.accounts.forest.estates)))

    def end(self) -> None:
        """Everyone leaves, everything heals: every promised cell must be there again."""
        for pod, spec in self.specs.items():
            self.front.delete(pod, spec)
        for node in sorted(self.bad):
            self.front.turn(node, is_up=True)
        check_cells(self.front.accounts)
        assert not self.front.groups
        for estate in self.front.accounts.forest.estates.values():
            assert all(root.physical is None for roots in estate.roots.values() for root in roots)
        self.bad.clear()
        self._have_all()

    def _could_have_all(self, tenant: TenantId) -> None:
        """Whoever is there: with the highest priority a tenant could have all its cells of a size, if none is bad."""
        forest = self.front.accounts.forest
        sick = {cell.chain for node in self.bad for cell in forest.cells_by_node.get(node, ())}
        for chain, spec in self._all_of(tenant):
            if chain not in sick:
                answer = self.front.schedule((f"all-{tenant}"), spec, Question.FILTERING)
                assert not isinstance(answer, Wait), f"{tenant} can't have {spec.members} of {chain}: {answer}"
                if isinstance(answer, Bind):
                    self.front.discard(answer)

    def _have_all(self) -> None:
        """Every tenant takes all that it owns, all at once."""
        for tenant in self.front.accounts.forest.estates:
            for _, spec in sorted(self._all_of(tenant), key=lambda gang: (-gang[1].devices, -gang[1].members[0][0])):
                for number in range(spec.members[0][0]):
                    pod = f"{spec.group}-{number}"
                    answer = self.front.schedule(pod, spec, Question.FILTERING)
                    assert isinstance(answer, Bind), f"{pod} of {spec.members} is not bound: {answer}"
                    self.front.commit(pod, answer)
        check_cells(self.front.accounts)

    def _all_of(self, tenant: TenantId) -> Iterator[tuple[CellTypeName, PodSpec]]:
        """Gangs that take all cells of a tenant, one for each size of node in each chain and pinned cell."""
        forest = self.front.accounts.forest
        estate = forest.estates[tenant]
        owned: list[tuple[PinnedId | None, list[Virtual]]] = [(None, roots) for roots in estate.roots.values()]
        owned += [(pinned, [root]) for pinned, root in estate.pinned.items()]
        for pinned, roots in owned:
            chain = forest.chains[roots[0].chain]
            for size, pods in Counter(node.leaves for node in nodes_of(roots, chain.node_level)).items():
                yield (
                    chain.name,
                    PodSpec(
                        tenant=tenant,
                        priority=HIGHEST_PRIORITY,
                        devices=size,
                        leaf_type=chain.leaf_type if pinned is None else None,
                        pinned=pinned,
                        group=(f"all-{tenant}-{pinned or chain.name}-{size}"),
                        members=((pods, size),),
                    ),
                )

    def _arrive(self) -> None:
        rng, forest = self.rng, self.front.accounts.forest
        tenant = rng.choice(list(forest.estates))
        priority = rng.choice((-1, 0, 1, 2, 9))
        pinned = list(forest.estates[tenant].pinned)
        members = {rng.choice((1, 1, 2, 3, 4)): rng.choice((1, 1, 2, 3)) for _ in range(rng.choice((1, 1, 2)))}
        group = f"g{self.groups}"
        self.groups += 1
        lazy, ignores = rng.random() < 0.5, rng.random() < 0.6
        leaf_type = CellTypeName(f"G{rng.randint(0, 1)}") if rng.random() < 0.5 else None
        pin = rng.choice(pinned) if pinned and priority >= 0 and rng.random() < 0.3 else None
        for devices, pods in members.items():
            for pod in range(pods):
                self.specs[(f"{group}-{devices}-{pod}")] = PodSpec(
                    tenant=tenant,
                    priority=priority,
                    devices=devices,
                    leaf_type=leaf_type,
                    pinned=pin,
                    group=group,
                    members=tuple((count, size) for size, count in members.items()),
                    lazy=lazy,
                    ignores_suggestions=ignores,
                )

    def _schedule(self) -> None:
        waiting = [pod for pod in self.specs if pod not in self.bound]
        for pod in self.rng.sample(waiting, min(len(waiting), self.rng.choice((1, 2, 4)))):
            if pod in self.specs:
                self._schedule_one(pod, self.specs[pod])

    def _schedule_one(self, pod: str, spec: PodSpec) -> None:
        rng = self.rng
        nodes = list(self.front.accounts.forest.cells_by_node)
        suggested = None if rng.random() < 0.7 else set(rng.sample(nodes, max(1, len(nodes) // 2)))
        standings = self.front.standings()
        try:
            answer = self.front.schedule(pod, spec, rng.choice(list(Question)), suggested)
        except PodRefused:
            del self.specs[pod]
            return
        if isinstance(answer, Bind) and rng.random() < 0.95:
            self.front.commit(pod, answer)
            self.bound[pod] = answer
        elif isinstance(answer, Bind):
            self.front.discard(answer)
        elif isinstance(answer, Preempt):
            for victim in answer.victims:
                held = standings.get(self.specs[victim].group or victim, OPPORTUNISTIC - 1)
                assert held < spec.priority, f"{victim} must not yield to {pod}"
            if rng.random() < 0.5:
                for victim in answer.victims:
                    self._delete(victim)

    def _leave(self) -> None:
        if self.specs:
            self._delete(self.rng.choice(list(self.specs)))

    def _delete(self, pod: str) -> None:
        self.bound.pop(pod, None)
        self.front.delete(pod, self.specs.pop(pod))

    def _turn(self) -> None:
        if self.bad and self.rng.random() < 0.5:
            node = self.rng.choice(sorted(self.bad))
            self.bad.discard(node)
            self.front.turn(node, is_up=True)
        else:
            node = self.rng.choice(list(self.front.accounts.forest.cells_by_node))
            self.bad.add(node)
            self.front.turn(node, is_up=False)

    def _reconfigure(self) -> None:
        """As after a restart with another file: other guarantees. `random_engine` changes hardware too."""
        self.plan = replace(self.plan, tenants=random_tenants(self.rng, self.plan))
        self.front = PodFront(self.plan)
        self.front.recover({pod: (self.specs[pod], bind) for pod, bind in self.bound.items()}, self.bad)
        alive = self.front.accounts.forest.estates
        for pod in [pod for pod, spec in self.specs.items() if spec.tenant not in alive and pod not in self.bound]:
            del self.specs[pod]


def trace(rng: random.Random, steps: int = 100) -> None:
    """A whole history."""
    history = Trace(rng)
    for _ in range(steps):
        history.step()
    history.end()


if __name__ == "__main__":
    first, last = (int(word) for word in sys.argv[1:])
    for seed in range(first, last):
        try:
            trace(random.Random(seed))
        except BaseException:
            print(f"seed {seed}")
            raise
    print(f"{last - first} traces of 100 steps, no internal error")
