"""Placement of the contenders of a round: jobs that stay on a type keep their devices, then the others are placed."""

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
from rota.mechanisms.rounds.rule import Contender, RoundJob, members_of, tasks_of_contender

_RELAXED_S = 1e300
"""A moment by which every locality that ever relaxes has done so."""


class Selected(NamedTuple):
    """A contender and its type in a round; for one that runs on several types, its tasks on each."""

    contender: Contender
    at: int
    parts: tuple[int, ...] = ()


def fractions_of(selected: Selected) -> list[tuple[int, float]]:
    """The types that a contender runs on, and the fraction of its tasks on each."""
    total = sum(selected.parts)
    return [(at, tasks / total) for at, tasks in enumerate(selected.parts) if tasks] if total else [(selected.at, 1.0)]


@dataclass(slots=True)
class _Attempt:
    """One way to place a round: the contenders placed, and the reason of each that was not."""

    placed: list[Selected]
    failed: dict[Selected, Reason]


class RoundPlacement:
    """Finds devices for contenders; caches each job narrowed to each type (a probe)."""

    def __init__(self, types: Sequence[DeviceType], jobs: Mapping[int, RoundJob]) -> None:
        self._types = types
        self._empty: Inventory | None = None
        self._verdicts: dict[Hashable, bool] = {}
        self._jobs = jobs
        self._probes: dict[tuple[int, int, int], LiveJob] = {}
        self._before: Mapping[int, Placement] = {}
        """The placements before the current round."""
        self.failed: dict[Selected, Reason] = {}
        """Contenders of the current round that found no placement, with the reason."""
        self.relaxes_s = math.inf
        """When a job that found no placement relaxes its locality."""

    def forget(self, seqs: set[int]) -> None:
        """Drop the probes of jobs that are gone."""
        self._probes = {key: probe for key, probe in self._probes.items() if key[0] not in seqs}

    def able(self, draft: Draft, live: LiveJob, tasks: int = 0) -> list[bool]:
        """By type, whether an empty cluster could place a job, its locality relaxed; with `tasks`, that many tasks."""
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
        """By type, how many tasks of a job an empty cluster could place there."""
        role, rooms = live.job.roles[0], []
        for at in range(len(self._types)):
            usable = [account for account in draft.inventory.nodes if account.pool == at and is_schedulable(account)]
            tasks = min(sum(account.node.devices * WHOLE // role.device_milli for account in usable), role.count)
            rooms.append(tasks if tasks and self.able(draft, live, tasks)[at] else 0)
        return rooms

    def place(self, draft: Draft, selected: Sequence[Selected]) -> list[Selected]:
        """Release all placements, then place the selected contenders; return those that were placed.

        If some fail because others kept their devices, a second attempt places the failed ones first: otherwise a job
        that needs a whole node could be selected in every round and never run.
        """
        before: dict[int, Placement] = {}
        for seq, job in self._jobs.items():
            if job.live.placement is not None and not job.live.is_leaving:
                before[seq] = job.live.placement
                draft.release(job.live)
        self._before, self.relaxes_s = before, math.inf
        able = self._present(selected)
        mark = draft.mark()
        found = self._attempt(draft, [], able, before)
        if found.failed and found.placed:
            draft.undo(mark)
            found = self._attempt(draft, list(found.failed), able, before)
        self._explain(draft, found)
        self.failed = found.failed
        return found.placed

    def place_rest(self, draft: Draft, selected: Sequence[Selected]) -> list[Selected]:
        """Place further contenders on the devices of those that failed; return those that were placed."""
        found = self._attempt(draft, [], self._present(selected), self._before)
        self._explain(draft, found)
        return found.placed

    def why(self, waiting: LiveJob) -> Reason | None:
        """Why a job that was selected for the current round was not placed."""
        return next((reason for each, reason in self.failed.items() if waiting.seq in members_of(each.contender)), None)

    def _present(self, selected: Sequence[Selected]) -> list[Selected]:
        """The contenders of which no job is stopping."""
        jobs = self._jobs
        return [each for each in selected if all(not jobs[seq].live.is_leaving for seq in members_of(each.contender))]

    def _explain(self, draft: Draft, found: _Attempt) -> None:
        for (contender, at, _), reason in found.failed.items():
            lead = self._lead(contender)
            draft.because(lead.live, reason)
            probe = self._probe(lead.live, at, self._tasks(contender))
            _, relaxes_s = draft.allocator.stage(probe, draft.now_s)
            self.relaxes_s = min(self.relaxes_s, relaxes_s)

    def _attempt(
        self, draft: Draft, first: Sequence[Selected], selected: Sequence[Selected], before: Mapping[int, Placement]
    ) -> _Attempt:
        found = _Attempt([], {})
        for each in first:
            self._find_place(draft, each, found)
        waiting = [each for each in selected if each not in first]
        movers = [each for each in waiting if not self._keep_devices(draft, each, before, found)]
        for each in movers:
            self._find_place(draft, each, found)
        return found

    def _lead(self, contender: Contender) -> RoundJob:
        """The job whose devices a contender uses: the larger of two, the older of two of equal size."""
        return max((self._jobs[seq] for seq in members_of(contender)), key=lambda job: (job.scale, -job.seq))

    def _keep_devices(self, draft: Draft, selected: Selected, before: Mapping[int, Placement], found: _Attempt) -> bool:
        """Place a contender on the devices that one of its jobs held, if they are of the type and free."""
        lead = self._lead(selected.contender)
        job = lead.live.job
        for seq in members_of(selected.contender):
            held = self._resized(before.get(seq), seq, selected.contender)
            if held is None or not self._suits(held, selected, draft.inventory):
                continue
            if seq != lead.seq and (lead.shape is None or self._jobs[seq].shape != lead.shape):
                continue
            if lead.shape is not None:
                held = whole(held)
            if draft.inventory.is_free(held, job.roles, job.exclusive, back=seq == lead.seq):
                self._take(draft, selected, held, found)
                return True
        return False

    def _suits(self, held: Placement, selected: Selected, inventory: Inventory) -> bool:
        """Whether the devices are of the selected type, or split over types as selected."""
        tasks = dict.fromkeys(self._types, 0)
        for slot in held:
            if slot.devices:
                tasks[inventory.nodes[slot.node].node.device_type] += slot.tasks
        if selected.parts:
            return tuple(tasks.values()) == selected.parts
        return all(kind == self._types[selected.at] for kind, count in tasks.items() if count)

    def _resized(self, held: Placement | None, seq: int, contender: Contender) -> Placement | None:
        """What a job held, cut to what it keeps if it is to have fewer tasks."""
        job = self._jobs[seq].live.job
        if held is None or job.elastic is None:
            return held
        tasks = self._tasks(contender) or job.roles[0].count
        if tasks_of(held) <= tasks or job.roles[0].is_fraction:
            return held if tasks_of(held) == tasks else None
        return fewer(held, tasks, job.roles[0].device_milli // WHOLE)

    def _tasks(self, contender: Contender) -> int:
        """The number of tasks of a contender's first job, if it differs from the requested number; else 0."""
        return tasks_of_contender(contender) or self._jobs[contender[0]].tasks

    def _find_place(self, draft: Draft, selected: Selected, found: _Attempt) -> None:
        offered = self._offer(draft, selected)
        if isinstance(offered, Reason):
            found.failed[selected] = offered
        else:
            self._take(draft, selected, offered, found)

    def _offer(self, draft: Draft, selected: Selected) -> Placement | Reason:
        """Devices for a contender, by type if it spans several: no node has two types, so the parts never overlap."""
        live = self._lead(selected.contender).live
        parts = [(at, tasks) for at, tasks in enumerate(selected.parts) if tasks]
        slots: Placement = ()
        for at, tasks in parts or [(selected.at, self._tasks(selected.contender))]:
            offered = draft.offer(self._probe(live, at, tasks))
            if isinstance(offered, Reason):
                return offered
            slots += offered
        return slots

    def _take(self, draft: Draft, selected: Selected, place: Placement, found: _Attempt) -> None:
        """Place both jobs of a pair on the devices, or only the lead where the other lacks CPUs or memory."""
        contender = selected.contender
        lead = self._lead(contender)
        if len(members_of(contender)) > 1:
            partner = self._jobs[contender[0] if lead.seq == contender[1] else contender[1]]
            both = shared(place, lead.shape, partner.shape)
            mark = draft.mark()
            if both is not None:
                draft.assign_offered(lead.live, both[0])
                held = self._before.get(partner.seq)
                stays = held is not None and same_devices(held, both[1])
                if draft.inventory.is_free(both[1], partner.live.job.roles, back=stays):
                    draft.assign_offered(partner.live, both[1])
                    found.placed.append(selected)
                    return
                draft.undo(mark)
            selected = selected._replace(contender=(lead.seq,))
        draft.assign_offered(lead.live, place)
        found.placed.append(selected)

    def _probe(self, live: LiveJob, at: int, tasks: int) -> LiveJob:
        """The job as if it requested only this type, and `tasks` tasks unless that is 0."""
        probe = self._probes.get((live.seq, at, tasks))
        if probe is None:
            probe = narrowed(live, self._types[at])
            roles = (replace(probe.job.roles[0], count=tasks),) if tasks else probe.job.roles
            probe.job = replace(probe.job, elastic=None, roles=roles)
            self._probes[live.seq, at, tasks] = probe
        probe.since_s = live.since_s
        return probe


def is_schedulable(account: NodeAccount) -> bool:
    """Whether a node accepts jobs, whether or not it is full."""
    return account.up and not account.drained and not account.removed


def _vacated(inventory: Inventory) -> Inventory:
    """The same nodes, all free."""
    empty = Inventory(Cluster(nodes=tuple(account.node for account in inventory.nodes)))
    for index, account in enumerate(inventory.nodes):
        empty.set_up(index, is_schedulable(account))
    return empty


def is_unmoved(live: LiveJob, before: Placement | None) -> bool:
    """Whether a job already runs on the devices where it is placed."""
    after = live.placement
    return live.run_since_s is not None and before is not None and after is not None and same_devices(before, after)
