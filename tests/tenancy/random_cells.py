"""Random clusters of cells and random histories on them, drawn from one source of chance.

`trace` runs a history: gangs come pod by pod and leave, nodes fail and come back, promises change. All invariants
are checked after every step; at the end everything leaves and heals, and no tenant may have lost a cell.
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace

from rota.core.cells import CellEntry, CellPlan, CellType, CellTypeName, PinnedId, Quota, TenantCells
from rota.core.errors import InvariantBroken, RotaError
from rota.core.model import TenantId
from rota.tenancy.cells.check import check_cells
from rota.tenancy.cells.groups import Bind, Gangs, GroupId, Phase, PodId, PodRefused, PodSpec, Preempt


def random_plan(rng: random.Random) -> CellPlan:
    """One to three chains of two to four levels, up to four tenants, some cells pinned; promises that can be kept."""
    types: dict[CellTypeName, CellType] = {}
    physical: list[CellEntry] = []
    names = iter(range(10_000))
    for chain in range(rng.randint(1, 3)):
        ladder = _ladder(rng, chain, types)
        for _ in range(rng.randint(1, 3)):
            physical.append(replace(_cell(rng, ladder, types, names), type=ladder[-1]))
    plan = CellPlan(types=types, physical=tuple(physical), tenants={})
    return replace(plan, tenants=random_tenants(rng, plan))


def _ladder(rng: random.Random, chain: int, types: dict[CellTypeName, CellType]) -> list[CellTypeName]:
    ladder = [CellTypeName(f"G{rng.randint(0, 1)}")]
    inside = rng.randint(1, 3)
    for level in range(1, inside + rng.randint(0, 2) + 1):
        name = CellTypeName(f"C{chain}L{level}")
        types[name] = CellType(child=ladder[-1], children=rng.randint(1, 3), is_node=level == inside)
        ladder.append(name)
    return ladder


def _cell(
    rng: random.Random, ladder: list[CellTypeName], types: dict[CellTypeName, CellType], names: object
) -> CellEntry:
    kind = types[ladder[-1]]
    pinned = PinnedId(f"pin{next(names)}") if rng.random() < 0.15 else None  # type: ignore[call-overload]
    if kind.is_node:
        return CellEntry(address=f"n{next(names)}", pinned=pinned)  # type: ignore[call-overload]
    children = tuple(_cell(rng, ladder[:-1], types, names) for _ in range(kind.children))
    return CellEntry(pinned=pinned, children=children)


def random_tenants(rng: random.Random, plan: CellPlan) -> dict[TenantId, TenantCells]:
    """Promises drawn one by one, each kept only if all of them together can be."""
    tenants = {TenantId(f"t{t}"): TenantCells() for t in range(rng.randint(1, 4))}
    chains = list(dict.fromkeys(entry.type for entry in plan.physical if entry.type is not None))
    pins = [pin for entry in plan.physical for pin in _pins(entry)]
    for _ in range(rng.randint(1, 8)):
        tenant = rng.choice(list(tenants))
        cells = tenants[tenant]
        if pins and rng.random() < 0.3:
            more = replace(cells, pinned=(*cells.pinned, rng.choice(pins)))
        else:
            chain = rng.choice(chains)
            quota = Quota(chain=chain, type=rng.choice(plan.ladder(chain)), cells=rng.randint(1, 3))
            more = replace(cells, quotas=(*cells.quotas, quota))
        attempt = {**tenants, tenant: more}
        try:
            check_cells(Gangs(replace(plan, tenants=attempt)).books)
        except (RotaError, InvariantBroken):  # the latter: pinned cells break up more than their number says
            continue
        tenants = attempt
    return tenants


def _pins(entry: CellEntry) -> list[PinnedId]:
    found = [] if entry.pinned is None else [entry.pinned]
    return found + [pin for child in entry.children or () for pin in _pins(child)]


class Trace:
    """A history in the making."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.plan = random_plan(rng)
        self.gangs = Gangs(self.plan)
        self.specs: dict[PodId, PodSpec] = {}
        self.bound: dict[PodId, Bind] = {}
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
        check_cells(self.gangs.books)
        for group in self.gangs.groups.values():
            assert group.waiting if group.claim.reserves else group.bound, f"group {group.name} has no pods"

    def end(self) -> None:
        """Everyone leaves, everything heals: every promised cell must be there again."""
        for pod, spec in self.specs.items():
            self.gangs.delete(pod, spec)
        for node in sorted(self.bad):
            self.gangs.books.set_healthy(node)
        check_cells(self.gangs.books)
        assert not self.gangs.groups
        for estate in self.gangs.books.forest.estates.values():
            assert all(root.physical is None for roots in estate.roots.values() for root in roots)

    def _arrive(self) -> None:
        rng, forest = self.rng, self.gangs.books.forest
        tenant = rng.choice(list(forest.estates))
        priority = rng.choice((-1, 0, 1, 2, 9))
        pinned = list(forest.estates[tenant].pinned)
        members = {rng.choice((1, 1, 2, 3, 4)): rng.choice((1, 1, 2, 3)) for _ in range(rng.choice((1, 1, 2)))}
        group = GroupId(f"g{self.groups}")
        self.groups += 1
        lazy, ignores = rng.random() < 0.5, rng.random() < 0.6
        leaf_type = CellTypeName(f"G{rng.randint(0, 1)}") if rng.random() < 0.5 else None
        pin = rng.choice(pinned) if pinned and priority >= 0 and rng.random() < 0.3 else None
        for devices, pods in members.items():
            for pod in range(pods):
                self.specs[PodId(f"{group}-{devices}-{pod}")] = PodSpec(
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

    def _schedule_one(self, pod: PodId, spec: PodSpec) -> None:
        rng = self.rng
        nodes = list(self.gangs.books.forest.cells_by_node)
        suggested = None if rng.random() < 0.7 else set(rng.sample(nodes, max(1, len(nodes) // 2)))
        try:
            answer = self.gangs.schedule(pod, spec, rng.choice(list(Phase)), suggested)
        except PodRefused:
            del self.specs[pod]
            return
        if isinstance(answer, Bind) and rng.random() < 0.95:
            self.gangs.commit(pod, spec, answer)
            self.bound[pod] = answer
        elif isinstance(answer, Preempt):
            for victim in answer.victims:
                held = self.gangs.groups[self.specs[victim].group or GroupId(victim)].claim
                assert held.standing < spec.priority, f"{victim} must not yield to {pod}"
            if rng.random() < 0.5:
                for victim in answer.victims:
                    self._delete(victim)

    def _leave(self) -> None:
        if self.specs:
            self._delete(self.rng.choice(list(self.specs)))

    def _delete(self, pod: PodId) -> None:
        self.bound.pop(pod, None)
        self.gangs.delete(pod, self.specs.pop(pod))

    def _turn(self) -> None:
        if self.bad and self.rng.random() < 0.5:
            node = self.rng.choice(sorted(self.bad))
            self.bad.discard(node)
            self.gangs.books.set_healthy(node)
        else:
            node = self.rng.choice(list(self.gangs.books.forest.cells_by_node))
            self.bad.add(node)
            self.gangs.books.set_bad(node)

    def _reconfigure(self) -> None:
        self.plan = replace(self.plan, tenants=random_tenants(self.rng, self.plan))
        self.gangs = Gangs(self.plan)
        for node in sorted(self.bad):
            self.gangs.books.set_bad(node)
        for pod, bind in self.bound.items():
            self.gangs.recover(pod, self.specs[pod], bind)
        alive = self.gangs.books.forest.estates
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
