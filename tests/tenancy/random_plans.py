"""Random clusters of cells, regular and irregular, and random changes to them.

Cells may have fewer or more children than their type says, chains differ in height and width, and a machine may have
devices of two types. Promises are drawn so that they can be kept.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from rota.core.errors import RotaError
from rota.core.model.cells import CellEntry, CellPlan, CellType, CellTypeName, PinnedId, Quota, TenantCells
from rota.core.model.job import TenantId
from rota.tenancy.cells.accounts import CellAccounts

_ODD = 0.1
"""How often a cell of an irregular cluster has another number of children than its type says."""


def random_plan(rng: random.Random) -> CellPlan:
    """One to three chains of two to six levels, up to four tenants, some cells pinned; promises that can be kept."""
    types: dict[CellTypeName, CellType] = {}
    chains = [_draw_chain(rng, number, types) for number in range(rng.randint(1, 3))]
    plan = CellPlan(types=types, physical=(), tenants={})
    odd = rng.choice((0.0, 0.0, _ODD))
    for chain in chains:
        for _ in range(rng.randint(1, 3)):
            plan = replace(plan, physical=(*plan.physical, _top(rng, plan, chain, odd)))
    return replace(plan, tenants=random_tenants(rng, plan))


def _draw_chain(rng: random.Random, chain: int, types: dict[CellTypeName, CellType]) -> CellTypeName:
    """New types, from a device up to a top cell."""
    below = CellTypeName(f"G{rng.randint(0, 1)}")
    inside = rng.randint(1, 3)
    for level in range(1, inside + rng.randint(0, 2) + 1):
        name = CellTypeName(f"C{chain}L{level}")
        types[name] = CellType(child=below, children=rng.randint(1, 3), is_node=level == inside)
        below = name
    return below


def _top(rng: random.Random, plan: CellPlan, chain: CellTypeName, odd: float) -> CellEntry:
    """A new top cell; one of its machines may be one that has devices of another type already."""
    top = replace(_cell(rng, plan, chain, odd), type=chain)
    others = [
        node
        for entry in plan.physical
        if entry.type is not None and plan.ladder(entry.type)[0] != plan.ladder(chain)[0]
        for node in machines(plan, entry)
    ]
    taken = [node for entry in plan.physical for node in machines(plan, entry)]
    shared = rng.choice(others) if others and rng.random() < 0.2 else None
    if shared is None or taken.count(shared) > 1:
        return top
    return _renamed(top, next(iter(machines(plan, top))), shared)


def _cell(rng: random.Random, plan: CellPlan, name: CellTypeName, odd: float) -> CellEntry:
    kind = plan.types[name]
    pinned = PinnedId(f"pin{rng.getrandbits(40):x}") if rng.random() < 0.15 else None
    if kind.is_node:
        children = _inside(rng, plan, name, odd, iter(range(1000))).children if odd else None
        return CellEntry(address=f"n{rng.getrandbits(40):x}", pinned=pinned, children=children)
    width = _width(rng, kind, odd)
    return CellEntry(pinned=pinned, children=tuple(_cell(rng, plan, kind.child, odd) for _ in range(width)))


def _inside(rng: random.Random, plan: CellPlan, name: CellTypeName, odd: float, numbers: Iterator[int]) -> CellEntry:
    """A cell inside a node with all of its devices, which have to be numbered where some are missing."""
    if name not in plan.types:
        return CellEntry(address=str(next(numbers)))
    kind = plan.types[name]
    width = _width(rng, kind, odd)
    return CellEntry(children=tuple(_inside(rng, plan, kind.child, odd, numbers) for _ in range(width)))


def _width(rng: random.Random, kind: CellType, odd: float) -> int:
    return max(kind.children + rng.choice((-1, -1, 1)), 1) if rng.random() < odd else kind.children


def machines(plan: CellPlan, entry: CellEntry, name: CellTypeName | None = None) -> Iterator[str]:
    """The machines in a top cell."""
    name = name or entry.type
    assert name is not None, "a top cell says its type"
    if plan.types[name].is_node:
        assert entry.address is not None, "a node has a name"
        yield entry.address
        return
    for child in entry.children or ():
        yield from machines(plan, child, plan.types[name].child)


def _renamed(entry: CellEntry, before: str, after: str) -> CellEntry:
    children = None if entry.children is None else tuple(_renamed(child, before, after) for child in entry.children)
    return replace(entry, address=after if entry.address == before else entry.address, children=children)


# -- changes -------------------------------------------------------------------------------------


def changed_cells(rng: random.Random, plan: CellPlan, gone: list[CellEntry]) -> CellPlan:
    """Other hardware: a top cell leaves, comes, comes back or grows crooked. Nobody is promised anything of it."""
    cells = list(plan.physical)
    match rng.choice(("leave", "come", "return", "grow", "move")):
        case "leave" if len(cells) > 1:
            gone.append(cells.pop(rng.randrange(len(cells))))
        case "return" if gone:
            cells.append(gone.pop(rng.randrange(len(gone))))
        case "grow":
            at = rng.randrange(len(cells))
            cells[at] = _pruned(rng, plan, cells[at])
        case "move" if len(cells) > 1:
            one, other = rng.sample(range(len(cells)), 2)
            here, there = (next(machines(plan, cells[at])) for at in (one, other))
            cells[one], cells[other] = _renamed(cells[one], here, there), _renamed(cells[other], there, here)
        case _:
            top = rng.choice(cells).type
            assert top is not None, "a top cell says its type"
            cells.append(_top(rng, plan, top, rng.choice((0.0, _ODD))))
    after = replace(plan, physical=tuple(cells), tenants={})
    return after if _is_possible(after) else replace(plan, tenants={})


def _pruned(rng: random.Random, plan: CellPlan, entry: CellEntry) -> CellEntry:
    """A top cell without one of its parts, somewhere."""
    assert entry.type is not None, "a top cell says its type"
    kind = plan.types[entry.type]
    if not entry.children or kind.is_node:
        return entry
    at = rng.randrange(len(entry.children))
    children = list(entry.children)
    if len(children) > 1 and rng.random() < 0.5:
        del children[at]
    else:
        children[at] = replace(_pruned(rng, plan, replace(children[at], type=kind.child)), type=None)
    return replace(entry, children=tuple(children))


def _is_possible(plan: CellPlan) -> bool:
    try:
        CellAccounts(plan)
    except RotaError:
        return False
    return True


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
        if _is_possible(replace(plan, tenants=attempt)):
            tenants = attempt
    return tenants


def _pins(entry: CellEntry) -> list[PinnedId]:
    found = [] if entry.pinned is None else [entry.pinned]
    return found + [pin for child in entry.children or () for pin in _pins(child)]
