"""Where the parties of a round sit: who stays on a type keeps its devices, then the others find theirs."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from rota.core.engine.draft import Draft
from rota.core.messages.reasons import Reason
from rota.core.model.cluster import Cluster
from rota.core.model.job import WHOLE, DeviceType
from rota.core.model.placement import Placement, same_devices, tasks_of, whole
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.core.state.node_accounts import NodeAccount
from rota.mechanisms.colocation.pair_placement import shared
from rota.mechanisms.constrained_job import narrowed
from rota.mechanisms.elastic.resize import fewer
from rota.mechanisms.rounds.rule import Contender, Party, members_of, tasks_of_party

_RELAXED_S = 1e300
"""A moment by which every locality that ever relaxes has done so."""


class Drawn(NamedTuple):
    """A party and the type that it runs on in a round; of one that runs on several, its tasks on each."""

    party: Party
    at: int
    parts: tuple[int, ...] = ()


def parts_of(drawn: Drawn) -> list[tuple[int, float]]:
    """The types that a party runs on, and which part of it runs on each."""
    total = sum(drawn.parts)
    return [(at, tasks / total) for at, tasks in enumerate(drawn.parts) if tasks] if total else [(drawn.at, 1.0)]


@dataclass(slots=True)
class _Try:
    """One way to seat a round: who sits, and who found no place and why."""

    seated: list[Drawn]
    failed: dict[Drawn, Reason]


class RoundPlacement:
    """Finds devices for parties. Remembers, for every job and type, the job as if it had asked for just that type."""

    def __init__(self, types: Sequence[DeviceType], jobs: Mapping[int, Contender]) -> None:
        self._types = types
        self._empty: Inventory | None = None
        self._verdicts: dict[Hashable, bool] = {}
        self._jobs = jobs
        self._probes: dict[tuple[int, int, int], LiveJob] = {}
        self._before: Mapping[int, Placement] = {}
        """Where everybody was before the present round was seated."""
        self.failed: dict[Drawn, Reason] = {}
        """Who was drawn for the present round and found no place, and why."""
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
            key = (at, draft.allocator.equivalence_key(probe))
            if key not in self._verdicts:
                offered = draft.allocator.offer(probe, self._empty, _RELAXED_S)
                self._verdicts[key] = not isinstance(offered, Reason)
            able.append(self._verdicts[key])
        return able

    def rooms(self, draft: Draft, live: LiveJob) -> list[int]:
        """By type, how many tasks of a job could be there if it had the cluster for itself: all that fit, or none."""
        role, rooms = live.job.roles[0], []
        for at in range(len(self._types)):
            usable = [books for books in draft.inventory.nodes if books.pool == at and in_use(books)]
            tasks = min(sum(books.node.devices * WHOLE // role.device_milli for books in usable), role.count)
            rooms.append(tasks if tasks and self.able(draft, live, tasks)[at] else 0)
        return rooms

    def seat(self, draft: Draft, drawn: Sequence[Drawn]) -> list[Drawn]:
        """Everyone gets up and sits down again; who really sits where.

        Whoever finds no place because others kept theirs is asked first the second time: otherwise a job that
        needs a whole node could be drawn round after round and never run.
        """
        before: dict[int, Placement] = {}
        for seq, job in self._jobs.items():
            if job.live.placement is not None and not job.live.is_leaving:
                before[seq] = job.live.placement
                draft.release(job.live)
        able = self._present(drawn)
        mark = draft.mark()
        found = self._try(draft, [], able, before)
        if found.failed and found.seated:
            draft.undo(mark)
            found = self._try(draft, list(found.failed), able, before)
        self._before, self.relaxes_s = before, math.inf
        self._explain(draft, found)
        self.failed = found.failed
        return found.seated

    def seat_rest(self, draft: Draft, drawn: Sequence[Drawn]) -> list[Drawn]:
        """Others sit down where those who found no place now would have sat; who really does."""
        found = self._try(draft, [], self._present(drawn), self._before)
        self._explain(draft, found)
        return found.seated

    def why(self, waiting: LiveJob) -> Reason | None:
        """Why a job that was drawn for the present round found no place."""
        return next((reason for each, reason in self.failed.items() if waiting.seq in members_of(each.party)), None)

    def _present(self, drawn: Sequence[Drawn]) -> list[Drawn]:
        """Those of whom nobody is on its way out."""
        jobs = self._jobs
        return [each for each in drawn if all(not jobs[seq].live.is_leaving for seq in members_of(each.party))]

    def _explain(self, draft: Draft, found: _Try) -> None:
        for (party, at, _), reason in found.failed.items():
            lead = self._lead(party)
            draft.because(lead.live, reason)
            probe = self._probe(lead.live, at, self._tasks(party))
            _, relaxes_s = draft.allocator.stage(probe, draft.now_s)
            self.relaxes_s = min(self.relaxes_s, relaxes_s)

    def _try(
        self, draft: Draft, first: Sequence[Drawn], drawn: Sequence[Drawn], before: Mapping[int, Placement]
    ) -> _Try:
        found = _Try([], {})
        for each in first:
            self._find_place(draft, each, found)
        waiting = [each for each in drawn if each not in first]
        movers = [each for each in waiting if not self._sit_down(draft, each, before, found)]
        for each in movers:
            self._find_place(draft, each, found)
        return found

    def _lead(self, party: Party) -> Contender:
        """Whose devices a party has: the larger of two, or the older if they are of one size."""
        return max((self._jobs[seq] for seq in members_of(party)), key=lambda job: (job.scale, -job.seq))

    def _sit_down(self, draft: Draft, drawn: Drawn, before: Mapping[int, Placement], found: _Try) -> bool:
        """Back to the devices that one of the party had, if they are of the type and nobody took them."""
        lead = self._lead(drawn.party)
        for seq in members_of(drawn.party):
            held = self._resized(before.get(seq), seq, drawn.party)
            if held is None or self._jobs[seq].scale < lead.scale or not self._suits(held, drawn, draft.inventory):
                continue
            job = self._jobs[seq].live.job
            if self._jobs[seq].shape is not None:
                held = whole(held)
            if draft.inventory.is_free(held, job.roles, job.exclusive, back=True):
                self._take(draft, drawn, held, found)
                return True
        return False

    def _suits(self, held: Placement, drawn: Drawn, inventory: Inventory) -> bool:
        """Whether devices are of the type that was drawn, or as many of each type as were."""
        tasks = dict.fromkeys(self._types, 0)
        for slot in held:
            if slot.devices:
                tasks[inventory.nodes[slot.node].node.device_type] += slot.tasks
        if drawn.parts:
            return tuple(tasks.values()) == drawn.parts
        return all(kind == self._types[drawn.at] for kind, count in tasks.items() if count)

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

    def _find_place(self, draft: Draft, drawn: Drawn, found: _Try) -> None:
        offered = self._offer(draft, drawn)
        if isinstance(offered, Reason):
            found.failed[drawn] = offered
        else:
            self._take(draft, drawn, offered, found)

    def _offer(self, draft: Draft, drawn: Drawn) -> Placement | Reason:
        """Devices for a party, type by type if it has parts: no node has two types, so that parts never meet."""
        live = self._lead(drawn.party).live
        parts = [(at, tasks) for at, tasks in enumerate(drawn.parts) if tasks]
        slots: Placement = ()
        for at, tasks in parts or [(drawn.at, self._tasks(drawn.party))]:
            offered = draft.offer(self._probe(live, at, tasks))
            if isinstance(offered, Reason):
                return offered
            slots += offered
        return slots

    def _take(self, draft: Draft, drawn: Drawn, place: Placement, found: _Try) -> None:
        """Both of a pair on the same devices, or the one alone where the other finds too little of something else."""
        party = drawn.party
        lead = self._lead(party)
        if len(members_of(party)) > 1:
            mate = self._jobs[party[0] if lead.seq == party[1] else party[1]]
            both = shared(place, lead, mate)
            mark = draft.mark()
            if both is not None:
                draft.assign_offered(lead.live, both[0])
                if draft.inventory.is_free(both[1], mate.live.job.roles, back=True):
                    draft.assign_offered(mate.live, both[1])
                    found.seated.append(drawn)
                    return
                draft.undo(mark)
            drawn = drawn._replace(party=(lead.seq,))
        draft.assign_offered(lead.live, place)
        found.seated.append(drawn)

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


def in_use(books: NodeAccount) -> bool:
    """Whether a node is there for jobs, whoever is on it now."""
    return books.up and not books.drained and not books.removed


def _vacated(inventory: Inventory) -> Inventory:
    """The same nodes with nobody on them."""
    empty = Inventory(Cluster(nodes=tuple(books.node for books in inventory.nodes)))
    for index, books in enumerate(inventory.nodes):
        empty.set_up(index, in_use(books))
    return empty


def stays_put(live: LiveJob, before: Placement | None) -> bool:
    """Whether a job runs already where it is to run."""
    after = live.placement
    return live.run_since_s is not None and before is not None and after is not None and same_devices(before, after)
