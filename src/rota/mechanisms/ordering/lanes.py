"""Sorted jobs: waiting jobs in lanes of equivalent ones, and holders of devices in the order of preemption."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Hashable

from rota.core.messages.reasons import ReasonCode
from rota.core.model.placement import Placement
from rota.core.state.job_record import LiveJob
from rota.mechanisms.ordering.needs import Need
from rota.mechanisms.ordering.node_yields import Key, NodeClaim, NodeSum, NodeYield, claims_of

Entry = tuple[Key, LiveJob]
"""A key (which ends in the job's seq, so entries never tie) and its job."""


COMPACT_AT = 256
"""How many jobs leave a lane's front before its list is compacted."""


def moved(key: Key, slope: float, seconds: float) -> Key:
    """A key with its first number advanced along its slope."""
    return (key[0] + slope * seconds, *key[1:])


def rounding(key: Key, slope: float, now_s: float) -> float:
    """The rounding error of an advanced key: a few units in the last place of the largest number involved."""
    return 4 * math.ulp(abs(key[0]) + abs(slope) * now_s) if slope else 0.0


def is_beyond(moved_key: Key, slope: float, now_s: float, key: Key) -> bool:
    """Whether an advanced key comes after another; within the rounding error, the rest of the key decides.

    Otherwise two jobs of equal remaining time would each look slightly shorter while waiting, and swap forever.
    """
    if slope and abs(moved_key[0] - key[0]) <= rounding(moved_key, slope, now_s):
        return moved_key[1:] > key[1:]
    return moved_key > key


class Lane:
    """Waiting jobs that are equivalent: if the first can't start, none can. Keys are stored as at time 0.

    Jobs leave mostly from the front, so the front is an offset; the list is not shifted for each of them.
    """

    __slots__ = (
        "_entries",
        "_first",
        "_scattered_from_s",
        "_scattered_s",
        "expected_s",
        "group",
        "is_counted",
        "is_uniform",
        "need",
        "refusals",
        "refused_code",
        "roomless",
        "slope",
    )

    def __init__(self, slope: float, group: Hashable, *, is_uniform: bool) -> None:
        self.slope = slope
        self.group = group
        self.is_uniform = is_uniform
        """Whether all its jobs need the same."""
        self.is_counted: bool | None = None
        """Whether the number of free devices says that they are short of devices, once that was asked."""
        self._entries: list[Entry] = []
        self._first = 0
        self.expected_s: list[float] = []
        """Expected run times, sorted; kept only where there are reservations."""
        self._scattered_s = 0.0
        self._scattered_from_s = -1.0
        """Since when its first job finds enough devices, but not together; below 0 if that is not so."""
        self.need: Need | None = None
        """What a task of its jobs needs of a node, once that was asked."""
        self.refused_code: ReasonCode | None = None
        """Why, where the number of free devices would have sufficed."""
        self.refusals: list[tuple[Key, int]] = []
        """The key, as at time 0, with which no devices were found, free or by preemption, and when in the growth log,
        until another attempt; then keys with which there was no room on the nodes logged later, and when."""
        self.roomless: list[tuple[Key, int]] = []
        """Keys with which no node had room, and when. In both lists keys ascend, and so do the moments: what holds for
        a key holds for later ones."""

    @property
    def is_scattered(self) -> bool:
        """Whether its first job finds enough devices, but not together."""
        return self._scattered_from_s >= 0

    def scattered_s(self, now_s: float) -> float:
        """For how long its first jobs have found enough devices, but not together."""
        return self._scattered_s + (now_s - self._scattered_from_s if self.is_scattered else 0.0)

    def set_scattered(self, is_scattered: bool, now_s: float) -> None:
        """Record whether its first job finds enough devices, but not together."""
        self._scattered_s = self.scattered_s(now_s)
        self._scattered_from_s = now_s if is_scattered else -1.0

    def __len__(self) -> int:
        return len(self._entries) - self._first

    @property
    def head(self) -> Entry:
        """The first job, with its key."""
        return self._entries[self._first]

    def at(self, position: int) -> Entry:
        """The job at a position, the first being 0."""
        return self._entries[self._first + position]

    def key_now(self, now_s: float) -> Key:
        """The first job's key now."""
        key = self._entries[self._first][0]
        return moved(key, self.slope, now_s) if self.slope else key

    def add(self, entry: Entry) -> bool:
        """Insert a job in order; return whether it is the first."""
        entries = self._entries
        if len(entries) > self._first and entry > entries[-1]:
            entries.append(entry)
            return False
        insort(entries, entry, lo=self._first)
        return entries[self._first][1] is entry[1]

    def remove(self, entry: Entry) -> bool:
        """Remove a job; return whether it was the first."""
        entries, first = self._entries, self._first
        if entries[first][1] is not entry[1]:
            del entries[bisect_left(entries, entry, lo=first)]
            return False
        self._first = first = first + 1
        if first == len(entries) or (first >= COMPACT_AT and 2 * first > len(entries)):
            del entries[:first]
            self._first = 0
        return True

    def expect(self, seconds: float) -> None:
        """Record the expected run time of a job that joined."""
        insort(self.expected_s, seconds)

    def no_longer_expect(self, seconds: float) -> None:
        """Drop the expected run time of a job that left."""
        del self.expected_s[bisect_left(self.expected_s, seconds)]


class Ranked:
    """Jobs in the order of their keys, which lie apart: a search among pairs would compare equal keys twice."""

    __slots__ = ("jobs", "keys")

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self.jobs: list[LiveJob] = []

    def add(self, entry: Entry) -> None:
        """Insert a job in order."""
        key, live = entry
        at = bisect_left(self.keys, key)
        self.keys.insert(at, key)
        self.jobs.insert(at, live)

    def remove(self, entry: Entry) -> None:
        """Remove a job."""
        at = bisect_left(self.keys, entry[0])
        del self.keys[at]
        del self.jobs[at]


class Held:
    """What one job holds, by node."""

    __slots__ = ("claims", "nodes", "placement", "with_devices")

    def __init__(self, placement: Placement | None, claims: dict[int, NodeClaim]) -> None:
        self.placement = placement
        """What it held when it was entered."""
        self.claims = claims
        nodes = with_devices = 0
        for node, claim in claims.items():
            nodes |= 1 << node
            if claim.devices or claim.shares is not None:
                with_devices |= 1 << node
        self.nodes = nodes
        """The nodes, as a bit set."""
        self.with_devices = with_devices
        """Those of them on which it holds devices."""


class Holders:
    """Jobs that hold devices; those last in order are preempted first."""

    __slots__ = ("_by_node", "_by_slope", "_held", "_idle")

    def __init__(self) -> None:
        self._by_slope: dict[float, Ranked] = {}
        self._by_node: dict[int, list[NodeYield]] = {}
        """What they would give back of each node, by slope."""
        self._held: dict[LiveJob, Held] = {}
        self._idle: dict[int, NodeSum] = {}
        """By node, the sum over no jobs."""

    def add(self, entry: Entry, slope: float) -> int:
        """Add a job that holds devices; return its nodes as a bit set."""
        ranked = self._by_slope.get(slope)
        if ranked is None:
            ranked = self._by_slope[slope] = Ranked()
        ranked.add(entry)
        live = entry[1]
        held = self._held[live] = Held(live.placement, claims_of(live, entry[0], slope))
        for node, claim in held.claims.items():
            self._yield_of(node, slope).add(claim)
        return held.nodes

    def _yield_of(self, node: int, slope: float) -> NodeYield:
        """What the holders of a node whose keys move along a slope would give back."""
        found = self._by_node.get(node)
        if found is None:
            found = self._by_node[node] = []
        for given in found:
            if given.slope == slope:
                return given
        made = NodeYield(slope)
        found.append(made)
        return made

    def held(self, live: LiveJob) -> Held:
        """What a job that holds devices holds."""
        return self._held[live]

    def on_nodes(self, jobs: list[LiveJob], nodes: int) -> list[LiveJob]:
        """The jobs that hold something of some nodes, or of a node on which another of them holds something."""
        while True:
            found = []
            reached = nodes
            for live in jobs:
                mine = self._held[live].nodes
                if mine & nodes:
                    found.append(live)
                    reached |= mine
            if reached == nodes:
                return found
            nodes = reached

    def yields(self, node: int) -> list[NodeYield]:
        """What the jobs that hold something of a node would give back, by slope."""
        found = self._by_node.get(node)
        return [] if found is None else found

    def nothing(self, node: int) -> NodeSum:
        """What a node has free if no job leaves it."""
        found = self._idle.get(node)
        if found is None:
            found = self._idle[node] = NodeSum()
        return found

    def remove(self, entry: Entry, slope: float) -> None:
        """Remove a job that holds nothing any more."""
        for node, claim in self._held.pop(entry[1]).claims.items():
            given = self._yield_of(node, slope)
            given.remove(claim)
            if not given.keys:
                self._by_node[node].remove(given)
        ranked = self._by_slope[slope]
        ranked.remove(entry)
        if not ranked.keys:
            del self._by_slope[slope]

    @property
    def are_moving(self) -> bool:
        """Whether some of their keys change with time."""
        return len(self._by_slope) > 1 or 0.0 not in self._by_slope

    def last_key(self, now_s: float) -> Key | None:
        """An upper bound, rounding included, on the key of the job that would be preempted first."""
        last: Key | None = None
        for slope, ranked in self._by_slope.items():
            key = ranked.keys[-1]
            if slope:
                key = moved(key, slope, now_s)
                key = (key[0] + rounding(key, slope, now_s), *key[1:])
            if last is None or key > last:
                last = key
        return last

    def behind(self, key: Key, now_s: float) -> Behind:
        """Jobs whose key comes after the given one, the last first. The index must not change meanwhile."""
        return Behind(list(self._by_slope.items()), key, now_s)


class Behind:
    """Goes through the holders that come after a key, the last first."""

    __slots__ = ("_at", "_key", "_now_s", "_ranked", "_slopes")

    def __init__(self, by_slope: list[tuple[float, Ranked]], key: Key, now_s: float) -> None:
        self._key = key
        self._now_s = now_s
        self._slopes = [slope for slope, _ in by_slope]
        self._ranked = [ranked for _, ranked in by_slope]
        self._at = [len(ranked.keys) - 1 for ranked in self._ranked]
        """By slope, the last that was not returned yet."""

    def take(self) -> Entry | None:
        """The next holder with its key as of now; None after the last."""
        now_s = self._now_s
        chosen = -1
        last: Key | None = None
        for which, at in enumerate(self._at):
            if at < 0:
                continue
            key, slope = self._ranked[which].keys[at], self._slopes[which]
            if slope:
                key = moved(key, slope, now_s)
            if last is None or key > last:
                chosen, last = which, key
        if last is None or not is_beyond(last, self._slopes[chosen], now_s, self._key):
            self._at = []
            return None
        at = self._at[chosen]
        self._at[chosen] = at - 1
        return last, self._ranked[chosen].jobs[at]
