"""Jobs become contenders: where each could be placed at all, and how fast it would be there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rota.core.engine.draft import Draft
from rota.core.model.job import DeviceType
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.mechanisms.rounds.elastic_shares import elastic_contender, sizes_of
from rota.mechanisms.rounds.multi_type import may_spread, spread_out
from rota.mechanisms.rounds.round_placement import Drawn, RoundPlacement, in_use
from rota.mechanisms.rounds.rule import Contender, Freedoms, contender, tasks_of_party
from rota.perf.speed.model import SpeedModel


@dataclass(frozen=True, slots=True)
class Stock:
    """What there is to share out: the nodes in use, by type the devices of all of them, and those of the largest."""

    nodes: tuple[int, ...] = ()
    devices: tuple[int, ...] = ()
    largest: tuple[int, ...] = ()

    @classmethod
    def of(cls, inventory: Inventory) -> Stock:
        """What an inventory has, free or not."""
        count, largest = [0] * len(inventory.pools), [0] * len(inventory.pools)
        nodes = tuple(index for index, books in enumerate(inventory.nodes) if in_use(books))
        for index in nodes:
            books = inventory.nodes[index]
            count[books.pool] += books.node.devices
            largest[books.pool] = max(largest[books.pool], books.node.devices)
        return cls(nodes, tuple(count), tuple(largest))


class ContenderBuilder:
    """Makes contenders of jobs, on the types of a stock."""

    def __init__(self, speed: SpeedModel, freedoms: Freedoms, types: Sequence[DeviceType], stock: Stock) -> None:
        self._speed = speed
        self._freedoms = freedoms
        self._types = types
        self._stock = stock

    def admit(self, draft: Draft, live: LiveJob, seating: RoundPlacement) -> Contender:
        """A job with its speeds, 0 where it could not be placed; at all its sizes, if they are looked at."""
        sizes = sizes_of(live.job) if self._freedoms.elastic else []
        able_at = {tasks: seating.able(draft, live, tasks) for tasks in sizes}
        rooms = seating.rooms(draft, live) if self._freedoms.cross_type and may_spread(live.job) else []
        return self._made(live, seating.able(draft, live), able_at, rooms)

    def _made(
        self, live: LiveJob, able: Sequence[bool], able_at: Mapping[int, Sequence[bool]], rooms: Sequence[int]
    ) -> Contender:
        if able_at:
            made = elastic_contender(live, self._speed, self._types, able_at, self._stock.largest)
        else:
            made = contender(live, self._speed, self._types, able)
        return spread_out(made, self._speed, self._types, rooms) if rooms else made

    def again(self, known: Contender) -> Contender:
        """The same job, when speeds are known better."""
        return self._made(known.live, known.able, dict(known.able_at), known.rooms)

    def learn(self, drawn: Sequence[Drawn], jobs: Mapping[int, Contender], seen: Mapping[int, float]) -> bool:
        """Correct speeds by those that were seen, by number of job, in a round; whether any may have changed.

        Only jobs at their usual size on one type count, and pairs of one size: of others nothing is kept.
        """
        changed = False
        for party, at, parts in drawn:
            members = [jobs[seq].live.job for seq in party if seq in jobs]
            is_usual = not parts and not tasks_of_party(party) and len({job.gpu_milli for job in members}) == 1
            if len(members) < len(party) or not is_usual:
                continue
            for job, seq, other in zip(members, party, members[::-1], strict=True):
                beside = other if len(members) > 1 else None
                changed |= self._speed.observe(job, self._types[at], seen.get(seq, 0.0), beside)
        return self._speed.refit() or changed

    @staticmethod
    def memory(known: Contender) -> Any:
        """What must be remembered of a job to make the same contender of it without a look at the cluster."""
        return [known.seq, list(known.able), list(known.able_at), list(known.rooms)]

    def recall(self, memory: Any, jobs: Mapping[int, LiveJob]) -> Contender:
        """The contender that `memory` was taken of."""
        seq, able, able_at, rooms = memory
        return self._made(jobs[seq], able, dict(able_at), rooms)
