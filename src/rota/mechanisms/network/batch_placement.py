"""Wrapper of a policy that places all jobs which start at the same moment together, at a lower network cost."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rota.core.engine.draft import Draft
from rota.core.engine.protocols import Capabilities, Changes, Policy
from rota.core.messages.reasons import Reason
from rota.core.model.job import Job
from rota.core.model.placement import Placement
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.mechanisms.network.genetic import SearchBudget, improve
from rota.mechanisms.network.layout import BatchLayout, PlacementBatch, free_on, interleaved, nodes_for, placed
from rota.perf.speed.network import Distances, Weighting

MIN_TASKS = 3
"""Smallest number of tasks that is worth a search."""


class BatchPlacement:
    """Policy that keeps the inner policy's choice of jobs and decides jointly where they run."""

    def __init__(self, inner: Policy, weighting: Weighting, budget: SearchBudget, seed: int, overlaps: bool) -> None:
        self._inner = inner
        self._weighting = weighting
        self._budget = budget
        self._seed = seed
        self._overlaps = overlaps

    @property
    def capabilities(self) -> Capabilities:
        """Those of the policy inside, and whether jobs overlap."""
        return replace(self._inner.capabilities, overlaps=self._overlaps)

    @property
    def wakeup_s(self) -> float:
        """The wake-up time of the inner policy."""
        return self._inner.wakeup_s

    @property
    def memory(self) -> Any:
        """The memory of the inner policy."""
        return self._inner.memory

    def note(self, changes: Changes, now_s: float) -> None:
        """Forward to the inner policy."""
        self._inner.note(changes, now_s)

    def adopt(self, state: State) -> None:
        """Forward to the inner policy."""
        self._inner.adopt(state)

    def explain(self, waiting: LiveJob, draft: Draft) -> Reason:
        """Forward to the inner policy."""
        return self._inner.explain(waiting, draft)

    def plan(self, draft: Draft) -> None:
        """Let the inner policy select and place jobs, then improve their placement jointly."""
        self._inner.plan(draft)
        starting = [
            live
            for live, before in draft.touched.items()
            if before is None and live.placement is not None and is_movable(live.job)
        ]
        if sum(live.job.tasks for live in starting) >= MIN_TASKS:
            self._improve(draft, starting)

    def _improve(self, draft: Draft, starting: Sequence[LiveJob]) -> None:
        """Search for a better layout than the placements of the inner policy, and apply it if there is one."""
        mark = draft.mark()
        given = []
        for live in starting:
            assert live.placement is not None
            given.append(live.placement)
            draft.release(live)
        first = self._layout(draft, [live.job for live in starting], given)
        if not first.network_cost:
            draft.undo(mark)
            return
        names = ",".join(live.job.id for live in starting)
        found = improve(first, self._budget, random.Random(f"{self._seed}:{draft.now_s}:{names}"))
        if not found.score < first.score:
            draft.undo(mark)
            return
        for index, live in enumerate(starting):
            draft.assign(live, placed(draft.inventory, found, index))

    def _layout(self, draft: Draft, jobs: Sequence[Job], given: Sequence[Placement]) -> BatchLayout:
        """Return the given placements as a layout; tasks stay on their device type."""
        inventory = draft.inventory
        nodes: list[list[tuple[int, ...]]] = []
        for job, placement in zip(jobs, given, strict=True):
            pool_of = {slot.role: inventory.nodes[slot.node].pool for slot in placement}
            nodes.append([nodes_for(inventory, role, pool_of[index], -1) for index, role in enumerate(job.roles)])
        batch = PlacementBatch(
            jobs=jobs,
            tasks=interleaved(jobs, nodes),
            free=[free_on(account) for account in inventory.nodes],
            devices=[account.node.devices for account in inventory.nodes],
            distances=Distances([account.node for account in inventory.nodes], self._weighting),
        )
        layout = BatchLayout(batch)
        for index, placement in enumerate(given):
            where = [(slot.role, slot.node) for slot in placement for _ in range(slot.tasks)]
            for number in batch.by_job[index]:
                at = next(entry for entry in where if entry[0] == batch.tasks[number].role)
                where.remove(at)
                layout.assign(number, at[1])
        return layout


def is_movable(job: Job) -> bool:
    """Return whether a job's placement depends on the network alone: whole devices, fixed size, no constraints."""
    return (
        not job.exclusive
        and job.elastic is None
        and (job.locality is None or not job.locality.hard)
        and not any(role.is_fraction for role in job.roles)
    )
