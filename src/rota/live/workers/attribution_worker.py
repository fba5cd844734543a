"""Worker process that explains the error of past forecasts: reads the question in a folder and prints the answer."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rota.core.codec.snapshot import restore
from rota.core.engine.engine import Engine
from rota.core.errors import BuiltInFault, RotaError
from rota.core.messages import events as ev
from rota.core.messages.decisions import Decision, Start, Stop
from rota.core.model.job import JobId
from rota.core.state.state import State
from rota.drivers.simulator.study import Setting, scheduler, setting_of
from rota.forecast.costs import CostLearner
from rota.forecast.past import RanOn
from rota.forecast.speeds import PlacementLearner
from rota.live.truth.attribution import CostsThen, Hindsight, PastQuestion, TrueJob, explain
from rota.live.workers.whatif import JOURNAL
from rota.policies import find_policy
from rota.store.journal import JournalReader
from rota.traces.formats import read_trace

Json = dict[str, Any]
QUESTIONS = "questions.json"
NICE = 10
LONGEST_S = 60.0


def work() -> None:
    """Print the answer to the question in a folder, or its error, as JSON."""
    os.nice(NICE)
    folder = Path(sys.argv[1])
    try:
        answer: Json = {"causes": _causes(folder)}
    except (BuiltInFault, RotaError) as error:
        answer = {"error": str(error).replace(f"{folder}/{JOURNAL}: ", "")}
    sys.stdout.write(json.dumps(answer))


def _causes(folder: Path) -> list[Json]:
    asked = [PastQuestion(**each) for each in json.loads((folder / QUESTIONS).read_text(encoding="utf-8"))]
    if not asked:
        raise RotaError("no forecast of a start has been scored since the last restart or change of policy")
    journal = folder / JOURNAL
    types = {str(node.id): node.device_type for node in JournalReader(journal).header.cluster.nodes}
    hindsight = Hindsight(true_jobs(journal), types, PricesSoFar(journal).at)
    return [asdict(row) for row in explain(moments(journal, asked), hindsight)]


def true_jobs(journal: Path) -> list[TrueJob]:
    """Return the jobs of a journal as they really went."""
    work = {each.job.id: each.job.work for each in read_trace(journal).submissions}
    places = _places(journal)
    found: dict[JobId, TrueJob] = {}
    ordered_s: dict[tuple[type[Decision], JobId], float] = {}
    for step in JournalReader(journal).steps():
        for event in step.events:
            if isinstance(event, ev.JobArrived):
                found[event.job.id] = TrueJob(
                    job=event.job,
                    submit_s=step.now_s,
                    start_s=None,
                    end_s=None,
                    work_s=work.get(event.job.id),
                    ran_on=places.get(event.job.id),
                )
                continue
            known = found.get(getattr(event, "job_id", JobId("")))
            if known is None:
                continue
            name = known.job.id
            if isinstance(event, ev.Started):
                begun_s = ordered_s.pop((Start, name), step.now_s)
                start_s = step.now_s if known.start_s is None else known.start_s
                found[name] = replace(known, start_s=start_s, starts=(*known.starts, (begun_s, step.now_s)))
            elif isinstance(event, ev.Stopped | ev.Interrupted):
                begun_s = ordered_s.pop((Stop, name), step.now_s)
                stops = (*known.stops, (begun_s, step.now_s)) if isinstance(event, ev.Stopped) else known.stops
                found[name] = replace(known, restarts=known.restarts + 1, stops=stops)
            elif isinstance(event, ev.JobEnded):
                found[name] = replace(known, end_s=step.now_s)
        for decision in step.decisions:
            if isinstance(decision, Start | Stop):
                ordered_s[type(decision), decision.job_id] = step.now_s
    return list(found.values())


class PricesSoFar:
    """What the starts and stops of a journal had taken by a moment; moments are asked in order of time."""

    def __init__(self, journal: Path) -> None:
        reader = JournalReader(journal)
        self._in_rounds = find_policy(reader.header.scenario.policy)[0].plans_in_rounds
        with journal.open(encoding="utf-8") as lines:
            next(lines)
            self._steps = deque(json.loads(line) for line in lines)
        self._learner = CostLearner()

    def at(self, now_s: float) -> CostsThen:
        """Return what was known at a moment."""
        while self._steps and float(self._steps[0]["t"]) <= now_s:
            self._learner.take(self._steps.popleft())
        return CostsThen(
            costs=self._learner.learned().costs(in_rounds=self._in_rounds),
            orders=self._learner.order_times(),
            stops_s=self._learner.stops_under_way(),
        )


def _places(journal: Path) -> dict[JobId, RanOn]:
    """Return where jobs ran that stayed in one place."""
    learner = PlacementLearner()
    names: set[str] = set()
    with journal.open(encoding="utf-8") as lines:
        next(lines)
        for line in lines:
            step = json.loads(line)
            learner.take(step)
            names.update(decision["job_id"] for decision in step.get("out", ()))
    return {JobId(name): place for name in names if (place := learner.where(name)) is not None}


def moments(journal: Path, asked: list[PastQuestion]) -> Iterator[tuple[PastQuestion, Engine, Callable[[], Engine]]]:
    """Replay a journal, and yield the engine at the moment of each forecast; stop when it takes too long."""
    reader = JournalReader(journal)
    header = reader.header
    setting = setting_of(header.scenario, cluster=header.cluster)
    policy, alloc, _ = scheduler(header.scenario.policy, setting)
    state = State(header.cluster) if header.snapshot is None else restore(header.cluster, header.snapshot)
    engine = Engine(state, policy, alloc)
    due = sorted(asked, key=lambda each: each.made_s)
    begun_s = time.monotonic()
    for step in reader.steps():
        while due and due[0].made_s < step.now_s:
            question = due.pop(0)
            if question.job_id in engine.state.jobs:
                yield question, engine, _copier(engine, header.scenario.policy, setting)
            if time.monotonic() - begun_s > LONGEST_S:
                return
        engine.step(step.now_s, step.events)


def _copier(engine: Engine, policy: str, setting: Setting) -> Callable[[], Engine]:
    def copy() -> Engine:
        built, alloc, _ = scheduler(policy, setting)
        return engine.fork(built, allocator=alloc)

    return copy
