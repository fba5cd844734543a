"""One process of the pipelines that `planner_pipeline.py` profiles and runs; started by it, not by hand."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

if find_spec("rota") is None:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from rota.planner.simulate.schedules import PipelineSchedule, device_turns

HIDDEN, HEADS, SEQUENCE, BATCH, MICRO_BATCHES = 256, 4, 96, 2, 6
SHAPE = (BATCH, SEQUENCE, HIDDEN)
PROFILED = (1, 3, 6)
"""Layers of the stages that are profiled."""
PROFILE_STEPS, ROUNDS, STEPS, WARM_UP, MESSAGES = 7, 5, 6, 2, 60


def core_groups(count: int) -> list[list[int]]:
    """Share the cores of this process out to so many processes; threads of one core stay together."""
    cores = sorted(os.sched_getaffinity(0), key=lambda core: (_first_thread(core), core))
    if len(cores) < count:
        return [cores] * count
    each = len(cores) // count
    return [cores[place * each : (place + 1) * each] for place in range(count)]


def _first_thread(core: int) -> int:
    try:
        file = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
        return int(file.read_text(encoding="ascii").replace("-", ",").split(",")[0])
    except (OSError, ValueError):
        return core


def joined(rank: int, count: int, store: str) -> tuple[Any, Any]:
    """Pin this process, and return PyTorch and its distributed part with all processes joined."""
    os.sched_setaffinity(0, core_groups(count)[rank])
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=count)
    return torch, dist


def stage_of(torch: Any, layers: int) -> Any:
    """Return a stage of so many transformer layers."""
    kind = torch.nn.TransformerEncoderLayer
    return torch.nn.Sequential(*(kind(HIDDEN, HEADS, 4 * HIDDEN, dropout=0.0, batch_first=True) for _ in range(layers)))


def profile_main(rank: int, count: int, store: str) -> dict[str, Any]:
    """Time passes of stages while 1, 2, ... processes compute, and messages; return medians in ms."""
    torch, dist = joined(rank, count, store)
    stages = {layers: stage_of(torch, layers) for layers in PROFILED}
    turns = device_turns(PipelineSchedule.ONE_F_ONE_B, count, count, MICRO_BATCHES)[0]
    found: dict[str, Any] = {"passes": []}
    for active in range(1, count + 1):
        times = {}
        for layers, block in stages.items():
            dist.barrier()
            steps = [_passes(torch, block, turns) for _ in range(PROFILE_STEPS)] if rank < active else []
            times[layers] = [statistics.median(column) for column in zip(*steps[WARM_UP:], strict=True)]
        found["passes"].append(times)
    found["message_ms"] = _message_ms(torch, dist, rank)
    dist.destroy_process_group()
    return found


def _passes(torch: Any, block: Any, turns: list[tuple[bool, int, int]]) -> tuple[float, float]:
    """Run one step's passes without messages; return the mean times of a forward and of a backward pass in ms."""
    kept: dict[int, tuple[Any, Any]] = {}
    spent = {True: 0.0, False: 0.0}
    for is_forward, _, batch in turns:
        began = time.perf_counter()
        if is_forward:
            x = torch.randn(SHAPE).requires_grad_(True)
            kept[batch] = (x, block(x))
        else:
            _, y = kept.pop(batch)
            y.backward(torch.ones(SHAPE))
        spent[is_forward] += (time.perf_counter() - began) * 1e3
    block.zero_grad(set_to_none=True)
    return spent[True] / MICRO_BATCHES, spent[False] / MICRO_BATCHES


def _message_ms(torch: Any, dist: Any, rank: int) -> float:
    """Return half a round trip of one micro-batch's activations between the first two ranks, receives posted ahead."""
    times = []
    for _ in range(MESSAGES):
        x, got = torch.randn(SHAPE), torch.empty(SHAPE)
        receive = dist.irecv(got, 1 - rank) if rank < 2 else None
        dist.barrier()
        began = time.perf_counter()
        if rank == 0:
            dist.isend(x, 1).wait()
        if receive is not None:
            receive.wait()
        if rank == 1:
            dist.isend(x, 0).wait()
        times.append((time.perf_counter() - began) * 1e3 / 2)
    return statistics.median(times[MESSAGES // 6 :])


def run_main(rank: int, plans: list[list[int]], store: str) -> list[dict[str, Any]]:
    """Run one process of the pipelines of all plans, one after the other; return what each of its steps took, in ms."""
    count = len(plans[0]) - 1
    torch, dist = joined(rank, count, store)
    blocks = [stage_of(torch, cuts[rank + 1] - cuts[rank]) for cuts in plans]
    turns = device_turns(PipelineSchedule.ONE_F_ONE_B, count, count, MICRO_BATCHES)[rank]
    rows = []
    for _, (plan, block), step in itertools.product(range(ROUNDS), enumerate(blocks), range(WARM_UP + STEPS)):
        dist.barrier()
        began, own_s, busy_s = time.perf_counter(), time.process_time(), busy_cores_s()
        _step(torch, dist, rank, count, block, turns)
        dist.barrier()
        row = {"plan": plan, "step_ms": (time.perf_counter() - began) * 1e3}
        row |= {"own_ms": (time.process_time() - own_s) * 1e3, "busy_ms": (busy_cores_s() - busy_s) * 1e3}
        if step >= WARM_UP:
            rows.append(row)
        block.zero_grad(set_to_none=True)
    dist.destroy_process_group()
    return rows


def busy_cores_s() -> float:
    """Return how long all cores were busy since the machine started, whatever for; 0 where the kernel does not say."""
    try:
        fields = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:]
    except OSError:
        return 0.0
    idle = int(fields[3]) + int(fields[4])
    return (sum(map(int, fields[:8])) - idle) / os.sysconf("SC_CLK_TCK")


def _step(torch: Any, dist: Any, rank: int, count: int, block: Any, turns: list[tuple[bool, int, int]]) -> None:
    """Run one step of this rank: passes in turn, outputs and gradients sent as soon as they are there."""
    kept: dict[int, tuple[Any, Any]] = {}
    inputs = [torch.empty(SHAPE) for _ in range(MICRO_BATCHES)] if rank else []
    gradients = [torch.empty(SHAPE) for _ in range(MICRO_BATCHES)] if rank < count - 1 else []
    arriving = [dist.irecv(x, rank - 1) for x in inputs]
    returning = [dist.irecv(x, rank + 1) for x in gradients]
    sent = []
    for is_forward, _, batch in turns:
        if is_forward:
            if rank:
                arriving[batch].wait()
            x = (inputs[batch] if rank else torch.randn(SHAPE)).requires_grad_(True)
            y = block(x)
            kept[batch] = (x, y)
            if rank < count - 1:
                sent.append(dist.isend(y.detach(), rank + 1))
        else:
            x, y = kept.pop(batch)
            if rank < count - 1:
                returning[batch].wait()
            y.backward(gradients[batch] if rank < count - 1 else torch.ones(SHAPE))
            if rank:
                sent.append(dist.isend(x.grad, rank - 1))
    for each in sent:
        each.wait()


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rank", type=int, required=True)
    options.add_argument("--profile", type=int, help="profile passes and messages in so many processes")
    options.add_argument("--plans", type=json.loads, help="run these plans, as cuts between layers")
    options.add_argument("--store", required=True)
    given = options.parse_args()
    if given.profile is not None:
        print(json.dumps(profile_main(given.rank, given.profile, given.store)))
    else:
        print(json.dumps(run_main(given.rank, given.plans, given.store)))
