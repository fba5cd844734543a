"""How forecasts and simulations compare with what happened: for `rota truth`, the dashboard and Prometheus."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.live.loop.boot import Scheduling
from rota.live.truth.attribution import CauseRow
from rota.live.truth.keeper import ForecastKeeper
from rota.live.truth.scores import KEYS, ScoredMoment, TruthRow, over_time, rows_by, score, summary
from rota.live.workers.whatif import JOURNAL, Answer, WhatIf, run_worker
from rota.store import clock
from rota.store.forecasts import StoredForecast
from rota.store.records import Records

Json = dict[str, Any]
DAY_S = 86400.0
FRESH_S = 600.0
"""How old a comparison with a simulation may be before it is computed again."""
METRICS_FRESH_S = 15.0
MOST_EXPLAINED = 24
"""Past forecasts that are made again to explain their error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TruthTables:
    """The scores of forecasts of one moment: of all, by group, and over time."""

    days: float
    moment: ScoredMoment
    kept: int
    """Forecasts that were made in the period, scored or not."""
    all: TruthRow
    groups: dict[str, list[TruthRow]]
    over_time: list[TruthRow]

    def encode(self) -> Json:
        """The tables as JSON values."""
        return {**asdict(self), "moment": self.moment.value}


class Truth:
    """The scores of a manager's forecasts, and its simulations against what happened."""

    def __init__(self, records: Records, scheduling: Scheduling, keeper: ForecastKeeper) -> None:
        self._records = records
        self._scheduling = scheduling
        self._keeper = keeper
        self._what_if = WhatIf(records, scheduling)
        self._explaining = asyncio.Lock()
        self._last: tuple[float, float, Answer] | None = None
        self._scraped: tuple[float, dict[ScoredMoment, TruthRow]] | None = None

    async def tables(self, days: float, moment: ScoredMoment, tenants: Sequence[str] | None = None) -> TruthTables:
        """Return the scores of the last days; `tenants` limits them to those that a caller may see."""
        now_s = clock.now_s()
        kept = await asyncio.to_thread(self._records.forecasts.since, now_s - days * DAY_S, tenants=tenants)
        return tables_of(kept, days, moment, now_s)

    def factors(self) -> Json:
        """Return by how much the ranges of the present policy are stretched, below and above the median."""
        policy = self._scheduling.policy
        found = {}
        for moment, calibration in (
            (ScoredMoment.START, self._keeper.calibration.starts(policy)),
            (ScoredMoment.END, self._keeper.calibration.ends(policy)),
        ):
            found[moment.value] = {
                "below": calibration.below.value,
                "above": calibration.above.value,
                "seen": calibration.below.seen,
            }
        return {"policy": policy, **found}

    async def simulated(self, cluster: Cluster, days: float) -> Answer:
        """Simulate the jobs of the last days under the present policy, and compare with what happened."""
        now_s = clock.now_s()
        if self._last is not None and self._last[1] == days and now_s - self._last[0] < FRESH_S:
            return self._last[2]
        present = await asyncio.to_thread(self._what_if.present, cluster)
        answer = await self._what_if.ask(present, [], days, since_policy=True)
        self._last = (now_s, days, answer)
        return answer

    async def causes(self, days: float) -> list[CauseRow]:
        """Return what explains the error of starts, from forecasts of the present journal segment."""
        if self._explaining.locked():
            raise RotaError("the error of forecasts is being explained already; try again when that is done")
        async with self._explaining:
            with tempfile.TemporaryDirectory(prefix="rota-truth-") as folder:
                await asyncio.to_thread(self._write_question, Path(folder), clock.now_s() - days * DAY_S)
                found = await run_worker("attribution_worker", Path(folder))
        return [CauseRow(**row) for row in found["causes"]]

    def _write_question(self, folder: Path, since_s: float) -> None:
        """Write the journal since the last restart or change of policy, and a sample of its forecasts."""
        first, header = self._records.segments()[-1]
        begun_s = (header.get("snapshot") or {}).get("now_s", 0.0)
        kept = [
            {"job_id": each.job_id, "made_s": each.made_s, "started_s": each.started_s}
            for each in self._records.forecasts.since(max(since_s, begun_s))
            if each.start is not None and each.started_s is not None and each.started_s > each.made_s
        ]
        every = max(-(-len(kept) // MOST_EXPLAINED), 1)
        (folder / "questions.json").write_text(json.dumps(kept[::every]), encoding="utf-8")
        with (folder / JOURNAL).open("w", encoding="utf-8") as file:
            file.write(json.dumps(header, separators=(",", ":")) + "\n")
            for body in self._records.steps(first):
                file.write(body + "\n")

    def scraped(self) -> dict[ScoredMoment, TruthRow]:
        """Return the scores of the last day, for scrapers; read again after some seconds."""
        now_s = clock.now_s()
        if self._scraped is None or now_s - self._scraped[0] > METRICS_FRESH_S:
            kept = self._records.forecasts.since(now_s - DAY_S)
            found = {moment: tables_of(kept, 1.0, moment, now_s).all for moment in ScoredMoment}
            self._scraped = (now_s, found)
        return self._scraped[1]


def tables_of(kept: Sequence[StoredForecast], days: float, moment: ScoredMoment, now_s: float) -> TruthTables:
    """Return the scores of forecasts as tables."""
    scores = [found for each in kept if (found := score(each, moment, now_s)) is not None]
    return TruthTables(
        days=days,
        moment=moment,
        kept=len(kept),
        all=summary("all", scores),
        groups={name: rows_by(scores, key) for name, key in KEYS.items()},
        over_time=over_time(scores, days * DAY_S),
    )
