"""Running gangs, claimed again: after a restart, or under guarantees that have changed.

Nothing that runs is stopped here. What no longer fits its tenant's cells continues without a guarantee.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.core.model.cells import CellTypeName
from rota.core.model.job import OPPORTUNISTIC
from rota.tenancy.cells.accounts import CellAccounts
from rota.tenancy.cells.claims import Claim, Seat
from rota.tenancy.cells.schedule import downgrade
from rota.tenancy.cells.tree import Physical, Virtual


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldDevice:
    """A device that a gang is known to hold, and of which type its tenant's cell around it was, if it was owned."""

    chain: CellTypeName
    node: str
    index: int
    root_type: CellTypeName | None


def recover(accounts: CellAccounts, claim: Claim, held: Sequence[HeldDevice]) -> None:
    """Let a claim hold what its gang is known to hold, with its guarantee if its tenant's cells still allow it."""
    found: list[tuple[Physical, CellTypeName | None]] = []
    for device in held:
        leaf = accounts.forest.find_device(device.chain, device.node, device.index)
        if leaf is not None and leaf.claim is None:
            found.append((leaf, device.root_type))
    if claim.priority > OPPORTUNISTIC and found:
        for at, (leaf, root_type) in enumerate(found):
            virtual = None if root_type is None else _own_cell(accounts, claim, leaf, root_type)
            if virtual is None or not _make_way(accounts, claim, leaf, virtual):
                _lose_guarantee(accounts, claim, [leaf for leaf, _ in found[at:]])
                return
            seat: Seat = (leaf, virtual)
            claim.seats.append(seat)
            accounts.occupy(claim, [seat])
        return
    claim.seats = [(leaf, None) for leaf, _ in found]
    accounts.occupy(claim, claim.seats)


def return_to(accounts: CellAccounts, claim: Claim, seats: Sequence[Seat]) -> bool:
    """Let a claim hold what it held before, unless that has been claimed by another or become unsafe."""
    done: list[Seat] = []
    for leaf, virtual in seats:
        fits = leaf.claim is None
        if fits and virtual is not None:
            accounts.unbind_doomed_around(leaf)
            fits = not virtual.used and _is_way_clear(accounts, leaf, virtual)
        if not fits:
            accounts.vacate(claim, done)
            return False
        accounts.occupy(claim, [(leaf, virtual)])
        done.append((leaf, virtual))
    return True


def _is_way_clear(accounts: CellAccounts, leaf: Physical, virtual: Virtual) -> bool:
    """Whether a device may come to stand for a virtual one without touching what is in use."""
    below: Physical | None = leaf
    above: Virtual | None = virtual
    while above is not None and below is not None and below.virtual is not above:
        if above.used or (below.virtual is not None and below.virtual.used):
            return False
        if above.parent is None:
            return not above.is_pinned and _is_safe_to_bind(accounts, above, below)
        below, above = below.parent, above.parent
    return above is not None and below is not None


def _lose_guarantee(accounts: CellAccounts, claim: Claim, rest: Sequence[Physical]) -> None:
    downgrade(accounts, claim, claim.name)
    more: list[Seat] = [(leaf, None) for leaf in rest]
    claim.seats += more
    accounts.occupy(claim, more)


def _own_cell(accounts: CellAccounts, claim: Claim, leaf: Physical, root_type: CellTypeName) -> Virtual | None:
    """The tenant's virtual device that this device is or could be; one of lower priority if none is idle."""
    accounts.unbind_doomed_around(leaf)
    estate = accounts.forest.estates.get(claim.tenant)
    if estate is None:
        return None
    path = [leaf]
    while path[-1].virtual is None and path[-1].type != root_type:
        parent = path[-1].parent
        if parent is None:
            return None
        path.append(parent)
    top = path.pop()
    virtual = top.virtual
    if virtual is None:
        if claim.pinned is not None:
            return None
        roots = [root for root in estate.roots.get(leaf.chain, ()) if root.level == top.level]
        virtual = _weakest(roots, claim.priority)
    elif virtual.tenant != claim.tenant or (virtual.root.is_pinned and virtual.root is not _pinned(accounts, claim)):
        return None
    while virtual is not None and path:
        below = path.pop()
        virtual = _weakest([part for part in virtual.children if part.may_be(below)], claim.priority)
    return virtual


def _pinned(accounts: CellAccounts, claim: Claim) -> Virtual | None:
    return None if claim.pinned is None else accounts.forest.estates[claim.tenant].pinned.get(claim.pinned)


def _weakest(cells: Sequence[Virtual], priority: int) -> Virtual | None:
    """An unused cell, else the one whose strongest user is the weakest, if that is weaker than `priority`."""
    best: Virtual | None = None
    best_rank = (priority, False)
    for cell in cells:
        rank = (max(cell.used, default=OPPORTUNISTIC - 1), cell.physical is not None)
        if rank < best_rank:
            best, best_rank = cell, rank
    return best


def _make_way(accounts: CellAccounts, claim: Claim, leaf: Physical, virtual: Virtual) -> bool:
    """Let the users of the virtual cell continue without a guarantee; all other guarantees must still hold."""
    below: Physical | None = leaf
    above: Virtual | None = virtual
    while above is not None and below is not None and below.virtual is not above:
        if above.used:
            for user in _users(above):
                if user is claim or user.priority >= claim.priority:
                    return False
                downgrade(accounts, user, claim.name)
        below, above = below.parent, above.parent
    return _is_way_clear(accounts, leaf, virtual)


def _users(cell: Virtual) -> list[Claim]:
    users: dict[Claim, None] = {}
    stack = [cell]
    while stack:
        part = stack.pop()
        stack.extend(part.children)
        if not part.children and part.physical is not None and part.physical.claim is not None:
            users[part.physical.claim] = None
    return list(users)


def _is_safe_to_bind(accounts: CellAccounts, root: Virtual, physical: Physical) -> bool:
    free = accounts.free[root.chain]
    if root.physical is not None:
        accounts.unbind_doomed(root)
    counts = free.counts_without(physical)
    if counts is None:
        return False
    owed = list(accounts.owed[root.chain])
    owed[root.level] -= 1
    return free.is_safe(counts, owed)
