"""Where the parties of a round sit: who stays on a type keeps its devices, then the others find theirs."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from rota.core.cluster import Cluster
from rota.core.inventory import Inventory
from rota.core.live import LiveJob
from rota.core.model import WHOLE, DeviceType
from rota.core.placement import Placement, packed, same_devices, tasks_of
from rota.core.policy import Draft
from rota.core.reasons import Reason
from rota.mechanisms.probe import narrowed
from rota.mechanisms.seating import fewer
from rota.mechanisms.shares import Contender, Party, members_of, tasks_of_party

_RELAXED_S = 1e300
"""A moment by which every locality that ever relaxes has done so."""
HALF = WHOLE // 2
"""What each of two packed jobs holds of a device."""
Drawn = tuple[Party, int]
"""A party and the type that it runs on in a round."""


@dataclass(slots=True)
class _Try:
    """One way to seat a round: who sits, and who found no place and why."""

    seated: list[Drawn]
    failed: dict[Drawn, Reason]


class Seating:
    """Finds devices for parties. Remembers, for every job and type, the job as if it had asked for just that type."""

    def __init__(self, types: Sequence[DeviceType], jobs: Mapping[int, Contender]) -> None:
        self._types = types
        self._empty: Inventory | None = None
        self._verdicts: dict[Hashable, bool] = {}
        self._jobs = jobs
        self._probes: dict[tuple[int, int, int], LiveJob] = {}
        self.relaxes_s = math.inf
        """When somebody who found no place now asks for less."""

    def forget(self, seqs: set[int]) -> None:
        """Jobs are gone."""
        self._probes = {key: probe for key, probe in self._probes.items() if key[0] not in seqs}

    def able(self, draft: Draft, live: LiveJob, tasks: int = 0) -> list[bool]:
        """By type, whether a job could be placed if it had the cluster for itself, once its wishes have relaxed.

        With `tasks`, had it asked for so many of them.
        """
        if self._empty is None:
            self._empty = _vacated(draft.inventory)
        able = []
        for at in range(len(self._types)):
            probe = self._probe(live, at, tasks)
            key = (at, draft.allocator.shape(probe))
            if key not in self._verdicts:
                offered = draft.allocator.offer(probe, self._empty, _RELAXED_S)
                self._verdicts[key] = not isinstance(offered, Reason)
            able.append(self._verdicts[key])
        return able

    def seat(self, draft: Draft, drawn: Sequence[Drawn]) -> list[Drawn]:
        """Everyone gets up and sits down again; who really sits where.

        Whoever finds no place because others kept theirs is asked first the second time: otherwise a job that
        needs a whole node could be drawn round after round and never run.
        """
        before: dict[int, Placement] = {}
        for seq, job in self._jobs.items():
            if job.live.placement is not None and job.live.stopping is None:
                before[seq] = job.live.placement
                draft.release(job.live)
        able = [
            (party, at)
            for party, at in drawn
            if all(self._jobs[seq].live.stopping is None for seq in members_of(party))
        ]
        mark = draft.mark()
        found = self._try(draft, [], able, before)
        if found.failed and found.seated:
            draft.undo(mark)
            found = self._try(draft, list(found.failed), able, before)
        self.relaxes_s = math.inf
        for (party, at), reason in found.failed.items():
            draft.because(self._jobs[party[0]].live, reason)
            probe = self._probe(self._jobs[party[0]].live, at, self._tasks(party))
            _, relaxes_s = draft.allocator.stage(probe, draft.now_s)
            self.relaxes_s = min(self.relaxes_s, relaxes_s)
        return found.seated

    def _try(
        self, draft: Draft, first: Sequence[Drawn], drawn: Sequence[Drawn], before: Mapping[int, Placement]
    ) -> _Try:
        found = _Try([], {})
        for party, at in first:
            self._find_place(draft, party, at, found)
        waiting = [each for each in drawn if each not in first]
        movers = [(party, at) for party, at in waiting if not self._sit_down(draft, party, at, before, found)]
        for party, at in movers:
            self._find_place(draft, party, at, found)
        return found

    def _sit_down(self, draft: Draft, party: Party, at: int, before: Mapping[int, Placement], found: _Try) -> bool:
        """Back to the devices that one of the party had, if they are of the type and nobody took them."""
        kind = self._types[at]
        for seq in members_of(party):
            held = self._resized(before.get(seq), seq, party)
            if held is None or draft.inventory.nodes[held[0].node].node.device_type != kind:
                continue
            job = self._jobs[seq].live.job
            if self._jobs[seq].shape is not None:
                held = packed(held, WHOLE)
            if draft.inventory.is_free(held, job.roles, job.exclusive, back=True):
                self._take(draft, party, at, held, found)
                return True
        return False

    def _resized(self, held: Placement | None, seq: int, party: Party) -> Placement | None:
        """What a job held, or the part of it that an elastic job keeps if it is to have fewer tasks."""
        job = self._jobs[seq].live.job
        if held is None or job.elastic is None:
            return held
        tasks = self._tasks(party) or job.roles[0].count
        if tasks_of(held) <= tasks or job.roles[0].is_fraction:
            return held if tasks_of(held) == tasks else None
        return fewer(held, tasks, job.roles[0].device_milli // WHOLE)

    def _tasks(self, party: Party) -> int:
        """With how many tasks the first of a party runs, if not as it asks for."""
        return tasks_of_party(party) or self._jobs[party[0]].tasks

    def _find_place(self, draft: Draft, party: Party, at: int, found: _Try) -> None:
        offered = draft.offer(self._probe(self._jobs[party[0]].live, at, self._tasks(party)))
        if isinstance(offered, Reason):
            found.failed[party, at] = offered
        else:
            self._take(draft, party, at, offered, found)

    def _take(self, draft: Draft, party: Party, at: int, place: Placement, found: _Try) -> None:
        """Both of a pair on the same devices, or its first alone where the other finds too little of something else."""
        one = self._jobs[party[0]].live
        if len(members_of(party)) > 1:
            half, other = packed(place, HALF), self._jobs[party[1]].live
            mark = draft.mark()
            draft.assign_offered(one, half)
            if draft.inventory.is_free(half, other.job.roles, back=True):
                draft.assign_offered(other, half)
                found.seated.append((party, at))
                return
            draft.undo(mark)
        draft.assign_offered(one, place)
        found.seated.append((party if tasks_of_party(party) else party[:1], at))

    def _probe(self, live: LiveJob, at: int, tasks: int) -> LiveJob:
        """The same job, had it asked for just this type, and for so many tasks if that is not 0."""
        probe = self._probes.get((live.seq, at, tasks))
        if probe is None:
            probe = narrowed(live, self._types[at])
            roles = (replace(probe.job.roles[0], count=tasks),) if tasks else probe.job.roles
            probe.job = replace(probe.job, elastic=None, roles=roles)
            self._probes[live.seq, at, tasks] = probe
        probe.since_s = live.since_s
        return probe


def _vacated(inventory: Inventory) -> Inventory:
    """The same nodes with nobody on them."""
    empty = Inventory(Cluster(nodes=tuple(books.node for books in inventory.nodes)))
    for index, books in enumerate(inventory.nodes):
        empty.set_up(index, books.up)
        empty.set_drained(index, books.drained)
    return empty


def stays_put(live: LiveJob, before: Placement | None) -> bool:
    """Whether a job runs already where it is to run."""
    after = live.placement
    return live.run_since_s is not None and before is not None and after is not None and same_devices(before, after)
