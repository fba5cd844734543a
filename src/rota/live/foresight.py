"""Forecasts in a process of their own: however long the queue, the loop is not held up.

The process reads the jobs' records, which say all that a restart would need, and runs them forward. It is started with
the first question, takes one after the other on its standard input, and ends with it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import asdict
from typing import Any

from rota.core.codec import decode_cluster, decode_event, encode_cluster, encode_event
from rota.core.engine import Engine
from rota.core.errors import RotaError, Unavailable
from rota.core.events import JobArrived
from rota.core.model import Job, JobId
from rota.live.boot import Scheduling, restored
from rota.live.forecast import Forecast, Span, forecast, span_of
from rota.store.database import open_database
from rota.store.records import Records

Json = dict[str, Any]
NICE = 5
"""How much less than others it may use of a busy machine."""


class Foresight:
    """The asking end."""

    def __init__(self, scheduling: Scheduling, database: str) -> None:
        self._setting = {
            "database": database,
            "cluster": encode_cluster(scheduling.cluster),
            "policy": scheduling.policy,
            "placement": scheduling.placement,
            "tenancy": scheduling.tenancy,
            "has_fixed_nodes": scheduling.has_fixed_nodes,
        }
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None

    async def ask(self, job_id: JobId, arrives: JobArrived | None = None) -> Forecast:
        """When a job will start; `arrives` is one that is only thought of."""
        question = {**self._setting, "job": job_id, "arrives": None if arrives is None else encode_event(arrives)}
        async with self._turn:
            answer = await self._ask(json.dumps(question))
        if "error" in answer:
            raise RotaError(answer["error"])
        return Forecast(**answer)

    async def _ask(self, question: str) -> Json:
        process = self._process
        if process is None or process.returncode is not None:
            process = self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                "from rota.live.foresight import main; main()",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{question}\n".encode())
        line = await process.stdout.readline()
        if not line:
            raise Unavailable("the forecast broke off; ask again")
        answer: Json = json.loads(line)
        return answer

    async def close(self) -> None:
        """No more will be asked."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


def main() -> None:
    """The answering end: a question and an answer a line, until there are no more questions."""
    os.nice(NICE)
    for line in sys.stdin:
        try:
            answer = asdict(_foresee(json.loads(line)))
        except RotaError as error:
            answer = {"error": str(error)}
        sys.stdout.write(f"{json.dumps(answer)}\n")
        sys.stdout.flush()


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
