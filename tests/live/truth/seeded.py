"""Forecasts with outcomes, for tests of what shows them."""

from __future__ import annotations

import random
import time
from typing import Any

from rota.store.forecasts import StoredForecast, StoredRange
from rota.store.records import Records, WriteBatch

DAY_S = 86400.0


def stored(*, start: StoredRange | None = None, made_s: float = 0.0, **more: Any) -> StoredForecast:
    """Return a forecast at submission of a small job; `more` names other fields."""
    fields: dict[str, Any] = {
        "job_id": "1",
        "tenant": "default",
        "cause": "submission",
        "policy": "fifo",
        "basis": "declared",
        "gpus": 1.0,
        "end": None,
    }
    return StoredForecast(**(fields | more), made_s=made_s, start=start)


def seeded(count: int, *, days: float = 1.0, seed: int = 1, policy: str = "priority") -> list[StoredForecast]:
    """Return forecasts of the last days: four fifths covered, errors of about a tenth."""
    rng = random.Random(seed)
    now_s = time.time()
    made = []
    for number in range(count):
        made_s = now_s - days * DAY_S * (1.0 - number / count)
        lead_s = rng.lognormvariate(6.0, 1.5)
        median_s = made_s + lead_s
        low_s, high_s = median_s - 0.2 * lead_s, median_s + 0.3 * lead_s
        started_s = max(median_s + rng.gauss(0.0, 0.18) * lead_s, made_s)
        ended_s = started_s + 60.0
        made.append(
            StoredForecast(
                job_id=f"past-{number}",
                tenant=rng.choice(("vision", "nlp")),
                cause="submission",
                policy=policy if number > count / 3 else "fifo:backfill=true",
                basis=rng.choice(("declared", "history", "mixed")),
                gpus=rng.choice((1.0, 2.0, 8.0)),
                made_s=made_s,
                start=StoredRange(
                    median_s=median_s, low_s=low_s, high_s=high_s, given_low_s=low_s, given_high_s=high_s
                ),
                end=None,
                state="succeeded",
                started_s=started_s,
                ended_s=ended_s,
            )
        )
    return made


def write_seeded(records: Records, count: int, **more: float) -> None:
    """Write forecasts with outcomes."""
    rows = [each.encode() for each in seeded(count, days=more.get("days", 1.0))]
    records.write(WriteBatch(forecasts=rows))()
