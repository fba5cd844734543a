"""Forecasts in a worker process, so that a long queue does not block the loop.

The process reads the jobs' records, which say all that a restart would need, and runs them forward in forks of itself.
What ended jobs and the journal teach is kept from one question to the next. It is started with the first question,
takes one after the other on its standard input, and ends with it.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

from rota.core.codec.values import decode_cluster, decode_event, decode_job, encode_cluster, encode_event
from rota.core.engine.engine import Engine
from rota.core.errors import RotaError
from rota.core.messages.events import JobArrived
from rota.core.model.job import Job, JobId, JobState
from rota.files.network.network_file import network_from_spec
from rota.forecast.arrivals import Arrivals
from rota.forecast.costs import CostLearner
from rota.forecast.durations import RunTimes
from rota.forecast.forks import in_forks
from rota.forecast.past import PastRun, kind_of
from rota.forecast.predict import Assumptions, Budget, Question, done_s, predict
from rota.forecast.queue_sample import QueueSample
from rota.forecast.speeds import PlacementLearner, at_reference, observed_speeds
from rota.forecast.value import Forecast, decode_forecast, encode_forecast
from rota.live.loop.boot import Restored, Scheduling, restored
from rota.live.reservations.forecasts import ForeseenReservations, foreseen
from rota.live.reservations.stored import reservations_in
from rota.live.workers.fair_turns import MANAGER
from rota.live.workers.long_queue import LongQueue, QueuePace
from rota.live.workers.node_demand import NodeDemand, node_demand
from rota.live.workers.worker_process import Json, WorkerProcess, answer_all
from rota.network.model import NetworkModel
from rota.store import clock
from rota.store.database import open_database
from rota.store.records import Records

log = logging.getLogger("rota.live")
MOST_PAST = 2000
"""How many of the latest ended jobs forecasts learn from."""
MOST_STEPS = 4000
"""How many of the latest steps of the journal tell what starts and stops cost."""
BUDGET = Budget(runs=80, seconds=0.6)
MOST_PROCESSES = 4
LONGEST_COMMAND = 200


class ForecastWorker:
    """Client of the worker."""

    def __init__(
        self,
        scheduling: Scheduling,
        database: str,
        order: Callable[[], Sequence[str] | None] | None = None,
        *,
        estimates_are_limits: bool = False,
    ) -> None:
        """`order` returns the waiting jobs as another scheduler ranks them; None where that is by submission.

        `estimates_are_limits` is for jobs whose time limits are another scheduler's, and are their estimates here.
        """
        self._order = order
        self._setting: Json = {
            "database": database,
            "cluster": encode_cluster(scheduling.cluster),
            "policy": scheduling.policy,
            "placement": scheduling.placement,
            "tenancy": scheduling.tenancy,
            "has_fixed_nodes": scheduling.has_fixed_nodes,
            "network": scheduling.network,
            "estimates_are_limits": estimates_are_limits,
        }
        self._helper = WorkerProcess("rota.live.workers.forecast_worker")

    async def ask(self, job_id: JobId, arrives: JobArrived | None = None, asker: str = MANAGER) -> Forecast:
        """Return when a job will start and end; `arrives` is a hypothetical job."""
        question = {**self._setting, "job": job_id, "arrives": None if arrives is None else encode_event(arrives)}
        question["shift_s"] = clock.shift_s()
        if self._order is not None and (ranked := self._order()) is not None:
            question["order"] = list(ranked)
        return decode_forecast(await self._helper.ask(question, asker))

    async def more_nodes(self, job_id: JobId) -> list[NodeDemand]:
        """Return the nodes that would start a waiting job."""
        found = await self._helper.ask({**self._setting, "job": job_id, "arrives": None, "nodes": True})
        return [NodeDemand(**each) for each in found["demand"]]

    async def close(self) -> None:
        """Stop the worker."""
        await self._helper.close()


def main() -> None:
    """Run the worker."""
    forecaster = Forecaster()
    gc.disable()  # a forward run makes many objects and no cycles
    answer_all(forecaster.reply)


def ranked(rows: Sequence[Any], order: Iterable[str]) -> Sequence[Any]:
    """Give the rows of waiting jobs the places in the order of submission that another scheduler's ranks say.

    Jobs that are not ranked keep theirs.
    """
    place = {name: index for index, name in enumerate(order)}
    found = [(row, json.loads(row.live)) for row in rows if row.id in place and row.state == JobState.WAITING.value]
    seqs = sorted(value["seq"] for _, value in found)
    found.sort(key=lambda pair: place[pair[0].id])
    moved = {
        row.id: SimpleNamespace(**{**row._asdict(), "seq": seq, "live": json.dumps({**value, "seq": seq})})
        for (row, value), seq in zip(found, seqs, strict=True)
    }
    return [moved.get(row.id, row) for row in rows]


class Forecaster:
    """Answers questions from the records, and keeps what they taught."""

    def __init__(self) -> None:
        self._past: dict[str, PastRun] = {}
        self._ended_s = 0.0
        self._costs = CostLearner()
        self._placements = PlacementLearner()
        self._pace = QueuePace()
        self._step = -1
        self._networks: tuple[tuple[str, tuple[str, ...]], NetworkModel | None] | None = None
        self._changes: Callable[[Engine], ForeseenReservations] | None = None
        """What reservations do in forward runs."""
        self._commands: dict[JobId, tuple[str, str]] = {}
        """The job files of unfinished jobs, and their commands."""

    def reply(self, question: Json) -> Json:
        """Return the forecast, or the nodes, that a question asks for."""
        if not question.get("nodes"):
            return encode_forecast(self.answer(question))
        records = Records(open_database(question["database"]))
        try:
            was = restored(records, _scheduling(question))
        finally:
            records.close()
        return {"demand": [asdict(each) for each in node_demand(was, JobId(question["job"]))]}

    def answer(self, question: Json) -> Forecast:
        """Return the forecast that a question asks for."""
        scheduling = _scheduling(question)
        arrives = None if question["arrives"] is None else decode_event(question["arrives"])
        assert arrives is None or isinstance(arrives, JobArrived)
        asked = Question(job_id=JobId(question["job"]), arrives=None if arrives is None else arrives.job)
        records = Records(open_database(question["database"]))
        try:
            needed = () if asked.arrives is None else asked.arrives.depends_on
            most = self._pace.most(scheduling.policy, BUDGET.seconds * _processes())
            queue = LongQueue([asked.job_id, *needed], most)
            was = restored(records, scheduling, lambda rows: ranked(queue(rows), question.get("order", ())))
            self._learn(records)
            limits: dict[JobId, float] | None = None
            if question.get("estimates_are_limits"):
                jobs = [live.job for live in was.state.jobs.values()] + ([asked.arrives] if asked.arrives else [])
                limits = {job.id: job.estimate_s for job in jobs if job.estimate_s is not None}
            self._changes = foreseen(reservations_in(records), question.get("shift_s", 0.0), limits)
        finally:
            records.close()
        begun_s = time.monotonic()
        found = self.forecast(was, asked, queue)
        took_s = (time.monotonic() - begun_s) * _processes()
        self._pace.see(scheduling.policy, len(was.state.jobs), found.basis.runs, took_s)
        return found

    def forecast(self, was: Restored, asked: Question, queue: LongQueue, budget: Budget = BUDGET) -> Forecast:
        """Return the forecast from a restored state."""
        engine = was.engine()

        def copy() -> Engine:
            policy, alloc = was.build()
            return engine.fork(policy, allocator=alloc)

        found = predict(
            engine, copy, asked, self.assumptions(was, queue), budget=budget, sampler=in_forks(_processes())
        )
        gc.collect()
        return found

    def assumptions(self, was: Restored, queue: LongQueue | None = None) -> Assumptions:
        """Return what was learned up to now; `queue` says which of many waiting jobs were restored."""
        now_s = was.state.now_s
        waiting = [
            PastRun(
                job=live.job,
                submit_s=live.submitted_s,
                command=self._command_of(live.job),
                done_s=done_s(live, now_s),
            )
            for live in was.state.jobs.values()
            if not live.state.is_final
        ]
        type_of = {str(account.node.id): account.node.device_type for account in was.state.inventory.nodes}
        ended = list(self._past.values())
        speed = observed_speeds(ended, type_of)
        over = [at_reference(run, speed, type_of) for run in ended]
        past = [*over, *waiting]
        costs = self._costs.learned(past)
        latest = None if queue is None else queue.latest
        return Assumptions(
            speed=speed,
            rerate=True,
            times=RunTimes(past),
            arrivals=Arrivals(past if latest is None else [*over, *latest], now_s),
            sample=QueueSample() if queue is None else queue.sample,
            costs=costs.costs(in_rounds=was.in_rounds),
            startup_s=costs.startup_s or 0.0,
            changes=self._changes,
            orders=self._costs.order_times(),
            stops_s=self._costs.stops_under_way(),
            command_of=self._command_of,
            network=self._network(was),
        )

    def _network(self, was: Restored) -> NetworkModel | None:
        """Return the network between the present nodes; None without one that connects all of them."""
        if was.network is None:
            return None
        names = tuple(str(account.node.id) for account in was.state.inventory.nodes)
        if self._networks is None or self._networks[0] != (was.network, names):
            found: NetworkModel | None = None
            try:
                found = network_from_spec(was.network, names)
                found.topology.check_nodes(names, found.source)
            except RotaError as error:
                log.warning("forecasts do without the network", extra={"why": str(error)})
                found = None
            self._networks = ((was.network, names), found)
        return self._networks[1]

    def _command_of(self, job: Job) -> str:
        return self._commands.get(job.id, ("", ""))[1]

    def _learn(self, records: Records) -> None:
        """Take in what ended and happened since the last question."""
        for number, body in records.last_steps(self._step, MOST_STEPS):
            step = json.loads(body)
            self._costs.take(step)
            self._placements.take(step)
            self._step = number
        for row in reversed(records.ended_since(self._ended_s, MOST_PAST)):
            if row.id not in self._past:
                self._past[row.id] = replace(past_run(row), ran_on=self._placements.where(row.id))
            self._placements.forget(row.id)
            self._ended_s = max(self._ended_s, row.ended_s)
        for old in list(self._past)[: max(len(self._past) - MOST_PAST, 0)]:
            del self._past[old]
        before = self._commands
        self._commands = {}
        for name, spec in records.specs_of_unfinished().items():
            known = before.get(JobId(name))
            is_same = known is not None and known[0] == spec
            self._commands[JobId(name)] = (
                known if known is not None and is_same else (spec, command_of(json.loads(spec)))
            )


def _scheduling(question: Json) -> Scheduling:
    return Scheduling(
        cluster=decode_cluster(question["cluster"]),
        policy=question["policy"],
        placement=question["placement"],
        tenancy=question["tenancy"],
        has_fixed_nodes=question["has_fixed_nodes"],
        network=question["network"],
    )


def past_run(row: Any) -> PastRun:
    """Return what an ended job's record teaches."""
    live = json.loads(row.live)
    restarts = live.get("preemptions", 0) + live.get("restarts", 0)
    work_s = live.get("work", 0.0) or (live.get("ran_s", 0.0) if not restarts else 0.0)
    return PastRun(
        job=decode_job(json.loads(row.job)),
        submit_s=row.submitted_s,
        work_s=work_s or None,
        command=command_of(json.loads(row.spec)),
        restarts=restarts,
    )


def command_of(spec: Mapping[str, Any]) -> str:
    """Return the command of a job file without its digits, which count repetitions."""
    roles = spec.get("roles") or {}
    command = spec.get("run") or next((role["run"] for role in roles.values() if role.get("run")), "")
    text = command if isinstance(command, str) else " ".join(map(str, command))
    return kind_of(text[:LONGEST_COMMAND])


def _processes() -> int:
    return min(len(os.sched_getaffinity(0)), MOST_PROCESSES)
