"""One process of the pipelines that `planner_pipeline.py` profiles and runs; started by it, not by hand."""

from __future__ import annotations

import argparse
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

Turns = list[tuple[bool, int, int]]

HIDDEN, HEADS, SEQUENCE, BATCH, MICRO_BATCHES = 256, 4, 96, 2, 6
SHAPE = (BATCH, SEQUENCE, HIDDEN)
PROFILED = (1, 4)
"""Layers of the stages that are profiled."""
ROUNDS, STEPS, WARM_UP, PROFILE_STEPS, MESSAGES = 6, 4, 1, 3, 12


def core_groups(count: int) -> list[list[int]]:
    """Share the cores of this process out to so many processes: threads of one core stay together.

    Where there are fewer cores than processes, each process has one core, in turn.
    """
    cores = sorted(os.sched_getaffinity(0), key=lambda core: (_first_thread(core), core))
    if len(cores) < count:
        return [[cores[place % len(cores)]] for place in range(count)]
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


def run_main(rank: int, plans: list[list[int]], store: str) -> list[dict[str, Any]]:
    """Profile passes and messages, then run the pipelines of all plans, round by round; return times in ms.

    In the profile 1, 2, ... processes compute at once, each on a core of its own.
    """
    count = len(plans[0]) - 1
    apart = min(count, len(os.sched_getaffinity(0)))
    torch, dist = joined(rank, count, store)
    profiled = {layers: stage_of(torch, layers) for layers in PROFILED}
    blocks = [stage_of(torch, cuts[rank + 1] - cuts[rank]) for cuts in plans]
    turns = [device_turns(PipelineSchedule.ONE_F_ONE_B, count, count, MICRO_BATCHES)[each] for each in (0, rank)]
    rounds = []
    for _ in range(ROUNDS):
        passes = []
        for active in range(1, apart + 1):
            times = {}
            for layers, block in profiled.items():
                dist.barrier()
                runs = WARM_UP + PROFILE_STEPS if rank < active else 0
                times[layers] = [_passes(torch, block, turns[0]) for _ in range(runs)][WARM_UP:]
            passes.append(times)
        message_ms = _message_ms(torch, dist, rank)
        steps_ms = [_steps(torch, dist, rank, count, block, turns[1]) for block in blocks]
        rounds.append({"passes": passes, "message_ms": message_ms, "steps": steps_ms})
    dist.destroy_process_group()
    return rounds


def _steps(torch: Any, dist: Any, rank: int, count: int, block: Any, turns: Turns) -> list[dict[str, float]]:
    """Run steps of a pipeline; return what each took, this process's part of it, and how long all cores were busy."""
    rows = []
    for _ in range(WARM_UP + STEPS):
        dist.barrier()
        began, own_s, busy_s = time.perf_counter(), time.process_time(), busy_cores_s()
        _step(torch, dist, rank, count, block, turns)
        dist.barrier()
        row = {"step_ms": (time.perf_counter() - began) * 1e3}
        row |= {"own_ms": (time.process_time() - own_s) * 1e3, "busy_ms": (busy_cores_s() - busy_s) * 1e3}
        rows.append(row)
        block.zero_grad(set_to_none=True)
    return rows[WARM_UP:]


def _passes(torch: Any, block: Any, turns: Turns) -> tuple[float, float]:
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


def busy_cores_s() -> float:
    """Return how long all cores were busy since the machine started, whatever for; 0 where the kernel does not say."""
    try:
        fields = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:]
    except OSError:
        return 0.0
    idle = int(fields[3]) + int(fields[4])
    return (sum(map(int, fields[:8])) - idle) / os.sysconf("SC_CLK_TCK")


def _step(torch: Any, dist: Any, rank: int, count: int, block: Any, turns: Turns) -> None:
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
    options.add_argument("--plans", type=json.loads, required=True, help="run these plans, as cuts between layers")
    options.add_argument("--store", required=True)
    given = options.parse_args()
    print(json.dumps(run_main(given.rank, given.plans, given.store)))
