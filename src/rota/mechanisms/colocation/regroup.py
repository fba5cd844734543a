"""Crews: which jobs should share devices with which, formed anew for all of them together.

A crew stays where most of its members are. Whoever was elsewhere comes there; whoever is in no crew, or finds no room
with its own, waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rota.core.engine.draft import Draft
from rota.core.model.job import WHOLE, Job
from rota.core.state.job_record import LiveJob
from rota.mechanisms.colocation.groups import DeviceGroups, Seats
from rota.mechanisms.solvers.weighted_matching import Pair, best_pairs

Crew = list[LiveJob]
Weight = Callable[[Sequence[LiveJob], Sequence[LiveJob]], float]
"""How good it is that two crews become one; 0 if they should not."""
Near = Callable[[LiveJob, LiveJob], bool]
Likeness = Callable[[Job], tuple[float, ...]]


def form(jobs: Sequence[LiveJob], devices: int, most: int, weight: Weight, near: Near, alike: Likeness) -> list[Crew]:
    """Crews of jobs of one size, in order of their first members, so that all find room on so many devices.

    Jobs come in order of priority; no more of them are looked at than there would be room for in full crews. Crews are
    joined two by two, those of greatest weight first, until all have room or none can be joined. Of those that are as
    good, jobs that are `near` each other stay together. Jobs with the same key `alike` weigh the same in any crew.
    """
    rank = {live: at for at, live in enumerate(jobs)}
    crews = [[live] for live in _foremost(jobs, devices * most * WHOLE)]
    size = 1
    while size < most and _demand(crews) > devices * WHOLE:
        crews = _joined(crews, devices, most, weight, near, alike)
        size *= 2
    return sorted(crews, key=lambda crew: min(rank[live] for live in crew))


def _foremost(jobs: Iterable[LiveJob], room_milli: int) -> list[LiveJob]:
    found = []
    for live in jobs:
        room_milli -= live.job.gpu_milli
        if room_milli < 0:
            break
        found.append(live)
    return found


def _demand(crews: Iterable[Crew]) -> int:
    return sum(crew[0].job.gpu_milli for crew in crews)


def _joined(crews: list[Crew], devices: int, most: int, weight: Weight, near: Near, alike: Likeness) -> list[Crew]:
    """One round: the best pairs of crews of one size, as many as are needed."""
    excess = _demand(crews) - devices * WHOLE
    left = dict(enumerate(crews))
    for size in sorted({crew[0].job.gpu_milli for crew in crews}, reverse=True):
        sized = [at for at, crew in enumerate(crews) if crew[0].job.gpu_milli == size]
        for first, second in _matched([crews[at] for at in sized], most, weight, near, alike):
            if excess <= 0:
                return list(left.values())
            left[sized[first]] = [*crews[sized[first]], *crews[sized[second]]]
            del left[sized[second]]
            excess -= size
    return list(left.values())


def _matched(crews: Sequence[Crew], most: int, weight: Weight, near: Near, alike: Likeness) -> list[Pair]:
    """The best pairs of crews of one size."""

    def gain(one: _Kind, other: _Kind) -> float:
        return weight(one.crew, other.crew) if len(one.crew) + len(other.crew) <= most else 0.0

    def meet(one: int, other: int) -> bool:
        return near(crews[one][0], crews[other][0])

    return best_pairs([_Kind(crew, alike) for crew in crews], gain, meet)


class _Kind:
    """A crew, equal to those whose members are alike."""

    def __init__(self, crew: Crew, alike: Likeness) -> None:
        self.crew = crew
        self._key = tuple(sorted(alike(live.job) for live in crew))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Kind) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def anchors(crews: Sequence[Crew], guests: DeviceGroups) -> list[Seats | None]:
    """Where each crew stays: the devices on which most of its members are, unless an earlier crew stays there."""
    taken: set[Seats] = set()
    found: list[Seats | None] = []
    for crew in crews:
        here: dict[Seats, int] = {}
        for live in crew:
            seats = guests.seats(live)
            if seats is not None and seats not in taken:
                here[seats] = here.get(seats, 0) + 1
        best = max(here, key=lambda seats: (here[seats], seats), default=None)
        found.append(best)
        if best is not None:
            taken.add(best)
    return found


def gather(
    draft: Draft,
    jobs: Iterable[LiveJob],
    crews: Sequence[Crew],
    guests: DeviceGroups,
    seat: Callable[[LiveJob, Seats | None], Seats | None],
) -> None:
    """Let crews of these jobs come together: who has to leave first, then crew by crew.

    `seat` gives a job devices, those that are named or any that are free, and says which; None if there are none.
    """
    homes = anchors(crews, guests)
    stays = {live for crew, home in zip(crews, homes, strict=True) for live in crew if guests.seats(live) == home}
    for live in jobs:
        if live not in stays and live.placement is not None:
            draft.release(live)
            guests.rekey(live)
    for crew, anchor in zip(crews, homes, strict=True):
        home = anchor
        for live in crew:
            if guests.seats(live) is None:
                home = seat(live, home) or home
