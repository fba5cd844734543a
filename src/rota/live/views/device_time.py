"""The device time of jobs: what their tasks held so far, pauses not included."""

from __future__ import annotations

import json
from collections.abc import Iterable

from rota.core.model.job import WHOLE, JobId
from rota.live.loop.control import Control
from rota.store import clock
from rota.store.records import Records


def device_times_s(control: Control, records: Records, job_ids: Iterable[str]) -> dict[str, float]:
    """Return the device seconds of each job, by its id; those of ended jobs from the database."""
    now_s, jobs = clock.now_s(), control.state.jobs
    found: dict[str, float] = {}
    ended = []
    for job_id in job_ids:
        live = jobs.get(JobId(job_id))
        if live is None or live.state.is_final:
            ended.append(job_id)
        else:
            found[job_id] = live.attained_gpu_s(now_s)
    for job_id, text in records.live_texts(ended).items():
        found[job_id] = float(json.loads(text).get("attained_milli_s", 0.0)) / WHOLE
    return found
