"""Regrouping: decide for all jobs together which of them share devices, as the matching of Muri does.

A group keeps the devices on which most of its members run. The other members move there. Jobs of no group, and members
for which their group has no room, wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rota.core.engine.draft import Draft
from rota.core.model.job import WHOLE, Job
from rota.core.state.job_record import LiveJob
from rota.mechanisms.colocation.groups import DeviceGroups, DeviceSet
from rota.mechanisms.solvers.weighted_matching import Pair, best_pairs

Group = list[LiveJob]
Weight = Callable[[Sequence[LiveJob], Sequence[LiveJob]], float]
"""Weight of merging two groups; 0 if they must not be merged."""
SameDevices = Callable[[LiveJob, LiveJob], bool]
"""Whether two jobs share their devices already."""
EquivalenceKey = Callable[[Job], tuple[float, ...]]
"""Key of jobs that have the same weight in every group."""


def form(
    jobs: Sequence[LiveJob],
    devices: int,
    most: int,
    weight: Weight,
    together: SameDevices,
    equivalence_key: EquivalenceKey,
) -> list[Group]:
    """Group jobs of equal size so that all groups fit on that many devices; return them in order of precedence.

    `jobs` is sorted by precedence; only as many are considered as fit in groups of `most`. Groups are merged in
    pairs, by maximum weight, until all of them fit or no pair has a weight. Among equal weights, jobs that share
    devices already stay together.
    """
    rank = {live: at for at, live in enumerate(jobs)}
    groups = [[live] for live in _first_within(jobs, devices * most * WHOLE)]
    size = 1
    while size < most and _demand_milli(groups) > devices * WHOLE:
        groups = _merged(groups, devices, most, weight, together, equivalence_key)
        size *= 2
    return sorted(groups, key=lambda group: min(rank[live] for live in group))


def _first_within(jobs: Iterable[LiveJob], room_milli: int) -> list[LiveJob]:
    found = []
    for live in jobs:
        room_milli -= live.job.gpu_milli
        if room_milli < 0:
            break
        found.append(live)
    return found


def _demand_milli(groups: Iterable[Group]) -> int:
    return sum(group[0].job.gpu_milli for group in groups)


def _merged(
    groups: list[Group],
    devices: int,
    most: int,
    weight: Weight,
    together: SameDevices,
    equivalence_key: EquivalenceKey,
) -> list[Group]:
    """Merge the best pairs of groups of equal size once, as many as are needed to fit."""
    excess = _demand_milli(groups) - devices * WHOLE
    left = dict(enumerate(groups))
    for size in sorted({group[0].job.gpu_milli for group in groups}, reverse=True):
        sized = [at for at, group in enumerate(groups) if group[0].job.gpu_milli == size]
        for first, second in _matched([groups[at] for at in sized], most, weight, together, equivalence_key):
            if excess <= 0:
                return list(left.values())
            left[sized[first]] = [*groups[sized[first]], *groups[sized[second]]]
            del left[sized[second]]
            excess -= size
    return list(left.values())


def _matched(
    groups: Sequence[Group], most: int, weight: Weight, together: SameDevices, equivalence_key: EquivalenceKey
) -> list[Pair]:
    """Return the maximum-weight pairs of groups of equal size."""

    def gain(one: _GroupKind, other: _GroupKind) -> float:
        return weight(one.group, other.group) if len(one.group) + len(other.group) <= most else 0.0

    def prefers(one: int, other: int) -> bool:
        return together(groups[one][0], groups[other][0])

    return best_pairs([_GroupKind(group, equivalence_key) for group in groups], gain, prefers)


class _GroupKind:
    """A group that equals all groups whose members have the same equivalence keys."""

    def __init__(self, group: Group, equivalence_key: EquivalenceKey) -> None:
        self.group = group
        self._key = tuple(sorted(equivalence_key(live.job) for live in group))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _GroupKind) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def anchors(formed: Sequence[Group], groups: DeviceGroups) -> list[DeviceSet | None]:
    """Return the devices each group keeps: those of most of its members that no earlier group keeps, else None."""
    taken: set[DeviceSet] = set()
    found: list[DeviceSet | None] = []
    for group in formed:
        members: dict[DeviceSet, int] = {}
        for live in group:
            devices = groups.devices_of(live)
            if devices is not None and devices not in taken:
                members[devices] = members.get(devices, 0) + 1
        best = max(members, key=lambda devices: (members[devices], devices), default=None)
        found.append(best)
        if best is not None:
            taken.add(best)
    return found


def regroup(
    draft: Draft,
    jobs: Iterable[LiveJob],
    formed: Sequence[Group],
    groups: DeviceGroups,
    place: Callable[[LiveJob, DeviceSet | None], DeviceSet | None],
) -> None:
    """Release the jobs that do not stay on their devices, then place the members of each group.

    `place` gives a job the named devices, or any free ones for None, and returns those it got; None if there are none.
    """
    kept = anchors(formed, groups)
    stays = {
        live for group, home in zip(formed, kept, strict=True) for live in group if groups.devices_of(live) == home
    }
    for live in jobs:
        if live not in stays and live.placement is not None:
            draft.release(live)
            groups.rekey(live)
    for group, anchor in zip(formed, kept, strict=True):
        home = anchor
        for live in group:
            if groups.devices_of(live) is None:
                home = place(live, home) or home
