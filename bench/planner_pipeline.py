"""A transformer split over CPU processes by three plans: predicted step times against measured ones.

A layer is profiled alone and beside as many others as there are cores (forward and backward on one thread), messages
between two processes are timed, and the planner's simulator predicts the step of every cut. Three plans are run:
`max-load`, the slowest cut, and the one in the middle between the two. One process per stage runs real forward and
backward passes over gloo in the 1F1B order. Where there are more processes than cores, passes and messages share the
cores in the prediction, as they do in the run. The order of the three plans by predicted and by measured time must
agree, and each prediction must be within 15 %.

Run: `python bench/planner_pipeline.py [--processes 2 3 4]` on a machine that is otherwise idle; skipped without PyTorch
(`pip install 'rota[learn]'`).
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rota.planner.description.devices import DeviceGraph, DeviceLink, GraphDevice
from rota.planner.description.operators import GraphOperator, OperatorGraph
from rota.planner.description.problem import PlanningProblem
from rota.planner.simulate.pipeline import PipelineChunk, PipelineSettings, simulate_pipeline
from rota.planner.simulate.schedules import PipelineSchedule, device_turns

LAYERS, HIDDEN, HEADS, SEQUENCE, BATCH, MICRO_BATCHES, STEPS = 8, 256, 4, 96, 2, 6, 30
TOLERANCE = 0.15
QUANTILE = 0.1
"""The quantile of repeated runs, profiled and real, that stands for an undisturbed machine."""


def undisturbed(times_ms: list[float]) -> float:
    """Return the 10th percentile of the run times, without the first tenth of the runs as warm-up."""
    return sorted(times_ms[len(times_ms) // 10 :])[int(QUANTILE * 0.9 * len(times_ms))]


def layer() -> Any:
    from torch import nn

    return nn.TransformerEncoderLayer(HIDDEN, HEADS, 4 * HIDDEN, dropout=0.0, batch_first=True)


def settle() -> Any:
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(1)
    return torch


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTimes:
    """Undisturbed times of one layer in ms, alone on one thread; its speed where one, two, ... run at once."""

    forward_ms: float
    backward_ms: float
    core_speeds: tuple[float, ...]


def profile_main(rank: int, count: int, store: str) -> dict[str, Any]:
    """Run all layers forward and backward, in step with other processes; return the times of one layer in ms."""
    torch = settle()
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=count)
    stack = [layer() for _ in range(LAYERS)]
    forward, backward = [], []
    for _ in range(STEPS):
        value = torch.randn(BATCH, SEQUENCE, HIDDEN, requires_grad=True)
        gradient = torch.ones(BATCH, SEQUENCE, HIDDEN)
        dist.barrier()
        began = time.perf_counter()
        for block in stack:
            value = block(value)
        middle = time.perf_counter()
        value.backward(gradient)
        end = time.perf_counter()
        forward.append((middle - began) * 1e3 / LAYERS)
        backward.append((end - middle) * 1e3 / LAYERS)
    dist.destroy_process_group()
    return {"forward_ms": undisturbed(forward), "backward_ms": undisturbed(backward)}


def profiled(cores: int, most: int) -> LayerTimes:
    """Return the times of a layer alone, and its speeds beside others: measured for up to `most`, one on each core."""
    alone = processes(1, ["--profile"])[0]
    speeds = [1.0]
    for count in range(2, min(cores, most) + 1):
        together = processes(count, ["--profile"])
        total = statistics.mean(one["forward_ms"] + one["backward_ms"] for one in together)
        speeds.append(min(1.0, (alone["forward_ms"] + alone["backward_ms"]) / total))
    speeds += [speeds[-1]] * (cores - len(speeds))
    return LayerTimes(forward_ms=alone["forward_ms"], backward_ms=alone["backward_ms"], core_speeds=tuple(speeds))


def processes(count: int, arguments: list[str]) -> list[dict[str, Any]]:
    """Run this script in so many processes that find each other, and return what each printed."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, *arguments, "--count", str(count), "--store", f"{folder}/store", "--rank"]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        started = [
            subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, text=True, env=environment)
            for rank in range(count)
        ]
        return [json.loads(process.communicate(timeout=300)[0]) for process in started]


def rank_main(rank: int, cuts: list[int], store: str) -> dict[str, Any]:
    """Run one process of a pipeline, its layers in schedule order with messages; return its step times in ms."""
    torch = settle()
    import torch.distributed as dist

    count = len(cuts) - 1
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=count)
    block = torch.nn.Sequential(*(layer() for _ in range(cuts[rank + 1] - cuts[rank])))
    turns = device_turns(PipelineSchedule.ONE_F_ONE_B, count, count, MICRO_BATCHES)[rank]
    steps, own, busy, message_ms = [], [], [], _message_ms(torch, dist, rank, count)
    for _ in range(STEPS):
        dist.barrier()
        began, own_s, busy_s = time.perf_counter(), time.process_time(), busy_cores_s()
        _step(torch, dist, rank, count, block, turns)
        dist.barrier()
        steps.append((time.perf_counter() - began) * 1e3)
        own.append((time.process_time() - own_s) * 1e3)
        busy.append((busy_cores_s() - busy_s) * 1e3)
        block.zero_grad(set_to_none=True)
    dist.destroy_process_group()
    return {"steps_ms": steps, "own_ms": own, "busy_ms": busy, "message_ms": message_ms}


def busy_cores_s() -> float:
    """Return how long all cores were busy since the machine started, whatever for; 0 where the kernel does not say."""
    try:
        fields = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:]
    except OSError:
        return 0.0
    idle = int(fields[3]) + int(fields[4])
    return (sum(map(int, fields[:8])) - idle) / os.sysconf("SC_CLK_TCK")


def _step(torch: Any, dist: Any, rank: int, count: int, block: Any, turns: list[tuple[bool, int, int]]) -> None:
    shape = (BATCH, SEQUENCE, HIDDEN)
    kept: dict[int, tuple[Any, Any]] = {}
    sent = []
    for is_forward, _, batch in turns:
        if is_forward:
            x = torch.empty(shape) if rank else torch.randn(shape)
            if rank:
                dist.recv(x, rank - 1)
            x.requires_grad_(True)
            y = block(x)
            kept[batch] = (x, y)
            if rank < count - 1:
                sent.append(dist.isend(y.detach(), rank + 1))
        else:
            x, y = kept.pop(batch)
            gradient = torch.ones(shape)
            if rank < count - 1:
                dist.recv(gradient, rank + 1)
            y.backward(gradient)
            if rank:
                sent.append(dist.isend(x.grad, rank - 1))
    for each in sent:
        each.wait()


def _message_ms(torch: Any, dist: Any, rank: int, count: int) -> float:
    """Return half a round trip of one micro-batch's activations between the first two ranks."""
    x = torch.empty(BATCH, SEQUENCE, HIDDEN)
    times = []
    for _ in range(STEPS):
        dist.barrier()
        began = time.perf_counter()
        if rank == 0:
            dist.send(x, 1)
            dist.recv(x, 1)
        elif rank == 1:
            dist.recv(x, 0)
            dist.send(x, 0)
        times.append((time.perf_counter() - began) * 1e3 / 2)
    return undisturbed(times) if count > 1 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """The step of a plan on a machine as idle as it got, and what other programs took of the cores meanwhile."""

    step_ms: float
    message_ms: float
    others: float


def measured(cuts: Sequence[int], cores: int) -> MeasuredStep:
    """Run a plan and return the median of the quarter of its steps in which other programs used least of the cores."""
    ranks = processes(len(cuts) - 1, ["--cuts", json.dumps(list(cuts))])
    steps = []
    for number, step_ms in enumerate(ranks[0]["steps_ms"]):
        others_ms = ranks[0]["busy_ms"][number] - sum(rank["own_ms"][number] for rank in ranks)
        steps.append((max(others_ms, 0.0) / (step_ms * cores), step_ms))
    quiet = sorted(steps[len(steps) // 10 :])[: max(len(steps) // 4, 1)]
    return MeasuredStep(
        step_ms=statistics.median(step_ms for _, step_ms in quiet),
        message_ms=ranks[0]["message_ms"],
        others=statistics.mean(share for share, _ in quiet),
    )


def predicted(cuts: Sequence[int], times: LayerTimes, message_ms: float) -> float:
    chunks = [
        PipelineChunk(
            devices=(f"p{rank}",),
            forward_ms=(end - start) * times.forward_ms,
            backward_ms=(end - start) * times.backward_ms,
            transfer_ms=message_ms,
        )
        for rank, (start, end) in enumerate(itertools.pairwise(cuts))
    ]
    settings = PipelineSettings(micro_batches=MICRO_BATCHES, core_speeds=times.core_speeds)
    return simulate_pipeline(chunks, settings).step_ms


def even_cuts(count: int, times: LayerTimes, message_ms: float) -> tuple[int, ...]:
    """Return the plan of `max-load` for equal layers on that many processes; by trying all where SciPy is missing."""
    if find_spec("scipy") is None:
        every = ((0, *inner, LAYERS) for inner in itertools.combinations(range(1, LAYERS), count - 1))
        return min(every, key=lambda cuts: (max(b - a for a, b in itertools.pairwise(cuts)), cuts))
    from rota.planner.methods.max_load import plan_max_load

    names = [f"p{rank}" for rank in range(count)]
    operators = tuple(
        GraphOperator(name=f"l{n}", time_ms={"process": times.forward_ms + times.backward_ms}, output_bytes=1000)
        for n in range(LAYERS)
    )
    links = tuple(
        DeviceLink(source=a, target=b, bytes_per_ms=1000 / max(message_ms, 1e-6))
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


def three_plans(count: int, times: LayerTimes, message_ms: float) -> dict[str, tuple[int, ...]]:
    """Return `max-load`'s plan, the cut that is predicted to be slowest, and the one in the middle."""
    even = even_cuts(count, times, message_ms)
    steps_ms = {
        (0, *inner, LAYERS): predicted((0, *inner, LAYERS), times, message_ms)
        for inner in itertools.combinations(range(1, LAYERS), count - 1)
    }
    slowest = max(steps_ms, key=lambda cuts: (steps_ms[cuts], cuts))
    middle_ms = (predicted(even, times, message_ms) + steps_ms[slowest]) / 2
    middle = min(steps_ms, key=lambda cuts: (abs(steps_ms[cuts] - middle_ms), cuts))
    return {"max-load": even, "middle": middle, "slowest": slowest}


def compared(count: int, cores: int) -> bool:
    """Measure three plans on that many processes, print the table, and return whether it is as predicted."""
    times = profiled(cores, count)
    plans = three_plans(count, times, 0.3)
    speeds = ", ".join(f"{speed:.2f}" for speed in times.core_speeds[:count])
    print(f"{count} processes on {cores} cores, {MICRO_BATCHES} micro-batches; speeds side by side: {speeds}")
    print(f"one layer: forward {times.forward_ms:.2f} ms, backward {times.backward_ms:.2f} ms")
    titles = f"{'predicted':>10} {'measured':>10} {'error':>7}  {'cores of their own':>18} {'others':>6}"
    print(f"{'plan':10} {'layers':>10} {titles}")
    found = {cuts: measured(cuts, cores) for cuts in plans.values()}
    again = profiled(cores, count)
    times = LayerTimes(
        forward_ms=(times.forward_ms + again.forward_ms) / 2,
        backward_ms=(times.backward_ms + again.backward_ms) / 2,
        core_speeds=tuple(map(statistics.mean, zip(times.core_speeds, again.core_speeds, strict=True))),
    )
    rows = []
    for name, cuts in plans.items():
        real = found[cuts]
        expected_ms = predicted(cuts, times, real.message_ms)
        own_ms = predicted(cuts, replace(times, core_speeds=()), real.message_ms)
        rows.append((expected_ms, real.step_ms))
        parts = "+".join(str(end - start) for start, end in itertools.pairwise(cuts))
        cells = f"{expected_ms:10.1f} {real.step_ms:10.1f} {expected_ms / real.step_ms - 1:+7.1%}"
        print(f"{name:10} {parts:>10} {cells}  {own_ms:18.1f} {real.others:6.1%}", flush=True)
    same_order = sorted(range(3), key=lambda n: rows[n][0]) == sorted(range(3), key=lambda n: rows[n][1])
    worst = max(abs(expected_ms / real_ms - 1) for expected_ms, real_ms in rows)
    print(f"order {'agrees' if same_order else 'differs'}, largest error {worst:.1%} (at most {TOLERANCE:.0%})")
    return same_order and worst <= TOLERANCE


def main(counts: Sequence[int]) -> int:
    cores = len(os.sched_getaffinity(0))
    agreed = [compared(count, cores) for count in counts]
    return 0 if all(agreed) else 1


if __name__ == "__main__":
    options = argparse.ArgumentParser(description="Predicted against measured step times of a pipeline on CPUs.")
    options.add_argument("--processes", type=int, nargs="+", default=[2, 3, 4], choices=range(2, LAYERS + 1))
    options.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    options.add_argument("--count", type=int, help=argparse.SUPPRESS)
    options.add_argument("--profile", action="store_true", help=argparse.SUPPRESS)
    options.add_argument("--cuts", type=json.loads, help=argparse.SUPPRESS)
    options.add_argument("--store", help=argparse.SUPPRESS)
    given = options.parse_args()
    if find_spec("torch") is None:
        print("skipped: PyTorch is not installed; pip install 'rota[learn]'")
        sys.exit(0)
    if given.rank is not None:
        run = profile_main if given.profile else rank_main
        print(json.dumps(run(given.rank, given.count if given.profile else given.cuts, given.store)))
        sys.exit(0)
    sys.exit(main(given.processes))
