"""Jobs as share rules see them: the types on which each can be placed, and its speed there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rota.core.engine.draft import Draft
from rota.core.model.job import DeviceType
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.mechanisms.rounds.elastic_shares import elastic_round_job, sizes_of
from rota.mechanisms.rounds.multi_type import may_spread, spread_out
from rota.mechanisms.rounds.round_placement import RoundPlacement, Selected, is_schedulable
from rota.mechanisms.rounds.rule import RoundFeatures, RoundJob, round_job, tasks_of_contender
from rota.perf.speed.model import SpeedModel


@dataclass(frozen=True, slots=True)
class RoundCapacity:
    """What rounds divide: the schedulable nodes and, by type, all devices and those of the largest node."""

    nodes: tuple[int, ...] = ()
    devices: tuple[int, ...] = ()
    largest: tuple[int, ...] = ()

    @classmethod
    def of(cls, inventory: Inventory) -> RoundCapacity:
        """The capacity of an inventory, free or not."""
        count, largest = [0] * len(inventory.pools), [0] * len(inventory.pools)
        nodes = tuple(index for index, account in enumerate(inventory.nodes) if is_schedulable(account))
        for index in nodes:
            account = inventory.nodes[index]
            count[account.pool] += account.node.devices
            largest[account.pool] = max(largest[account.pool], account.node.devices)
        return cls(nodes, tuple(count), tuple(largest))


class RoundJobBuilder:
    """Builds a `RoundJob` for each job, for the types of a capacity."""

    def __init__(
        self, speed: SpeedModel, features: RoundFeatures, types: Sequence[DeviceType], capacity: RoundCapacity
    ) -> None:
        self._speed = speed
        self._features = features
        self._types = types
        self._capacity = capacity

    def admit(self, draft: Draft, live: LiveJob, placement: RoundPlacement) -> RoundJob:
        """The job with its speeds, 0 where it can't be placed; at all its sizes where the policy decides them."""
        sizes = sizes_of(live.job) if self._features.elastic else []
        able_at = {tasks: placement.able(draft, live, tasks) for tasks in sizes}
        rooms = placement.rooms(draft, live) if self._features.cross_type and may_spread(live.job) else []
        return self._made(live, placement.able(draft, live), able_at, rooms)

    def _made(
        self, live: LiveJob, able: Sequence[bool], able_at: Mapping[int, Sequence[bool]], rooms: Sequence[int]
    ) -> RoundJob:
        if able_at:
            made = elastic_round_job(live, self._speed, self._types, able_at, self._capacity.largest)
        else:
            made = round_job(live, self._speed, self._types, able)
        return spread_out(made, self._speed, self._types, rooms) if rooms else made

    def again(self, known: RoundJob) -> RoundJob:
        """The same job with the speeds known now."""
        return self._made(known.live, known.able, dict(known.able_at), known.rooms)

    def learn(self, selected: Sequence[Selected], jobs: Mapping[int, RoundJob], seen: Mapping[int, float]) -> bool:
        """Correct speeds by those observed in a round, by job number; return whether any may have changed.

        Only jobs at their usual size on one type count, and pairs of equal size.
        """
        changed = False
        for contender, at, parts in selected:
            members = [jobs[seq].live.job for seq in contender if seq in jobs]
            is_usual = not parts and not tasks_of_contender(contender) and len({job.gpu_milli for job in members}) == 1
            if len(members) < len(contender) or not is_usual:
                continue
            for job, seq, other in zip(members, contender, members[::-1], strict=True):
                beside = other if len(members) > 1 else None
                changed |= self._speed.observe(job, self._types[at], seen.get(seq, 0.0), beside)
        return self._speed.refit() or changed

    @staticmethod
    def memory(known: RoundJob) -> Any:
        """What must be remembered of a job to make the same round_job of it without a look at the cluster."""
        return [known.seq, list(known.able), list(known.able_at), list(known.rooms)]

    def recall(self, memory: Any, jobs: Mapping[int, LiveJob]) -> RoundJob:
        """The round_job that `memory` was taken of."""
        seq, able, able_at, rooms = memory
        return self._made(jobs[seq], able, dict(able_at), rooms)
