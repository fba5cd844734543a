"""The invariants of cells: recount everything from the claims and compare it with the accounts.

Slow on purpose. Safety is among them: whatever happened, every tenant can still be given all cells it owns.
"""

from __future__ import annotations

from collections.abc import Iterator

from rota.core.errors import InvariantBroken
from rota.core.model.cells import LEAF_LEVEL
from rota.core.model.job import OPPORTUNISTIC
from rota.tenancy.cells.accounts import CellAccounts
from rota.tenancy.cells.build import Chain
from rota.tenancy.cells.claims import Claim
from rota.tenancy.cells.tree import FREE, Cell, Physical, Virtual, devices_of, virtual_devices_of


def check_cells(accounts: CellAccounts) -> None:
    """Raise `InvariantBroken`, naming the fault, unless the accounts are consistent and all guarantees hold."""
    accounts.settle()
    for chain in accounts.forest.chains.values():
        for top in chain.tops:
            for cell in _all(top):
                _check_physical(cell)
        _check_free(accounts, chain)
    for estate in accounts.forest.estates.values():
        for roots in (*estate.roots.values(), list(estate.pinned.values())):
            for root in roots:
                for part in _all_virtual(root):
                    _check_virtual(part)
                _check_root(accounts, root)
    _check_claims(accounts)


def _must(holds: bool, cell: Cell, what: str) -> None:
    if not holds:
        raise InvariantBroken(f"cell {cell.address}: {what}")


def _all(cell: Physical) -> Iterator[Physical]:
    yield cell
    for child in cell.children:
        yield from _all(child)


def _all_virtual(cell: Virtual) -> Iterator[Virtual]:
    yield cell
    for child in cell.children:
        yield from _all_virtual(child)


def _check_physical(cell: Physical) -> None:
    bad = sum(1 for child in cell.children if child.bad)
    _must(cell.level == LEAF_LEVEL or cell.bad == bad, cell, f"{cell.bad} of its parts count as bad, {bad} are")
    used: dict[int, int] = {}
    for leaf in devices_of(cell):
        _must((leaf.claim is None) == (leaf.priority == FREE), leaf, "its holder and its priority differ")
        if leaf.claim is not None:
            used[leaf.priority] = used.get(leaf.priority, 0) + 1
    _must(cell.used == used, cell, f"it counts {cell.used} devices in use, there are {used}")
    if cell.virtual is not None:
        _must(cell.virtual.physical is cell, cell, "it is bound to a cell that is not bound to it")
    if cell.is_listed:
        _must(cell.parent is None or not cell.parent.is_free_territory, cell, "it is part of a larger free cell")
        for part in _all(cell):
            _must(part.virtual is None, part, "it is free and bound")
        _must(cell.is_whole, cell, "it is free and lacks parts")
        siblings = cell.parent.children if cell.parent is not None and cell.parent.is_whole else ()
        _must(not siblings or not all(s.is_listed for s in siblings), cell, "it should have merged with its siblings")


def _check_virtual(cell: Virtual) -> None:
    used: dict[int, int] = {}
    for leaf in virtual_devices_of(cell):
        if leaf.priority != FREE:
            used[leaf.priority] = used.get(leaf.priority, 0) + 1
            _must(leaf.physical is not None and leaf.physical.priority == leaf.priority, leaf, "it is held nowhere")
    _must(cell.used == used, cell, f"it counts {cell.used} devices in use, there are {used}")
    _must(OPPORTUNISTIC not in used, cell, "it is held without a guarantee")
    if cell.physical is None:
        _must(not used, cell, "it is used and unbound")
        return
    _must(cell.physical.virtual is cell, cell, "it is bound to a cell that is not bound to it")
    _must(cell.physical.level == cell.level, cell, "it is bound to a cell of another level")
    _must(cell.may_be(cell.physical), cell, "it is bound to another cell than the one of its shape")
    _must(cell.twin is not None or cell.physical.is_whole, cell, "it is bound to a cell that lacks parts")
    if cell.parent is not None:
        _must(cell.parent.physical is cell.physical.parent, cell, "it is bound outside of what it is part of")
        _must(bool(used) or bool(cell.physical.bad), cell, "it is bound without being used or bad")


def _check_root(accounts: CellAccounts, root: Virtual) -> None:
    if root.physical is None:
        _must(not root.is_pinned, root, "it is pinned and unbound")
        return
    _must(not root.physical.is_free_territory, root, "it is bound to a free cell")
    needed = root.is_pinned or bool(root.used) or bool(root.physical.bad)
    _must(needed, root, "it is bound without being used, bad or pinned")


def _check_free(accounts: CellAccounts, chain: Chain) -> None:
    free = accounts.free[chain.name]
    left, bad = [0] * (chain.top_level + 1), [0] * (chain.top_level + 1)
    for top in chain.tops:
        for cell in _all(top):
            if cell.is_free_territory:
                left[cell.level] += 1
                bad[cell.level] += 1 if cell.bad else 0
    top = chain.tops[0]
    _must(free.left == left, top, f"{free.left} cells count as free by level, {left} are")
    _must(free.bad == bad, top, f"{free.bad} free cells count as bad by level, {bad} are")
    owed = [0] * (chain.top_level + 1)
    for estate in accounts.forest.estates.values():
        for root in estate.roots.get(chain.name, ()):
            owed[root.level] += 1 if root.physical is None else 0
    _must(accounts.owed[chain.name] == owed, top, f"{accounts.owed[chain.name]} cells count as owed, {owed} are")
    _must(free.is_safe(free.counts(), owed), top, f"free cells {free.counts()} can't cover the guaranteed {owed}")


def _check_claims(accounts: CellAccounts) -> None:
    seats: dict[Physical, Claim] = {}
    for device in accounts.forest.devices.values():
        if device.claim is None:
            continue
        mine = [virtual for leaf, virtual in device.claim.seats if leaf is device]
        _must(len(mine) == 1, device, f"it is not among the devices of {device.claim.name}, which holds it")
        _must(device not in seats, device, "it is held twice")
        seats[device] = device.claim
        if mine[0] is not None:
            _must(device.virtual is mine[0], device, "it stands for another virtual device than its holder's")
            _must(mine[0].tenant == device.claim.tenant, device, "its holder's tenant does not own it")
