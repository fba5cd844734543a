"""Worker process of what-ifs: reads the question in a folder and prints the answer."""

from __future__ import annotations

import json
import math
import os
import random
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from rota.core.errors import BuiltInFault, RotaError
from rota.core.model.job import JobId
from rota.core.state.history import History
from rota.drivers.simulator.study import Setting, oversized, simulate
from rota.forecast.durations import RunTimes
from rota.forecast.past import PastRun
from rota.live.reservations.forecasts import foreseen
from rota.live.reservations.reservation import decode_reservation
from rota.live.workers.what_happened import UNKNOWN, SimulationError, error_of, what_happened
from rota.live.workers.whatif import JOURNAL, SCENARIOS, setting_with
from rota.report.metrics import measure
from rota.report.series import cdf
from rota.scenario import decode_scenario
from rota.traces.formats import read_trace
from rota.traces.workload import Submission, Workload

Json = dict[str, Any]
NICE = 10
POINTS = 200
LEAST_LEFT = 0.1
"""The least part of a job's work that is not taken for what restarts added."""
GUESSES = 31
"""How many draws the length of a job that has not ended is the median of."""
MOVED_S = 0.02
"""By how much submissions come later at most, to see what depends on coincidences."""
MOVES = 6
MOVES_S = 3.0
"""How often the present policy is simulated again for that, and in how much time."""


def work() -> None:
    """Print the answer to the question in a folder, or its error, as JSON."""
    os.nice(NICE)
    folder = Path(sys.argv[1])
    try:
        answer = _answer(folder)
    except (BuiltInFault, RotaError) as error:
        answer = {"error": str(error).replace(f"{folder}/journal.jsonl: ", "")}
    sys.stdout.write(json.dumps(answer))


def _answer(folder: Path) -> Json:
    question = json.loads((folder / SCENARIOS).read_text(encoding="utf-8"))
    scenarios = [decode_scenario(value) for value in question["scenarios"]]
    workload = read_trace(folder / JOURNAL)
    settings = [setting_with(scenario) for scenario in scenarios]
    everything = [*workload.submissions, *workload.unfinished]
    misfits = {job.id for setting in settings for job, _ in oversized(everything, setting)}
    kept = tuple(each for each in workload.submissions if each.job.id not in misfits)
    if not kept:
        raise RotaError("no job of these days would fit")
    known = [without_restarts(each, question["added_s"]) for each in kept]
    guessed = [each for each in with_guessed_work(known, workload.unfinished) if each.job.id not in misfits]
    submissions = sorted([*known, *guessed], key=lambda each: each.submit_s)
    first_s = submissions[0].submit_s
    fitting = replace(
        workload, submissions=tuple(replace(each, submit_s=each.submit_s - first_s) for each in submissions)
    )
    reservations = [decode_reservation(each) for each in question["reservations"]]
    wall_s = question["shift_s"] + workload.began_s + first_s  # where these submissions begin
    settings = [replace(each, outside=foreseen(reservations, wall_s, workload.time_limits)) for each in settings]
    carried = frozenset([*question["carried"], *(each.job.id for each in guessed)])
    runs = [
        _without(simulate(fitting, scenario.policy, setting).history, carried)
        for scenario, setting in zip(scenarios, settings, strict=True)
    ]
    sides = [
        _side(scenario.policy, run, setting.cluster.devices, measure(run).encode())
        for scenario, run, setting in zip(scenarios, runs, settings, strict=True)
    ]
    moved = [_without(run, carried) for run in _by_chance(fitting, scenarios[0].policy, settings[0])]
    real, distance = _compared(folder, runs[0], moved, scenarios[0].policy, settings[0], question["compare_from_s"])
    return {
        "jobs": len(runs[0].jobs),
        "left_out": workload.left_out + len(misfits),
        "sides": sides,
        "real": real,
        "distance": None if distance is None else asdict(distance),
    }


def without_restarts(found: Submission, added_s: float) -> Submission:
    """Take off the work that each restart added to a job that saves: a simulation adds it for restarts of its own."""
    checkpoint, stops = found.job.checkpoint, 0 if found.delays is None else len(found.delays.stops_s)
    saves = checkpoint is not None and checkpoint.interval_s < math.inf and checkpoint.resume_s is None
    if not (saves and stops and added_s):
        return found
    work = max(found.target - stops * added_s, LEAST_LEFT * found.target)
    return replace(found, job=replace(found.job, work=work))


def with_guessed_work(ended: Sequence[Submission], unfinished: Sequence[Submission]) -> list[Submission]:
    """Let jobs that had not ended run for as long as is likely: they took devices from the others all the while.

    They run for longer than they had by then, and those that have hardly run as long as those like them.
    """
    past = [PastRun(job=each.job, submit_s=each.submit_s, work_s=each.target) for each in ended]
    past += [PastRun(job=each.job, submit_s=each.submit_s, done_s=each.target) for each in unfinished]
    times = RunTimes(past)
    found = []
    for each in unfinished:
        work = median(times.draw(run, each.job, done_s=each.target) for run in range(GUESSES))
        found.append(replace(each, job=replace(each.job, work=work)))
    return found


def _by_chance(workload: Workload, policy: str, setting: Setting) -> Iterator[History]:
    """Simulate with submissions that come slightly later: no machine repeats its moments more exactly."""
    begun_s = time.monotonic()
    for number in range(MOVES):
        chance = random.Random(number)
        later = [replace(each, submit_s=each.submit_s + chance.uniform(0.0, MOVED_S)) for each in workload.submissions]
        submissions = tuple(sorted(later, key=lambda each: each.submit_s))
        yield simulate(replace(workload, submissions=submissions), policy, setting).history
        if time.monotonic() - begun_s > MOVES_S:
            return


def _compared(
    folder: Path, simulated: History, moved: Sequence[History], policy: str, setting: Setting, from_s: float
) -> tuple[Json | None, SimulationError | None]:
    """Return what really happened since the present policy is in use, and how far the simulation is from it."""
    wanted = {JobId(row.id) for row in simulated.jobs}
    real = what_happened(folder / JOURNAL, wanted, setting.cluster.devices, from_s=from_s)
    if not real.jobs:
        return None, None
    both = {row.id for row in real.jobs}
    alike = replace(simulated, jobs=tuple(row for row in simulated.jobs if row.id in both))
    metrics = {name: None if name in UNKNOWN else value for name, value in measure(real).encode().items()}
    return (
        _side(policy, real, setting.cluster.devices, metrics),
        error_of(alike, real, measure(alike).encode(), metrics, moved),
    )


def _without(history: History, names: Collection[str]) -> History:
    return replace(history, jobs=tuple(row for row in history.jobs if row.id not in names))


def _side(policy: str, history: History, devices: int, metrics: Json) -> Json:
    jct_s = np.array(
        [row.end_s - row.submit_s for row in history.jobs if row.end_s is not None and row.start_s is not None]
    )
    times_s, shares = cdf(jct_s, POINTS)
    return {
        "policy": policy,
        "devices": devices,
        "metrics": metrics,
        "jct_s": [[float(at_s), float(share)] for at_s, share in zip(times_s, shares, strict=True)],
    }
