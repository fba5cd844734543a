"""A transformer split over CPU processes by three plans: predicted step times against measured ones.

Layers are profiled alone (forward and backward on one thread), messages between two processes are timed, and the
planner's simulator predicts the step of three plans: `max-load` and two less balanced ones. Then one process per stage
runs real forward and backward passes over gloo in the 1F1B order. The order of the
three plans by predicted and by measured time must agree, and each prediction must be within 15 %.

Run: `python bench/planner_pipeline.py [--processes N]`, at least two free cores; skipped without PyTorch (`pip install
'rota[learn]'`).
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rota.planner.description.devices import DeviceGraph, DeviceLink, GraphDevice
from rota.planner.description.operators import GraphOperator, OperatorGraph
from rota.planner.description.problem import PlanningProblem
from rota.planner.methods.max_load import plan_max_load
from rota.planner.simulate.pipeline import PipelineChunk, PipelineSettings, simulate_pipeline
from rota.planner.simulate.schedules import PipelineSchedule, device_turns

LAYERS, HIDDEN, HEADS, SEQUENCE, BATCH, MICRO_BATCHES, STEPS = 8, 256, 4, 96, 2, 6, 40
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


def profiled() -> tuple[float, float]:
    """Return the undisturbed times of forward and backward of one layer, in ms on one thread."""
    torch = settle()
    stack = [layer() for _ in range(LAYERS)]
    forward, backward = [], []
    for _ in range(STEPS):
        x = torch.randn(BATCH, SEQUENCE, HIDDEN, requires_grad=True)
        values = [x]
        began = time.perf_counter()
        for block in stack:
            values.append(block(values[-1]))
        middle = time.perf_counter()
        values[-1].backward(torch.ones_like(values[-1]))
        end = time.perf_counter()
        forward.append((middle - began) * 1e3 / LAYERS)
        backward.append((end - middle) * 1e3 / LAYERS)
    return undisturbed(forward), undisturbed(backward)


def rank_main(rank: int, cuts: list[int], store: str) -> dict[str, Any]:
    """Run one process of a pipeline, its layers in schedule order with messages; return its step times in ms."""
    torch = settle()
    import torch.distributed as dist

    count = len(cuts) - 1
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=count)
    block = torch.nn.Sequential(*(layer() for _ in range(cuts[rank + 1] - cuts[rank])))
    turns = device_turns(PipelineSchedule.ONE_F_ONE_B, count, count, MICRO_BATCHES)[rank]
    steps, message_ms = [], _message_ms(torch, dist, rank, count)
    for _ in range(STEPS):
        dist.barrier()
        began = time.perf_counter()
        _step(torch, dist, rank, count, block, turns)
        dist.barrier()
        steps.append((time.perf_counter() - began) * 1e3)
        block.zero_grad(set_to_none=True)
    dist.destroy_process_group()
    return {"rank": rank, "steps_ms": steps, "message_ms": message_ms}


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


def measured(cuts: list[int]) -> tuple[float, float]:
    """Return the measured step and message times of a plan in ms, by the first rank's clock."""
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "store")
        command = [sys.executable, __file__, "--cuts", json.dumps(cuts), "--store", store, "--rank"]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        processes = [
            subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, text=True, env=environment)
            for rank in range(len(cuts) - 1)
        ]
        outputs = [json.loads(process.communicate(timeout=300)[0]) for process in processes]
    return undisturbed(outputs[0]["steps_ms"]), outputs[0]["message_ms"]


def predicted(cuts: list[int], forward_ms: float, backward_ms: float, message_ms: float) -> float:
    chunks = [
        PipelineChunk(
            devices=(f"p{rank}",),
            forward_ms=(end - start) * forward_ms,
            backward_ms=(end - start) * backward_ms,
            transfer_ms=message_ms,
        )
        for rank, (start, end) in enumerate(itertools.pairwise(cuts))
    ]
    return simulate_pipeline(chunks, PipelineSettings(micro_batches=MICRO_BATCHES)).step_ms


def even_cuts(processes: int, forward_ms: float, backward_ms: float, message_ms: float) -> list[int]:
    """Return the plan of `max-load` for equal layers on that many processes."""
    names = [f"p{rank}" for rank in range(processes)]
    operators = tuple(
        GraphOperator(name=f"l{n}", time_ms={"process": forward_ms + backward_ms}, output_bytes=1000)
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
    return cuts


def uneven(cuts: list[int], moved: int) -> list[int]:
    """Return the plan with that many layers moved from the last process to the first."""
    return [0, *(min(cut + moved, LAYERS - (len(cuts) - 1 - place)) for place, cut in enumerate(cuts[1:-1], 1)), LAYERS]


def main(processes: int) -> int:
    forward_ms, backward_ms = profiled()
    even = even_cuts(processes, forward_ms, backward_ms, 0.3)
    plans = {"max-load": even, "uneven by 1": uneven(even, 1), "uneven by 3": uneven(even, 3)}
    print(f"one layer: forward {forward_ms:.2f} ms, backward {backward_ms:.2f} ms; {MICRO_BATCHES} micro-batches")
    print(f"{'plan':14} {'layers':>12} {'predicted':>10} {'measured':>10} {'error':>7}")
    rows = []
    for name, cuts in plans.items():
        # Profiled again for each plan, so that a drift of the machine's speed does not count as an error.
        forward_ms, backward_ms = profiled()
        real_ms, message_ms = measured(cuts)
        expected_ms = predicted(cuts, forward_ms, backward_ms, message_ms)
        rows.append((expected_ms, real_ms))
        parts = "+".join(str(end - start) for start, end in itertools.pairwise(cuts))
        print(f"{name:14} {parts:>12} {expected_ms:10.1f} {real_ms:10.1f} {expected_ms / real_ms - 1:+7.1%}")
    same_order = sorted(range(3), key=lambda n: rows[n][0]) == sorted(range(3), key=lambda n: rows[n][1])
    worst = max(abs(expected_ms / real_ms - 1) for expected_ms, real_ms in rows)
    print(f"order {'agrees' if same_order else 'differs'}, largest error {worst:.1%} (at most {TOLERANCE:.0%})")
    return 0 if same_order and worst <= TOLERANCE else 1


if __name__ == "__main__":
    options = argparse.ArgumentParser(description="Predicted against measured step times of a pipeline on CPUs.")
    options.add_argument("--processes", type=int, default=max(2, min(4, os.cpu_count() or 2)))
    options.add_argument("--rank", type=int)
    options.add_argument("--cuts", type=json.loads)
    options.add_argument("--store")
    given = options.parse_args()
    if find_spec("torch") is None:
        print("skipped: PyTorch is not installed; pip install 'rota[learn]'")
        sys.exit(0)
    if given.rank is not None:
        print(json.dumps(rank_main(given.rank, given.cuts, given.store)))
        sys.exit(0)
    sys.exit(main(given.processes))
