"""AntMan's loop: guaranteed jobs keep a part of their speed alone; opportunistic ones packed beside them get the rest.

Once a period, the opportunistic jobs of a GPU run for a part of it and are paused for the remainder. A part that is
too short is saved up for a later period: each time that a job runs, it queues kernels that go on after its pause has
begun. A pause ends by itself, so that jobs go on if the manager dies.

The guaranteed job's speed comes from the steps that it reports through `rota.sdk`; for a job that reports none, the
time in which its processes had kernels on the GPU takes their place. A job that loads, which has not opened the GPU
yet, is not paused: it interferes with nothing there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rota.core.model.job import OPPORTUNISTIC, JobId
from rota.drivers.local.gpu.throttle import DutyControl, StepRate
from rota.drivers.local.time_slicer import Hand
from rota.live.gpus.monitor import GpuMonitor
from rota.live.loop.control import Control
from rota.store import clock
from rota.store.run_folder import step_done

log = logging.getLogger("rota.live")
PERIOD_S = 0.5
LEAST_RUN_S = 0.1
"""The shortest time for which an opportunistic job runs."""
LOOK_S = 4.0
"""Between two looks at the speed, at least; steps are reported once a second."""
PROBE_S = 6.0
PROBE_EVERY_S = 60.0
"""How long, and how often, opportunistic jobs stand still so that the speed alone is measured again."""
LAPSE_S = 10.0
FULL = 0.97
"""Above this part of the time, jobs are not paused at all."""

BusyOf = Callable[[int], dict[JobId, float]]
"""For each job on a GPU how busy its processes kept it, in percent, since the last call."""


@dataclass(slots=True)
class _Pair:
    """A guaranteed job on a GPU and the opportunistic ones beside it."""

    control: DutyControl
    guests: tuple[JobId, ...] = ()
    rate: StepRate = field(default_factory=StepRate)
    busy_total: float = 0.0
    reports: bool = False
    probe_until_s: float = 0.0
    alone: float | None = None
    """The speed in the probe that is under way."""
    look_s: float = 0.0

    def probes(self, now_s: float) -> bool:
        return now_s < self.probe_until_s


class SpeedBounds:
    """All GPUs on which guaranteed and opportunistic jobs are packed."""

    def __init__(
        self, control: Control, monitor: GpuMonitor, home: Path, bound: float, pauses: Hand, busy_of: BusyOf
    ) -> None:
        self._control = control
        self._monitor = monitor
        self._home = home
        self._bound = bound
        self._pauses = pauses
        self._busy_of = busy_of
        self.pairs: dict[tuple[int, JobId], _Pair] = {}
        self._paused: set[JobId] = set()
        self._due_s: dict[JobId, float] = {}
        """The time that each opportunistic job may run and has not yet."""

    async def run(self) -> None:
        """Control until cancelled; what is paused goes on then."""
        try:
            while True:
                await self.period()
        finally:
            for job_id in list(self._paused):
                self._resume(job_id)

    async def period(self) -> None:
        """Let the opportunistic jobs run for their part of one period."""
        now_s = clock.now_s()
        self._find_pairs(now_s)
        duties: dict[JobId, float] = {}
        for (index, guaranteed), pair in self.pairs.items():
            self._look(index, guaranteed, pair, now_s)
            duty = 0.0 if pair.probes(now_s) else pair.control.duty
            for guest in pair.guests:
                duties[guest] = min(duty, duties.get(guest, 1.0))
        for guest in [guest for guest in self._paused if guest not in duties]:
            self._resume(guest)
        spent_s = 0.0
        for guest, run_s in sorted(self._run_times(duties).items(), key=lambda each: (each[1], each[0])):
            if run_s > 0:
                self._resume(guest)
            if run_s < FULL * PERIOD_S:
                await asyncio.sleep(max(run_s - spent_s, 0.0))
                spent_s = max(run_s, spent_s)
                self._pause(guest)
        await asyncio.sleep(PERIOD_S - spent_s)

    def _run_times(self, duties: dict[JobId, float]) -> dict[JobId, float]:
        """Return for how long each opportunistic job runs in this period."""
        due_s = {guest: self._due_s.get(guest, 0.0) + duty * PERIOD_S for guest, duty in duties.items()}
        runs_s = {guest: min(each, PERIOD_S) if each >= LEAST_RUN_S else 0.0 for guest, each in due_s.items()}
        self._due_s = {guest: due_s[guest] - runs_s[guest] for guest, duty in duties.items() if duty > 0}
        return runs_s

    def _find_pairs(self, now_s: float) -> None:
        found: dict[tuple[int, JobId], tuple[JobId, ...]] = {}
        for index, holders in self._monitor.holders().items():
            packed = [holder.job_id for holder in holders if not holder.alone and not holder.in_turn]
            jobs = self._control.state.jobs
            guests = tuple(
                job_id
                for job_id in packed
                if jobs[job_id].job.priority <= OPPORTUNISTIC and not self._pauses.loads(job_id)
            )
            firm = [job_id for job_id in packed if jobs[job_id].job.priority > OPPORTUNISTIC]
            for job_id in firm if guests else ():
                found[index, job_id] = guests
        for key in [key for key in self.pairs if key not in found]:
            del self.pairs[key]
        for key, guests in found.items():
            pair = self.pairs.get(key)
            if pair is None:
                pair = self.pairs[key] = _Pair(DutyControl(bound=self._bound))
                log.info("gpu-bound", extra={"job": key[1], "gpu": key[0], "beside": list(guests)})
            if pair.guests != guests:  # others interfere differently: measure alone, then begin carefully
                pair.guests = guests
                pair.control = DutyControl(bound=self._bound, alone=pair.control.alone)
                self._probe(pair, now_s)

    def _probe(self, pair: _Pair, now_s: float) -> None:
        pair.probe_until_s = now_s + PROBE_S
        pair.rate.clear(now_s)

    def _look(self, index: int, guaranteed: JobId, pair: _Pair, now_s: float) -> None:
        done = step_done(self._home, guaranteed)
        if done is not None:
            pair.reports = True
            pair.rate.add(*done)
        elif not pair.reports:
            pair.busy_total += self._busy_of(index).get(guaranteed, 0.0)
            pair.rate.add(now_s, pair.busy_total)
        rate = pair.rate.rate
        if pair.probes(now_s):
            pair.alone, pair.look_s = rate, pair.probe_until_s + LOOK_S
            return
        if pair.alone is not None:
            pair.control.note_alone(pair.alone)
            pair.alone = None
            pair.rate.clear(now_s)
        if now_s - pair.probe_until_s >= PROBE_EVERY_S:
            self._probe(pair, now_s)
        elif now_s >= pair.look_s and rate is not None:
            before = pair.control.duty
            log.debug(
                "gpu-duty",
                extra={"job": guaranteed, "rate": rate, "alone": pair.control.alone, "duty": pair.control.update(rate)},
            )
            pair.look_s = now_s + max(LOOK_S, 2 * LEAST_RUN_S / pair.control.duty)  # at least two runs of the others
            if pair.control.duty != before:
                pair.rate.clear(now_s)

    def _resume(self, job_id: JobId) -> None:
        if job_id in self._paused:
            self._paused.discard(job_id)
            self._pauses.let_run(job_id, None)

    def _pause(self, job_id: JobId) -> None:
        self._paused.add(job_id)
        self._pauses.let_run(job_id, clock.now_s() + LAPSE_S)
