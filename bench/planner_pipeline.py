"""A transformer split over CPU processes by three plans: predicted step times against measured ones.

Three plans are run: `max-load`, the slowest cut, and the one that differs most from both. One process per stage runs
real forward and backward passes over gloo in the 1F1B order, with receives posted ahead. Each process is pinned: to
cores of its own, or, where there are fewer cores than processes, to one core that it shares with others.
The run goes in rounds, and each round profiles first: stages of one and four layers, in the same processes, on the same
cores and in the same order of passes, alone and beside others (a pass takes a fixed time plus one for each layer, and
both grow where processes share caches and memory), and messages between two processes. From the medians of these alone
the planner's simulator predicts the steps. As profile and steps alternate, a machine that is slower for a while is so
for both. The order of the three plans by predicted and by measured time must agree, and each prediction must be
within 15 %.

Run: `python bench/planner_pipeline.py [--processes 2 3 4] [--out rows.json]` on a machine that is otherwise idle; about
3 minutes. Skipped without PyTorch (`pip install 'rota[learn]'`).
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

if find_spec("rota") is None:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from pipeline_worker import MICRO_BATCHES

from rota.planner.description.devices import DeviceGraph, DeviceLink, GraphDevice
from rota.planner.description.operators import GraphOperator, OperatorGraph
from rota.planner.description.problem import PlanningProblem
from rota.planner.simulate.pipeline import PipelineChunk, PipelineSettings, simulate_pipeline

LAYERS = 8
TOLERANCE = 0.15
LIMIT_S = 600
WORKER = Path(__file__).resolve().parent / "pipeline_worker.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTimes:
    """Times of a stage's passes in ms, alone on its cores: fixed and for each layer; speeds beside 0, 1, ... others."""

    forward_ms: tuple[float, float]
    backward_ms: tuple[float, float]
    message_ms: float
    core_speeds: tuple[float, ...]

    def forward_of(self, layers: int) -> float:
        """Time of the forward pass of a stage."""
        return self.forward_ms[0] + layers * self.forward_ms[1]

    def backward_of(self, layers: int) -> float:
        """Time of the backward pass of a stage."""
        return self.backward_ms[0] + layers * self.backward_ms[1]


NOMINAL = PassTimes(forward_ms=(0.0, 1.0), backward_ms=(0.0, 2.0), message_ms=0.01, core_speeds=())
"""Rough proportions by which the three plans are chosen, before anything is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """The median step of a plan, its spread, and what other programs took of the cores meanwhile."""

    step_ms: float
    least_ms: float
    most_ms: float
    others: float


def processes(plans: Sequence[Sequence[int]]) -> list[list[dict[str, Any]]]:
    """Run the plans in as many processes as they have stages, and return the rounds that each saw."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = json.dumps([list(cuts) for cuts in plans])
        command = [sys.executable, str(WORKER), "--plans", wanted, "--store", f"{folder}/store", "--rank"]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        started = [
            subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, text=True, env=environment)
            for rank in range(len(plans[0]) - 1)
        ]
        return [json.loads(process.communicate(timeout=LIMIT_S)[0]) for process in started]


def line_of(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return offset, at least 0, and slope of the line through the points by least squares."""
    slope, offset = statistics.linear_regression([x for x, _ in points], [y for _, y in points])
    if offset < 0:
        slope, offset = statistics.linear_regression(*zip(*points, strict=True), proportional=True).slope, 0.0
    return offset, slope


def profile_of(ranks: Sequence[Sequence[dict[str, Any]]]) -> PassTimes:
    """Return medians over all rounds of passes alone, of the slowdown beside others, and of messages."""
    levels = len(ranks[0][0]["passes"])

    def medians(rank: int, level: int) -> dict[int, list[float]]:
        found: dict[int, list[list[float]]] = {}
        for each in ranks[rank]:
            for layers, rows in each["passes"][level].items():
                found.setdefault(int(layers), []).extend(rows)
        return {
            layers: [statistics.median(column) for column in zip(*rows, strict=True)] for layers, rows in found.items()
        }

    alone = medians(0, 0)
    total_ms = sum(map(sum, alone.values()))
    beside_ms = [
        statistics.mean(sum(map(sum, medians(rank, level).values())) for rank in range(level + 1))
        for level in range(levels)
    ]
    return PassTimes(
        forward_ms=line_of([(layers, times[0]) for layers, times in alone.items()]),
        backward_ms=line_of([(layers, times[1]) for layers, times in alone.items()]),
        message_ms=statistics.median(each["message_ms"] for each in ranks[0]),
        core_speeds=tuple(min(1.0, total_ms / each) for each in beside_ms),
    )


def measured(ranks: Sequence[Sequence[dict[str, Any]]], plan: int) -> MeasuredStep:
    """Return a plan's median step over all rounds."""
    cores = len(os.sched_getaffinity(0))
    steps, others = [], []
    for rounds in zip(*ranks, strict=True):
        for rows in zip(*(each["steps"][plan] for each in rounds), strict=True):
            steps.append(rows[0]["step_ms"])
            others_ms = rows[0]["busy_ms"] - sum(row["own_ms"] for row in rows)
            others.append(max(others_ms, 0.0) / (rows[0]["step_ms"] * cores))
    quarters = statistics.quantiles(steps, n=4)
    return MeasuredStep(step_ms=quarters[1], least_ms=quarters[0], most_ms=quarters[2], others=statistics.mean(others))


def predicted(cuts: Sequence[int], times: PassTimes) -> float:
    """Return the simulated step of a plan in ms."""
    chunks = [
        PipelineChunk(
            devices=(f"p{rank}",),
            forward_ms=times.forward_of(end - start),
            backward_ms=times.backward_of(end - start),
            transfer_ms=times.message_ms,
        )
        for rank, (start, end) in enumerate(itertools.pairwise(cuts))
    ]
    speeds = times.core_speeds
    pinned = tuple(rank % len(speeds) for rank in range(len(chunks))) if speeds else ()
    settings = PipelineSettings(micro_batches=MICRO_BATCHES, core_speeds=speeds, pinned_to=pinned)
    return simulate_pipeline(chunks, settings).step_ms


def even_cuts(count: int, times: PassTimes) -> tuple[int, ...]:
    """Return the plan of `max-load` for equal layers on that many processes; by trying all where SciPy is missing."""
    if find_spec("scipy") is None:
        every = ((0, *inner, LAYERS) for inner in itertools.combinations(range(1, LAYERS), count - 1))
        return min(every, key=lambda cuts: (max(b - a for a, b in itertools.pairwise(cuts)), cuts))
    from rota.planner.methods.max_load import plan_max_load

    names = [f"p{rank}" for rank in range(count)]
    layer_ms = times.forward_ms[1] + times.backward_ms[1]
    operators = tuple(
        GraphOperator(name=f"l{n}", time_ms={"process": layer_ms}, output_bytes=1000) for n in range(LAYERS)
    )
    links = tuple(
        DeviceLink(source=a, target=b, bytes_per_ms=1000 / max(times.message_ms, 1e-6))
        for place, a in enumerate(names)
        for b in names[place + 1 :]
    )
    problem = PlanningProblem(
        graph=OperatorGraph(operators=operators, edges=tuple((n, n + 1) for n in range(LAYERS - 1))),
        devices=DeviceGraph(devices=tuple(GraphDevice(name=n, type="process") for n in names), links=links),
    )
    cuts = [0]
    for stage in plan_max_load(problem).stages:
        cuts.append(cuts[-1] + len(stage.operators))
    return tuple(cuts)


def three_plans(count: int, times: PassTimes) -> dict[str, tuple[int, ...]]:
    """Return `max-load`'s plan, the cut that is predicted to be slowest, and the one that differs most from both."""
    even = even_cuts(count, times)
    steps_ms = {
        (0, *inner, LAYERS): predicted((0, *inner, LAYERS), times)
        for inner in itertools.combinations(range(1, LAYERS), count - 1)
    }
    slowest = max(steps_ms, key=lambda cuts: (steps_ms[cuts], cuts))
    apart = {cuts: min(abs(math.log(ms / steps_ms[each])) for each in (even, slowest)) for cuts, ms in steps_ms.items()}
    return {"max-load": even, "other": max(apart, key=lambda cuts: (round(apart[cuts], 9), cuts)), "slowest": slowest}


def compared(count: int) -> dict[str, Any]:
    """Measure three plans on that many processes, and return the rows and whether they are as predicted."""
    cores = min(count, len(os.sched_getaffinity(0)))
    plans = three_plans(count, replace(NOMINAL, core_speeds=(1.0,) * cores))
    ranks = processes(list(plans.values()))
    times = profile_of(ranks)
    rows = []
    for plan, (name, cuts) in enumerate(plans.items()):
        real = measured(ranks, plan)
        expected_ms = predicted(cuts, times)
        row: dict[str, Any] = {
            "plan": name,
            "layers": "+".join(str(end - start) for start, end in itertools.pairwise(cuts)),
        }
        row |= {"predicted_ms": expected_ms, "measured_ms": real.step_ms, "error": expected_ms / real.step_ms - 1}
        row |= {
            "within": abs(expected_ms / real.step_ms - 1) <= TOLERANCE,
            "quartiles_ms": [real.least_ms, real.most_ms],
        }
        row |= {"apart_ms": predicted(cuts, replace(times, core_speeds=())), "others": real.others}
        rows.append(row)
    by_prediction = sorted(range(3), key=lambda each: rows[each]["predicted_ms"])
    by_measurement = sorted(range(3), key=lambda each: rows[each]["measured_ms"])
    return {
        "processes": count,
        "cores": len(os.sched_getaffinity(0)),
        "micro_batches": MICRO_BATCHES,
        "profile": asdict(times),
        "rows": rows,
        "order_agrees": by_prediction == by_measurement,
        "within_15_percent": all(row["within"] for row in rows),
    }


def print_table(found: dict[str, Any]) -> None:
    """Print the rows of one number of processes."""
    profile = found["profile"]
    speeds = ", ".join(f"{speed:.2f}" for speed in profile["core_speeds"][: found["processes"]])
    print(f"{found['processes']} processes on {found['cores']} cores; speeds beside others: {speeds}")
    forward, backward = profile["forward_ms"], profile["backward_ms"]
    print(
        f"forward {forward[0]:.2f} + {forward[1]:.2f} ms a layer, backward {backward[0]:.2f} + {backward[1]:.2f} ms,"
        f" message {profile['message_ms']:.2f} ms"
    )
    titles = (
        f"{'predicted':>10} {'measured':>10} {'quartiles':>15} {'error':>7} {'within':>6} {'apart':>7} {'others':>6}"
    )
    print(f"{'plan':10} {'layers':>10} {titles}")
    for row in found["rows"]:
        quartiles = "-".join(f"{each:.0f}" for each in row["quartiles_ms"])
        cells = f"{row['predicted_ms']:10.1f} {row['measured_ms']:10.1f} {quartiles:>15} {row['error']:+7.1%}"
        rest = f"{'yes' if row['within'] else 'no':>6} {row['apart_ms']:7.1f} {row['others']:6.1%}"
        print(f"{row['plan']:10} {row['layers']:>10} {cells} {rest}")
    worst = max(abs(row["error"]) for row in found["rows"])
    agrees = "agrees" if found["order_agrees"] else "differs"
    print(f"order {agrees}, largest error {worst:.1%} (at most {TOLERANCE:.0%})", flush=True)


def main() -> int:
    options = argparse.ArgumentParser(description="Predicted against measured step times of a pipeline on CPUs.")
    options.add_argument("--processes", type=int, nargs="+", default=[2, 3, 4], choices=range(2, LAYERS + 1))
    options.add_argument("--out", type=Path, help="write the rows here as JSON, beside printing them")
    given = options.parse_args()
    if find_spec("torch") is None:
        print("skipped: PyTorch is not installed; pip install 'rota[learn]'")
        return 0
    found = []
    for count in given.processes:
        found.append(compared(count))
        print_table(found[-1])
        if given.out is not None:
            given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found))
    return 0 if all(one["order_agrees"] and one["within_15_percent"] for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
