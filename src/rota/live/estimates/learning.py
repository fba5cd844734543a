"""Resource needs of jobs, learned from ended jobs in a worker process, again as more jobs end.

A manager asks for estimates when a job file says `auto`, and when a user views them. The last trained worker answers at
once; no request waits for training. An estimate is used only if its measured error is within the bound, otherwise the
default amounts are. What a user asked for is never changed. No job gets less memory than a similar job ran out of.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rota.core.errors import RotaError, Unavailable
from rota.core.model.job import WHOLE, JobId, JobState
from rota.estimate.estimator import Estimator, RunEstimate
from rota.files.auto import USUAL, autos, settled
from rota.files.job import job_file, job_of
from rota.files.job_shape import JobFile
from rota.files.quantities import parse_bytes
from rota.live.estimates.oom_history import Least, OomHistory
from rota.live.estimates.past_use import MB, PREDICTED, attributes, past_uses
from rota.live.loop.entry import News
from rota.live.workers.worker_process import Json, WorkerProcess, answer_all
from rota.perf.speed.busy_fraction import LABEL as UTILIZATION
from rota.store.database import open_database
from rota.store.records import Records

log = logging.getLogger("rota.live")
BOUND = 0.25
FEWEST = 8
AGAIN_AFTER = 3
"""After how many more succeeded jobs the estimators are trained again."""
PATIENCE_S = 2.0
"""How long a submission waits for an answer of the trained estimators."""
LONG_S = 60.0
"""Training that takes longer is logged."""
REST = 4.0
"""Pause after training, as a multiple of the time that it took."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 10.0, 3600.0
"""Pause after training failed."""
LOWEST_PRIORITY = 19
MOST_CACHED = 1000
"""How many answers are cached until the next training."""


class Learning:
    """Client of the workers: one process answers; another is trained, and then takes its place."""

    def __init__(
        self,
        records: Records,
        home: Path,
        bound: float = BOUND,
        *,
        predicts_use: bool = False,
        largest: Callable[[str], int | None] = lambda field: None,
        module: str = __name__,
    ) -> None:
        self._records = records
        self._module = module
        self._setting = {"database": records.url, "home": str(home)}
        self._answers: WorkerProcess | None = None
        """The worker that was trained last; None before the first one."""
        self._learns: WorkerProcess | None = None
        self._more = AGAIN_AFTER
        """Succeeded jobs since the last training; at the start one training is due."""
        self._news = asyncio.Event()
        self._news.set()
        self._cached: dict[Hashable, dict[str, RunEstimate]] = {}
        """Cached answers by question, since the jobs of an array are alike."""
        self.bound = bound
        self._predicts_use = predicts_use
        """Whether the policy lets jobs share devices by how busy they will keep them."""
        self._shortfalls = OomHistory(records, largest)

    # -- learning --------------------------------------------------------------------------------

    def noticed(self, news: Sequence[News]) -> None:
        """Count succeeded jobs among changed ones."""
        more = sum(each.state == JobState.SUCCEEDED.value for each in news)
        if more:
            self._more += more
            self._news.set()

    async def run(self) -> None:
        """Train whenever enough more jobs have succeeded, with pauses, until cancelled."""
        loop = asyncio.get_running_loop()
        pause_s = FIRST_PAUSE_S
        while True:
            count = await self._due()
            begun_s = loop.time()
            try:
                await self._learn(count)
            except Unavailable as error:
                log.warning("learning broke off", extra={"why": str(error), "again_in_s": pause_s})
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                self._must_learn()
                continue
            except RotaError as error:
                log.info("nothing was learned", extra={"why": str(error)})
            pause_s = FIRST_PAUSE_S
            await asyncio.sleep(REST * (loop.time() - begun_s))

    async def _due(self) -> int:
        """Wait until enough more jobs have succeeded; return how many."""
        while True:
            await self._news.wait()
            self._news.clear()
            if self._more < AGAIN_AFTER:
                continue
            count = await asyncio.to_thread(self._records.succeeded_count)
            if count >= FEWEST:
                self._more = 0
                return count

    async def _learn(self, count: int) -> None:
        """Train a worker; meanwhile questions are answered by the previous one."""
        pupil = self._learns = WorkerProcess(self._module)
        work = asyncio.ensure_future(pupil.ask({**self._setting, "learn": True}))
        try:
            if not (await asyncio.wait((work,), timeout=LONG_S))[0]:
                log.warning("learning takes long", extra={"jobs": count, "seconds": LONG_S})
            await work
        except BaseException:
            work.cancel()
            await pupil.close()
            raise
        finally:
            self._learns = None
        before, self._answers, self._cached = self._answers, pupil, {}
        if before is not None:
            await before.retire()

    # -- asking ----------------------------------------------------------------------------------

    async def estimates(self, spec: Mapping[str, Any]) -> dict[str, RunEstimate]:
        """Return by job file field what a task will probably need; empty before the first training."""
        return (await self._ask(spec))[0]

    async def _ask(self, spec: Mapping[str, Any]) -> tuple[dict[str, RunEstimate], str]:
        """Return estimates by field, and why other fields have none."""
        nothing = "nothing was learned of it yet"
        helper = self._answers
        if helper is None:
            return {}, nothing
        flags = attributes(spec)
        key = tuple(sorted(flags.items()))
        if key in self._cached:
            return self._cached[key], nothing
        asked = asyncio.ensure_future(helper.ask({"attributes": flags}))
        asked.add_done_callback(_look_at_error)
        try:
            answer = await asyncio.wait_for(asyncio.shield(asked), PATIENCE_S)
        except TimeoutError:
            return {}, f"there was no estimate within {PATIENCE_S:g} s"
        except RotaError as error:
            return {}, str(error)
        except Unavailable as error:
            if self._answers is helper:  # it has exited, and with it what it had learned
                self._answers, self._cached = None, {}
                self._must_learn()
            return {}, str(error)
        found = {field: _estimate(answer[label]) for field, label in PREDICTED.items() if label in answer}
        if self._answers is helper and len(self._cached) < MOST_CACHED:
            self._cached[key] = found
        return found, nothing

    def _must_learn(self) -> None:
        self._more = AGAIN_AFTER
        self._news.set()

    async def settle(self, values: Json, file: JobFile) -> Json:
        """Return a job file with an amount in place of each `auto`, and the source of each.

        For a policy that shares devices by use, a job of one GPU gets what is known of its use, too.
        """
        if not autos(values) and not (self._predicts_use and shares_by_use(values, file)):
            return values
        known, nothing = await self._ask(values)
        least = await asyncio.to_thread(self._shortfalls.least, values)
        return settled_by(known, values, self.bound, least, nothing=nothing, predicts_use=self._predicts_use, file=file)

    async def close(self) -> None:
        """Close the workers; no more questions follow."""
        for helper in (self._answers, self._learns):
            if helper is not None:
                await helper.close()


def _look_at_error(asked: asyncio.Future[Json]) -> None:
    """Retrieve the error of a question, whose caller may have stopped waiting."""
    if not asked.cancelled():
        asked.exception()


def _estimate(answer: Json) -> RunEstimate:
    return RunEstimate(**{**answer, "outside": tuple(answer["outside"])})


def amount(field: str, found: RunEstimate) -> float:
    """What is asked for: memory by the upper end, for want of it ends a job; of the others the likely amount."""
    match field:
        case "gpus":
            return max(round(found.value), 0)
        case "cpus":
            return max(math.ceil(found.value), 1)
        case _:
            return math.ceil(found.high / 16) * 16 * MB


NOTHING_RAN_OUT: Mapping[str, Least] = {}


def settled_by(
    known: Mapping[str, RunEstimate],
    values: Json,
    bound: float,
    least: Mapping[str, Least] = NOTHING_RAN_OUT,
    *,
    nothing: str = "",
    predicts_use: bool = False,
    file: JobFile | None = None,
) -> Json:
    """A job file with what estimates of it are worth, and no less memory than a job like it ran out of."""
    use = known.get(UTILIZATION)
    if predicts_use and shares_by_use(values, file or job_file(values)) and use is not None and use.is_trusted(bound):
        values = _with_use(values, use, known.get("gpu_memory"), bound, least)
    amounts: dict[str, object] = {}
    estimated: dict[str, Json] = {}
    for field in autos(values):
        found = known.get(field)
        why = nothing if found is None else found.doubt(bound)
        amounts[field] = amount(field, found) if found is not None and found.is_trusted(bound) else USUAL[field]
        if field in least and parse_bytes(amounts[field]) < least[field].amount:
            amounts[field], why = least[field].amount, least[field].why
        error = None if found is None else found.error
        estimated[field] = {"given": amounts[field], "trusted": not why, "error": error, "why": why or None}
    return (
        {**settled(values, amounts), "estimated": {**values.get("estimated", {}), **estimated}} if estimated else values
    )


def shares_by_use(values: Mapping[str, Any], file: JobFile) -> bool:
    """Whether a job could share its GPU by how busy it keeps it: one task with one GPU, which does not say itself."""
    if not isinstance(values.get("resources"), dict) or values.get("roles") or "gpus" in autos(values):
        return False
    job = job_of(file, JobId("asked"))
    return job.tasks == 1 and job.gpu_milli == WHOLE and UTILIZATION not in dict(job.labels)


def _with_use(
    values: Json, use: RunEstimate, memory: RunEstimate | None, bound: float, least: Mapping[str, Least]
) -> Json:
    """The job file with how busy it will keep its GPU, and how much of its memory it needs if it does not say."""
    busy = round(min(use.value / 100, 1.0), 2)
    estimated: Json = {UTILIZATION: {"given": busy, "trusted": True, "error": use.error}}
    resources = dict(values["resources"])
    if "gpu_memory" not in resources and memory is not None and memory.is_trusted(bound):
        short = least.get("gpu_memory")
        resources["gpu_memory"] = max(int(amount("gpu_memory", memory)), 0 if short is None else short.amount)
        estimated["gpu_memory"] = {"given": resources["gpu_memory"], "trusted": True, "error": memory.error}
    labels = {**(values.get("labels") or {}), UTILIZATION: str(busy)}
    return {**values, "labels": labels, "resources": resources, "estimated": estimated}


def in_units(field: str, found: RunEstimate) -> Json:
    """An estimate in GPUs, CPUs or bytes."""
    unit = MB if field in ("memory", "gpu_memory") else 1
    return {
        "value": found.value * unit,
        "low": found.low * unit,
        "high": found.high * unit,
        "error": found.error,
    }


def main() -> None:
    """Run the worker."""
    answer_all(_Learner().answer)


class _Learner:
    """Trains once, then answers questions."""

    def __init__(self) -> None:
        self._estimator = Estimator((), {})

    def answer(self, question: Json) -> Json:
        if "learn" in question:
            # A thread has its own priority: training yields to all other work, answering does not.
            with ThreadPoolExecutor(1, initializer=_yield_to_others) as alone:
                self._estimator = alone.submit(learn, question["database"], Path(question["home"])).result()
            return {"runs": len(self._estimator.runs)}
        from rota.estimate.forest import one_thread

        with one_thread():
            return {
                label: asdict(self._estimator.predict(label, question["attributes"])) for label in self._estimator.trust
            }


def _yield_to_others() -> None:
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST_PRIORITY)


def learn(database: str, home: Path) -> Estimator:
    """What the jobs in a manager's records teach, ready to be asked."""
    from rota.estimate.forest import one_thread
    from rota.estimate.score import labels_in

    records = Records(open_database(database))
    try:
        runs = [use.run for use in past_uses(records, home)]
    finally:
        records.close()
    with one_thread():
        estimator = Estimator.learn(runs, [label for label in labels_in(runs) if label in PREDICTED.values()])
        for label in estimator.trust:
            estimator.predict(label, runs[0].attributes)  # grows the forests
    return estimator
