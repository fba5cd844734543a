"""Victims that count as released, but keep what they hold until a job that is considered could use it.

A search for victims names jobs from the end of the order until the one that needs devices fits. It fits on the nodes
that the last of them leaves; most of the others get back what they had when the walk comes to them. To release them and
to place them again changes nothing then. Until some job could use what they hold, it is only counted as free.
"""

from __future__ import annotations

from rota.core.engine.draft import Draft
from rota.core.model.job import WHOLE
from rota.core.state.job_record import LiveJob
from rota.mechanisms.ordering.index import Index
from rota.mechanisms.ordering.lanes import Entry
from rota.mechanisms.ordering.needs import Need
from rota.mechanisms.ordering.node_yields import Key
from rota.mechanisms.ordering.refusals import has_room

_NEAR = 1e-9
"""Relative difference between the first numbers of two keys above which their order is beyond doubt."""
_DEVICE_BITS = 20
"""Bits of the number of a device in a key of node and device."""


class NamedVictims:
    """The victims of one walk that were named and not released.

    A look at nodes, as in `refusals`, counts what they hold for every job that comes before them, so that a job which
    is refused then would be refused after their release, too. Whenever a job is not, they are released.
    """

    __slots__ = ("_draft", "_index", "_keys", "_lent")

    def __init__(self, draft: Draft, index: Index) -> None:
        self._draft = draft
        self._index = index
        self._keys: dict[LiveJob, Key] = {}
        """Their keys, the first in order first: as the walk comes to them."""
        self._lent: dict[int, int] = {}
        """Thousandths of fractionally held devices that are counted as free, by node and device."""

    def name(self, entries: list[Entry]) -> None:
        """Count victims, the last in order first, as released."""
        for key, live in reversed(entries):
            self._keys[live] = key
            self._count(live, 1)

    def take_back(self, live: LiveJob) -> bool:
        """Let a victim have what it had, if it was named and not released; return whether it was."""
        if self._keys.pop(live, None) is None:
            return False
        self._count(live, -1)
        return True

    def forget(self) -> None:
        """Let all victims have what they had."""
        for live in list(self._keys):
            self.take_back(live)

    def before(self, live: LiveJob, key: Key) -> None:
        """Release all before a waiting job is considered that takes only what is free, or that rounding puts here."""
        if self._keys and not (live.job.preempts and self._is_beyond_doubt(key)):
            self.release_all()

    def _is_beyond_doubt(self, key: Key) -> bool:
        """Whether all come after a key, whatever is rounded where keys change with time."""
        if not self._index.holders.are_moving:
            return True
        first = next(iter(self._keys.values()))
        return first[0] - key[0] > _NEAR * (abs(first[0]) + abs(key[0]))

    def release_all(self) -> None:
        """Release every victim."""
        if self._keys:
            self._release(list(self._keys))

    def release_for(self, live: LiveJob, key: Key) -> None:
        """Release the victims on whose nodes a job that lost its devices, and that they come after, would find room."""
        if not self._keys:
            return
        role = live.job.roles[0]
        draft, holders = self._draft, self._index.holders
        if role.count > 1 or live.job.exclusive or not draft.allocator.keeps_refusal(live.job):
            self.release_all()
            return
        if holders.are_moving:  # a victim comes after it, but perhaps by no more than rounding
            key = (key[0] - _NEAR * (abs(key[0]) + draft.now_s), *key[1:])
        need, inventory = Need(role), draft.inventory
        nodes = roomy = 0
        for victim in self._keys:
            nodes |= holders.held(victim).nodes
        while nodes:
            low = nodes & -nodes
            nodes ^= low
            if has_room(low.bit_length() - 1, need, key, holders, inventory, draft.now_s, True):
                roomy |= low
        if roomy:
            self._release(holders.on_nodes(list(self._keys), roomy))

    def _release(self, victims: list[LiveJob]) -> None:
        for live in victims:  # all of them first: what is counted of a device changes with each that holds part of it
            self.take_back(live)
        for live in victims:
            self._draft.release(live)
            place = self._index.places[live]
            self._index.holders.remove(place.entry, place.slope)

    def _count(self, live: LiveJob, sign: int) -> None:
        """Count what a victim holds as free, or no longer; the inventory's sums by device type are what is counted."""
        inventory, lent = self._draft.inventory, self._lent
        for node, claim in self._index.holders.held(live).claims.items():
            account = inventory.nodes[node]
            if not account.usable:
                continue
            pool = inventory.pools[account.pool]
            pool.free += sign * claim.devices.bit_count()
            shares = claim.shares
            if shares is None:
                continue
            for device, milli in shares.items():
                at = node << _DEVICE_BITS | device
                others = lent.get(at, 0)
                before = account.shares[device][0] + others
                after = before + sign * milli
                lent[at] = others + sign * milli
                pool.free += (after == WHOLE) - (before == WHOLE)
                pool.partial_milli += after % WHOLE - before % WHOLE
