"""Keeps every forecast: one for each submitted job, and those that are asked for; scores them as jobs start and end.

It stands between the requests and the forecast worker: what the worker computes is calibrated, kept and given. Rows are
written by the loop, in its transactions; outcomes that a crash came before are found at the next start.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from rota.core.errors import RotaError, Unavailable
from rota.core.messages.events import JobArrived
from rota.core.model.job import JobId, JobState
from rota.core.state.job_record import LiveJob
from rota.forecast.value import Basis, Forecast, TimeRange
from rota.live.loop.control import Control
from rota.live.loop.entry import LoopEntry, News
from rota.live.truth.calibration import Calibration, RangeCalibration
from rota.store.forecasts import StoredForecast, StoredRange
from rota.store.records import Records

log = logging.getLogger("rota.live")
Json = dict[str, Any]
REPLAYED = 2000
"""Scored forecasts from which the calibration is rebuilt at a start."""
ASKED_EVERY_S = 30.0
ASKED_SHARE = 0.1
"""An asked-for forecast is kept if the last one is older than this, and than this part of the time since the first."""
MOST_PENDING = 100
"""Submitted jobs that wait for their forecast; of more, the oldest are left out."""
IDLE_SHARE = 1.0
MOST_IDLE_S = 2.0
"""How long forecasts at submission pause: as long as they took, up to this, so that they are no burden."""
LONGEST_S = 20.0
"""How long forecasts of jobs that were submitted together may take; on large clusters the last of them are left out."""
WRITE_EVERY_S = 1.0
MIXED = 0.8
"""The share of run times that are known in one way from which a forecast counts as of that kind."""


class ForecastSource(Protocol):
    """Computes forecasts."""

    async def ask(self, job_id: JobId, arrives: JobArrived | None = None, asker: str = "") -> Forecast:
        """Return when a job will start and end; `arrives` is a hypothetical job. Askers are served in rotation."""

    async def close(self) -> None:
        """Release its resources."""


class ForecastKeeper:
    """The forecasts of a manager: calibrated, kept and scored."""

    def __init__(self, control: Control, records: Records, source: ForecastSource, policy: str) -> None:
        self._control = control
        self._source = source
        self._policy = policy
        self._pending: dict[JobId, None] = {}
        self._wake = asyncio.Event()
        self._open: dict[str, list[StoredForecast]] = {}
        self._deferred: set[str] = set()
        """Jobs whose outcome is given by `settle`: the engine did not see them run."""
        self._entry = LoopEntry([])
        self._writing: asyncio.TimerHandle | None = None
        self.calibration = Calibration(records.forecasts.scored(REPLAYED))
        for kept in records.forecasts.open():
            self._open.setdefault(kept.job_id, []).append(kept)
        self._catch_up(records.forecasts.missed_outcomes())
        control.listen(self.noticed)

    def _catch_up(self, missed: Sequence[Json]) -> None:
        """Take the outcomes that were not written before the last end of the manager."""
        for outcome in missed:
            self._take_outcome(outcome)

    # -- forecasts -------------------------------------------------------------------------------

    async def ask(self, job_id: JobId, arrives: JobArrived | None = None, asker: str = "") -> Forecast:
        """Return a calibrated forecast; it is kept unless the job is hypothetical. Askers are served in rotation."""
        computed = await self._source.ask(job_id, arrives, asker)
        shown = self._calibrated(computed)
        if arrives is None and self._is_due(job_id, computed.made_s):
            self._keep(job_id, "asked" if job_id in self._open else "submission", computed, shown)
        return shown

    async def run(self) -> None:
        """Make the forecasts of submitted jobs, until cancelled."""
        self._write_soon()
        while True:
            await self._wake.wait()
            self._wake.clear()
            begun_s = time.monotonic()
            await self._forecast_pending()
            await asyncio.sleep(min(IDLE_SHARE * (time.monotonic() - begun_s), MOST_IDLE_S))

    async def _forecast_pending(self) -> None:
        ids = [job_id for job_id in self._pending if self._is_forecastable(job_id)]
        self._pending.clear()
        until_s = time.monotonic() + LONGEST_S
        for index, job_id in enumerate(ids):
            if time.monotonic() >= until_s:
                log.info("no forecast at submission: those before took too long", extra={"jobs": len(ids) - index})
                return
            try:
                computed = await self._source.ask(job_id)
            except (RotaError, Unavailable) as error:
                log.warning("no forecast at submission", extra={"jobs": len(ids) - index, "why": str(error)})
                return
            if job_id not in self._open:
                self._keep(job_id, "submission", computed, self._calibrated(computed))

    def _is_forecastable(self, job_id: JobId) -> bool:
        live = self._control.state.jobs.get(job_id)
        return live is not None and not live.state.is_final and job_id not in self._open

    def _calibrated(self, computed: Forecast) -> Forecast:
        starts, ends = self.calibration.starts(self._policy), self.calibration.ends(self._policy)
        start = _stretched(computed.start, starts, computed.made_s)
        end = _stretched(computed.end, ends, computed.made_s)
        return replace(computed, start=start, end=_not_before(end, start))

    # -- keeping ---------------------------------------------------------------------------------

    def _is_due(self, job_id: JobId, made_s: float) -> bool:
        """Return whether one more forecast of a job is worth keeping: pages ask again and again."""
        kept = self._open.get(job_id)
        if not kept:
            return True
        return made_s - kept[-1].made_s >= max(ASKED_EVERY_S, ASKED_SHARE * (made_s - kept[0].made_s))

    def _keep(self, job_id: JobId, cause: str, computed: Forecast, shown: Forecast) -> None:
        live = self._control.state.jobs.get(job_id)
        if live is None or live.state.is_final:
            return
        kept = StoredForecast(
            job_id=job_id,
            tenant=live.job.tenant,
            cause=cause,
            policy=self._policy,
            basis=kind_of(computed.basis),
            gpus=live.job.gpus,
            made_s=computed.made_s,
            start=_stored(computed.start, shown.start) if _waited_at(live, computed.made_s) else None,
            end=_stored(computed.end, shown.end),
            started_s=live.first_start_s,
        )
        if kept.start is None and kept.end is None:
            return
        self.calibration.see_start(kept)
        self._open.setdefault(job_id, []).append(kept)
        self._entry.forecasts.append(kept.encode())
        self._write_soon()

    def _write_soon(self) -> None:
        """Hand the rows to the loop, together with those of the next second."""
        if self._writing is None and (self._entry.forecasts or self._entry.outcomes):
            self._writing = asyncio.get_running_loop().call_later(WRITE_EVERY_S, self.write)

    def write(self) -> None:
        """Hand all rows to the loop now."""
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        entry, self._entry = self._entry, LoopEntry([])
        if entry.forecasts or entry.outcomes:
            self._control.happened(entry)

    # -- scoring ---------------------------------------------------------------------------------

    def noticed(self, news: Sequence[News]) -> None:
        """Take changes of jobs: new ones are forecast, those that start or end are scored."""
        for each in news:
            live = self._control.state.jobs.get(each.job_id)
            if live is None:
                continue
            if each.job_id in self._open:
                if each.job_id not in self._deferred:
                    self._score(live)
            elif not live.state.is_final and live.state is not JobState.HELD and live.first_start_s is None:
                self._pending[each.job_id] = None
        while len(self._pending) > MOST_PENDING:
            del self._pending[next(iter(self._pending))]
        if self._pending:
            self._wake.set()

    def defer(self, job_ids: Iterable[JobId]) -> None:
        """Leave the outcome of jobs to `settle`; a crash in between is made up for at the next start."""
        self._deferred.update(job_ids)

    def settle(self, outcomes: Sequence[Json]) -> None:
        """Score the forecasts of jobs that the engine did not see run, by what their records say now."""
        for outcome in outcomes:
            self._deferred.discard(outcome["key"])
            self._take_outcome(outcome)
        self._write_soon()

    def _score(self, live: LiveJob) -> None:
        state = live.state.value if live.state.is_final else None
        self._take_outcome(
            {"key": live.job.id, "state": state, "started_s": live.first_start_s, "ended_s": live.ended_s}
        )
        self._write_soon()

    def _take_outcome(self, outcome: Json) -> None:
        """Score the forecasts of a job, if it has started or ended since."""
        job_id, state, started_s = outcome["key"], outcome["state"], outcome["started_s"]
        kept = self._open.get(job_id)
        if kept is None or (state is None and started_s in (None, kept[-1].started_s)):
            return
        scored = [replace(each, started_s=started_s, ended_s=outcome["ended_s"], state=state) for each in kept]
        for before, after in zip(kept, scored, strict=True):
            if before.started_s is None:
                self.calibration.see_start(after)
            self.calibration.see_end(after)
        if state is None:
            self._open[job_id] = scored
        else:
            del self._open[job_id]
        self._entry.outcomes.append(outcome)

    async def close(self) -> None:
        """Stop the worker."""
        if self._writing is not None:
            self._writing.cancel()
        await self._source.close()


def _waited_at(live: LiveJob, at_s: float) -> bool:
    """Return whether a job had no devices at a moment, and never had: only then is its start a question."""
    if live.first_start_s is not None and live.first_start_s < at_s:
        return False
    return not (live.held and live.since_s <= at_s)


def kind_of(basis: Basis) -> str:
    """Return how most run times are known that a forecast rests on."""
    counts = {"declared": basis.declared, "history": basis.history, "guess": basis.guessed}
    total = sum(counts.values())
    if not total:
        return "no other jobs"
    name = max(counts, key=lambda each: counts[each])
    return name if counts[name] >= MIXED * total else "mixed"


def _stretched(span: TimeRange | None, by: RangeCalibration, made_s: float) -> TimeRange | None:
    if span is None or span.median_s is None:
        return span
    found = by.stretch(made_s, span.median_s, span.low_s, span.high_s)
    return TimeRange(low_s=found.low_s, median_s=span.median_s, high_s=found.high_s)


def _not_before(end: TimeRange | None, start: TimeRange | None) -> TimeRange | None:
    """Return the range of an end that does not begin or end before that of the start."""
    if end is None or start is None:
        return end
    low_s = end.low_s if start.low_s is None or end.low_s is None else max(end.low_s, start.low_s)
    high_s = None if start.high_s is None or end.high_s is None else max(end.high_s, start.high_s)
    return replace(end, low_s=low_s, high_s=high_s)


def _stored(computed: TimeRange | None, shown: TimeRange | None) -> StoredRange | None:
    if computed is None or shown is None or computed.median_s is None:
        return None
    assert computed.low_s is not None, "a range with a median has a lower end"
    assert shown.low_s is not None, "a range with a median has a lower end"
    return StoredRange(
        median_s=computed.median_s,
        low_s=computed.low_s,
        high_s=computed.high_s,
        given_low_s=shown.low_s,
        given_high_s=shown.high_s,
    )
