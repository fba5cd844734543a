"""What one gloo process does in its namespace: `python worker.py MODE OPTIONS` prints JSON on its last line.

Computing is a timed wait, as on an accelerator.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

LAYERS = 8
BUCKET = 1_000_000
"""Bytes of a layer's gradient."""
WAITED: dict[str, list[float]] = {"forward": [], "backward": []}
"""How long the timed waits of this process took: longer than asked for on a busy machine."""


def connected() -> Any:
    """Join the others."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    return dist


def measured_link() -> dict[str, Any]:
    """Times of all-reduces by size, and the rate of several that are on their way at once, as plain DDP has them."""
    import torch

    dist = connected()
    points = []
    for size in (4096, 500_000, 2_000_000):
        buffer = torch.zeros(size // 4)
        dist.all_reduce(buffer)
        times = []
        for _ in range(4):
            dist.barrier()
            began = time.perf_counter()
            dist.all_reduce(buffer)
            times.append(time.perf_counter() - began)
        points.append((size, statistics.median(times)))
    buffers, times = [torch.zeros(BUCKET // 4) for _ in range(LAYERS)], []
    for _ in range(4):
        dist.barrier()
        began = time.perf_counter()
        for work in [dist.all_reduce(buffer, async_op=True) for buffer in buffers]:
            work.wait()
        times.append(time.perf_counter() - began)
    return {"points": points, "together_bytes_per_s": LAYERS * BUCKET / statistics.median(times[1:])}


def waiting_model(layer_bytes: int, forward_s: float, backward_s: float) -> Any:
    """A model of some layers whose computing is a timed wait."""
    import torch

    def wait(seconds: float, spent: list[float]) -> None:
        began = time.perf_counter()
        time.sleep(seconds)
        spent.append(time.perf_counter() - began)

    class Wait(torch.autograd.Function):  # type: ignore[misc]  # PyTorch is not checked
        @staticmethod
        def forward(ctx: Any, inputs: Any, weight: Any) -> Any:
            ctx.save_for_backward(weight)
            wait(forward_s, WAITED["forward"])
            return inputs + weight[0, 0]

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            wait(backward_s, WAITED["backward"])
            (weight,) = ctx.saved_tensors
            return grads[0], torch.full_like(weight, 1e-3)

    class Layer(torch.nn.Module):  # type: ignore[misc]  # PyTorch is not checked
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(layer_bytes // 4000, 1000))

        def forward(self, inputs: Any) -> Any:
            return Wait.apply(inputs, self.weight)

    return torch.nn.Sequential(*[Layer() for _ in range(LAYERS)])


def trained(hook: str, layer_bytes: int, forward_s: float, backward_s: float, steps: int) -> dict[str, Any]:
    """Seconds of an iteration under plain DDP or with Prophet's hook."""
    import torch

    from rota.sdk.ddp import ProphetHook

    dist = connected()
    torch.manual_seed(0)
    net = waiting_model(layer_bytes, forward_s, backward_s)
    model = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=layer_bytes / 2**20 * 0.9)

    def optimizer(parameters: list[Any]) -> Any:
        return torch.optim.SGD(parameters, lr=0.1)

    prophet = ProphetHook(model, optimizer, profiled_steps=4) if hook == "prophet" else None
    plain = optimizer(list(model.parameters())) if prophet is None else None
    inputs, times = torch.zeros(1), []
    for _ in range(steps + 6):
        began = time.perf_counter()
        model(inputs).sum().backward()
        if prophet is not None:
            prophet.step()
        elif plain is not None:
            plain.step()
            plain.zero_grad()
        times.append(time.perf_counter() - began)
    if prophet is not None:
        prophet.close()
    total = float(sum(p.detach().double().sum() for p in model.parameters()))
    dist.barrier()
    return {
        "iteration_s": statistics.median(times[6:]),
        "sum": total,
        "order": prophet.order if prophet else None,
        **{f"{name}_s": statistics.median(spent) for name, spent in WAITED.items()},
    }


def averaged(scheme: str, size: int, compute_s: float, slow: float, seconds: float) -> dict[str, Any]:
    """Steps in a given time under all-reduce or partial all-reduce, where rank 0 is slow."""
    import torch

    from rota.sdk.ddp import PartialAllReduce

    dist = connected()
    store = dist.distributed_c10d._get_default_store()
    model = torch.nn.Linear(size // 4, 1, bias=False)
    partial = PartialAllReduce(model, store, group_size=2) if scheme == "partial" else None
    mine_s = compute_s * (slow if dist.get_rank() == 0 else 1.0)
    dist.barrier()
    began, steps = time.monotonic(), 0
    rounds = int(seconds / (compute_s * slow))  # all-reduce ends after the same number of steps everywhere
    while time.monotonic() - began < seconds if partial is not None else steps < rounds:
        time.sleep(mine_s)
        if partial is not None:
            partial.step()
        else:
            dist.all_reduce(model.weight.data)
        steps += 1
    taken_s = time.monotonic() - began
    if partial is not None:
        partial.close()
    return {"steps": steps, "seconds": taken_s}


def shared(size: int, compute_s: float, shift_s: float, period_s: float, steps: int, start_s: float) -> dict[str, Any]:
    """Seconds of an iteration of a job that computes and then reduces, with a shift between jobs."""
    import torch

    from rota.sdk.ddp import IterationShift

    dist = connected()
    shift = IterationShift(shift_s, period_s, start_s)
    buffer, times = torch.zeros(size // 4), []
    dist.all_reduce(torch.zeros(4))
    time.sleep(max(start_s - time.time(), 0.0))
    for _ in range(steps):
        shift.begin()
        began = time.perf_counter()
        time.sleep(compute_s)
        dist.all_reduce(buffer)
        times.append(time.perf_counter() - began)
    return {"iteration_s": statistics.median(times[2:])}


WORKERS: dict[str, Callable[..., dict[str, Any]]] = {
    "link": measured_link,
    "train": trained,
    "average": averaged,
    "shared": shared,
}


def main() -> None:
    mode, options = sys.argv[1:]
    print(json.dumps(WORKERS[mode](**json.loads(options))), flush=True)
    import torch.distributed as dist

    dist.barrier()
    time.sleep(0.3)  # rank 0 keeps the store until the others have passed
    os._exit(0)  # gloo's threads need not be joined


if __name__ == "__main__":
    main()
