"""Forecasts in a worker process, so that a long queue does not block the loop.

The process reads the jobs' records, which say all that a restart would need, and runs them forward. It is started with
the first question, takes one after the other on its standard input, and ends with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from rota.core.codec.values import decode_cluster, decode_event, encode_cluster, encode_event
from rota.core.engine.engine import Engine
from rota.core.messages.events import JobArrived
from rota.core.model.job import Job, JobId
from rota.forecast.value import Forecast, decode_forecast, encode_forecast
from rota.live.loop.boot import Scheduling, restored
from rota.live.workers.forecast import Span, forecast, span_of
from rota.live.workers.worker_process import Json, WorkerProcess, answer_all
from rota.store.database import open_database
from rota.store.records import Records


class ForecastWorker:
    """Client of the worker."""

    def __init__(self, scheduling: Scheduling, database: str) -> None:
        self._setting = {
            "database": database,
            "cluster": encode_cluster(scheduling.cluster),
            "policy": scheduling.policy,
            "placement": scheduling.placement,
            "tenancy": scheduling.tenancy,
            "has_fixed_nodes": scheduling.has_fixed_nodes,
        }
        self._helper = WorkerProcess("rota.live.workers.forecast_worker")

    async def ask(self, job_id: JobId, arrives: JobArrived | None = None) -> Forecast:
        """Return when a job will start; `arrives` is a hypothetical job."""
        question = {**self._setting, "job": job_id, "arrives": None if arrives is None else encode_event(arrives)}
        return decode_forecast(await self._helper.ask(question))

    async def ask_many(self, job_ids: Sequence[JobId]) -> dict[JobId, Forecast]:
        """Return the forecasts of several jobs."""
        return {job_id: await self.ask(job_id) for job_id in job_ids}

    async def close(self) -> None:
        """Stop the worker."""
        await self._helper.close()


def main() -> None:
    """Run the worker."""
    answer_all(lambda question: encode_forecast(_foresee(question)))


def _foresee(question: Json) -> Forecast:
    scheduling = Scheduling(
        cluster=decode_cluster(question["cluster"]),
        policy=question["policy"],
        placement=question["placement"],
        tenancy=question["tenancy"],
        has_fixed_nodes=question["has_fixed_nodes"],
    )
    records = Records(open_database(question["database"]))
    try:
        was = restored(records, scheduling)
        past = records.past_runs()
    finally:
        records.close()
    engine = was.engine()

    def copy() -> Engine:
        policy, alloc = was.build()
        return engine.fork(policy, allocator=alloc)

    def span(job: Job) -> Span:
        return span_of(job, past.get((job.tenant, job.name), []))

    arrives = None if question["arrives"] is None else decode_event(question["arrives"])
    assert arrives is None or isinstance(arrives, JobArrived)
    return forecast(copy, JobId(question["job"]), span, arrives=arrives)
