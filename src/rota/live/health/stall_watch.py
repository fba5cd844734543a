"""Looks for hangs and stragglers among running jobs: warns once an attempt, and restarts or moves by rule."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from rota.core.engine.preemption_guard import can_resume
from rota.core.messages.events import JobRequeued
from rota.core.model.job import JobId, JobState
from rota.core.state.job_record import LiveJob
from rota.files.up_file import HealthPart
from rota.health.stalls import ProgressOfRanks, Stall, StallKind
from rota.live.health.failure_watch import FailureWatch
from rota.live.loop.control import Control
from rota.live.loop.entry import LoopEntry
from rota.store import clock
from rota.store.run_folder import read_json, step_done, write_json

log = logging.getLogger("rota.live")
LOOK_S = 5.0
MOST_RANKS = 256


class StallWatch:
    """The progress of all running jobs that report it."""

    def __init__(
        self,
        control: Control,
        settings: HealthPart,
        home: Path,
        failures: FailureWatch,
    ) -> None:
        self._failures = failures
        self.busy_of: Callable[[JobId], Mapping[int, float]] = lambda job_id: {}
        """Returns how busy the GPUs of each rank of a job are, where that is measured: percent of the last minute."""
        self._control = control
        self._settings = settings
        self._home = home
        self._progress: dict[tuple[JobId, int], ProgressOfRanks] = {}
        self._told: set[tuple[JobId, int, StallKind]] = set()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(min(LOOK_S, self._settings.stall_after / 4))
            await self.look(clock.now_s())

    async def look(self, now_s: float) -> None:
        """Look at all running jobs once."""
        running = [live for live in list(self._control.state.jobs.values()) if live.state is JobState.RUNNING]
        tasks = {live.job.id: sum(slot.tasks for slot in live.held or ()) for live in running}
        found = await asyncio.to_thread(lambda: {name: self._steps(name, count) for name, count in tasks.items()})
        running = [live for live in running if live.job.id in self._control.kept]  # some have ended meanwhile
        keys = {(live.job.id, self._control.kept[live.job.id].attempt) for live in running}
        for gone in [key for key in self._progress if key not in keys]:
            del self._progress[gone]
        self._told = {told for told in self._told if told[:2] in keys}
        for live in running:
            key = (live.job.id, self._control.kept[live.job.id].attempt)
            known = self._progress.setdefault(key, ProgressOfRanks(self._settings.stall_after))
            stall = known.look(now_s, found[live.job.id]) or known.look_at_gpus(now_s, self.busy_of(live.job.id))
            if stall is not None and (*key, stall.kind) not in self._told:
                self._told.add((*key, stall.kind))
                self._act(live, stall, now_s)

    def _steps(self, job_id: JobId, tasks: int) -> dict[int, float]:
        pairs = [(rank, step_done(self._home, job_id, rank)) for rank in range(min(tasks, MOST_RANKS))]
        return {rank: done[1] for rank, done in pairs if done is not None}

    def _act(self, live: LiveJob, stall: Stall, now_s: float) -> None:
        job_id, text = live.job.id, f"{stall.kind.value}: {stall.text}"
        log.warning("job-warning", extra={"job": job_id, "warning": stall.kind.value, "why": stall.text})
        path = self._home / "runs" / job_id / "warnings.json"
        try:
            known = (read_json(path) or {}).get("warnings", [])
            write_json(path, {"warnings": [*known[-99:], {"at_s": now_s, "code": stall.kind.value, "text": text}]})
        except (OSError, ValueError):
            log.warning("a warning could not be kept", extra={"job": job_id})
        self._control.warn(job_id, text)
        nodes = self._nodes_of(live, stall.ranks)
        self._failures.note_stall(live, stall.kind.value, stall.text, nodes)
        if stall.kind is StallKind.HANG and self._settings.stall == "restart" and can_resume(live.job):
            self._control.kept[job_id].message = f"restarted: {text}"
            self._control.happened(LoopEntry([JobRequeued(job_id)]))
        if stall.kind is StallKind.STRAGGLER and self._settings.straggler == "swap" and can_resume(live.job):
            self._control.kept[job_id].message = f"moved off {', '.join(nodes)}: {text}"
            self._failures.move_away(job_id, nodes)

    def _nodes_of(self, live: LiveJob, ranks: tuple[int, ...]) -> tuple[str, ...]:
        """Return the nodes of these ranks; ranks follow the order of the placement."""
        inventory = self._control.state.inventory.nodes
        by_rank = [str(inventory[slot.node].node.id) for slot in live.held or () for _ in range(slot.tasks)]
        return tuple(dict.fromkeys(by_rank[rank] for rank in ranks if rank < len(by_rank)))
