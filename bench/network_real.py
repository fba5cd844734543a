"""Real processes over shaped links, compared with the model: Prophet's hook, partial all-reduce, and time shifts.

`python bench/network_real.py [--quick]` (root, `tc`, `ip`, PyTorch) puts two to eight gloo processes into network
namespaces whose links are shaped, and prints each measurement beside the model's prediction. Computing is a timed wait,
as on an accelerator. It says why and ends with 0 where it can't run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MB = 1_000_000
PREFIX = f"rota{os.getpid() % 10000}"
LAYERS = 8
WAITED: dict[str, list[float]] = {"forward": [], "backward": []}
"""How long the timed waits of this process took: longer than asked for on a busy machine."""


def reason_to_skip() -> str | None:
    """Why this can't run here."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"there is no {tool}; install iproute2"
    try:
        import torch.distributed as dist
    except ImportError:
        return "there is no PyTorch; install torch"
    if not dist.is_gloo_available():
        return "this PyTorch has no gloo"
    made = subprocess.run(["ip", "netns", "add", f"{PREFIX}t"], capture_output=True, text=True)
    if made.returncode:
        return f"network namespaces can't be made: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", f"{PREFIX}t"], check=False)
    return None


@contextlib.contextmanager
def namespaces(count: int, mbit: float) -> Iterator[list[str]]:
    """Namespaces on one bridge, each with a link of so many Mbit/s in both directions."""
    bridge, names = f"{PREFIX}br", [f"{PREFIX}n{n}" for n in range(count)]

    def do(*command: str) -> None:
        subprocess.run(command, check=True, capture_output=True)

    shape = ("root", "tbf", "rate", f"{mbit}mbit", "burst", "64kb", "latency", "400ms")
    try:
        do("ip", "link", "add", bridge, "type", "bridge")
        do("ip", "link", "set", bridge, "up")
        for number, name in enumerate(names):
            do("ip", "netns", "add", name)
            do("ip", "link", "add", f"{name}h", "type", "veth", "peer", "name", "eth0", "netns", name)
            do("ip", "link", "set", f"{name}h", "master", bridge, "up")
            for command in (("addr", "add", f"10.77.0.{number + 1}/24", "dev", "eth0"), ("link", "set", "eth0", "up")):
                do("ip", "-n", name, *command)
            do("ip", "-n", name, "link", "set", "lo", "up")
            do("tc", "-n", name, "qdisc", "add", "dev", "eth0", *shape)
            do("tc", "qdisc", "add", "dev", f"{name}h", *shape)
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", bridge], capture_output=True, check=False)


def launch(names: list[str], mode: str, port: int, **options: Any) -> list[subprocess.Popen[str]]:
    """Start one worker in each namespace."""
    env = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "GLOO_SOCKET_IFNAME": "eth0",
        "MASTER_ADDR": "10.77.0.1",
    }
    env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1] / "src"), env.get("PYTHONPATH", "")])
    started = []
    for rank, name in enumerate(names):
        own = {**env, "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": str(len(names))}
        command = ["ip", "netns", "exec", name, sys.executable, __file__, "--worker", mode, json.dumps(options)]
        started.append(subprocess.Popen(command, env=own, stdout=subprocess.PIPE, text=True))
    return started


def results(started: list[subprocess.Popen[str]], timeout_s: float = 150.0) -> list[dict[str, Any]]:
    """What each worker printed."""
    found = []
    try:
        for process in started:
            output, _ = process.communicate(timeout=timeout_s)
            if process.returncode:
                raise SystemExit(f"a worker failed with status {process.returncode}")
            found.append(json.loads(output.splitlines()[-1]))
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
    return found


def run(names: list[str], mode: str, **options: Any) -> list[dict[str, Any]]:
    """Run workers to their end."""
    return results(launch(names, mode, 29500 + os.getpid() % 1000, **options))


# What workers do.


def connected() -> Any:
    """Join the others."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    return dist


def measured_link() -> dict[str, Any]:
    """Times of all-reduces by size."""
    import torch

    dist = connected()
    points = []
    for size in (4096, MB // 2, 2 * MB):
        buffer = torch.zeros(size // 4)
        dist.all_reduce(buffer)
        times = []
        for _ in range(4):
            dist.barrier()
            began = time.perf_counter()
            dist.all_reduce(buffer)
            times.append(time.perf_counter() - began)
        points.append((size, statistics.median(times)))
    return {"points": points}


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


# What is measured, beside the model.


def row(what: str, measured: float, model: float, unit: str = "s") -> dict[str, Any]:
    error = measured / model - 1
    print(f"{what:52} measured {measured:8.3f} {unit:5} model {model:8.3f}  {error:+7.1%}", flush=True)
    return {"what": what, "measured": measured, "model": model, "error": error}


def link_of(names: list[str]) -> tuple[float, float]:
    """Bytes per second of an all-reduce between these namespaces, and the overhead of one."""
    points = [(float(size), float(seconds)) for size, seconds in run(names, "link")[0]["points"]]
    (_, small_s), (half, half_s), (size, size_s) = points
    return (size - half) / (size_s - half_s), max(small_s, 1e-5)


def prophet_rows(mbit: float, forward_s: float, backward_s: float, ranks: int, steps: int) -> list[dict[str, Any]]:
    """Plain DDP and Prophet's hook at one bandwidth."""
    from rota.network.gradients import GradientLink, LayerGradient, fifo, prophet

    size = MB // 1000 // 4 * 4000
    with namespaces(ranks, mbit) as names:
        rate, message_s = link_of(names)
        options = {"layer_bytes": size, "forward_s": forward_s, "backward_s": backward_s, "steps": steps}
        runs: dict[str, list[dict[str, Any]]] = {"plain": [], "prophet": []}
        for hook in ("plain", "prophet", "prophet", "plain"):  # what else the machine does falls on both
            runs[hook] += run(names, "train", hook=hook, **options)
    plain, ordered = runs["plain"], runs["prophet"]
    assert abs(plain[0]["sum"] - ordered[0]["sum"]) < 1e-3 * abs(plain[0]["sum"]), "the hooks trained differently"
    took = {name: statistics.median(each[f"{name}_s"] for each in (*plain, *ordered)) for name in WAITED}
    layers = [
        LayerGradient(size=size, forward_s=took["forward"], ready_s=(LAYERS - number) * took["backward"])
        for number in range(LAYERS)
    ]
    link = GradientLink(bytes_per_s=rate, message_s=message_s)
    arrived_s = max(fifo(layers, link).arrival_s)
    where = f"{mbit:g} Mbit/s, {ranks} ranks"
    plain_s, ordered_s = (statistics.median(each["iteration_s"] for each in some) for some in (plain, ordered))
    rows = [
        row(f"plain DDP, {where}", plain_s, max(arrived_s, LAYERS * took["backward"]) + LAYERS * took["forward"]),
        row(f"Prophet's hook, {where}", ordered_s, prophet(layers, link, credit_bytes=size).iteration_s),
    ]
    print(f"  Prophet's hook takes {ordered_s / plain_s:.3f} of plain DDP's iteration", flush=True)
    return [{**each, "ratio": ordered_s / plain_s} for each in rows]


def partial_rows(ranks: int, seconds: float) -> list[dict[str, Any]]:
    """All-reduce and partial all-reduce beside one worker that is four times as slow."""
    from rota.network.sync_schemes import SoftmaxTask, SyncScheme, SyncSetting, train

    compute_s, slow, size = 0.08, 4.0, MB // 4
    with namespaces(ranks, 200) as names:
        rate, message_s = link_of(names)
        with_all = run(names, "average", scheme="all", size=size, compute_s=compute_s, slow=slow, seconds=seconds)
        pair_rate, pair_s = link_of(names[:2])
        partial = run(names, "average", scheme="partial", size=size, compute_s=compute_s, slow=slow, seconds=seconds)
    all_s = with_all[1]["seconds"] / with_all[1]["steps"]
    part_s = sum(each["seconds"] for each in partial) / sum(each["steps"] for each in partial)
    setting = SyncSetting(
        compute_s=(slow * compute_s, *(compute_s,) * (ranks - 1)),
        transfer_s=size / pair_rate + pair_s,
        jitter=0.03,
        group=2,
    )
    model_s = train(SyncScheme.PRAGUE, SoftmaxTask.make(samples=100), setting, 200).step_s
    rows = [
        row(f"all-reduce, one of {ranks} slow", all_s, slow * compute_s + size / rate + message_s),
        row(f"partial all-reduce, one of {ranks} slow", part_s, model_s),
    ]
    print(f"  partial all-reduce is {all_s / part_s:.2f} times as fast", flush=True)
    return rows


def shift_rows(share: float, steps: int) -> list[dict[str, Any]]:
    """Two jobs over the same shaped links, with and without Cassini's shift."""
    size = MB
    with namespaces(2, 100) as names:
        rate, message_s = link_of(names)
        comm_s = size / rate + message_s
        compute_s = comm_s * (1 - share) / share
        period_s = comm_s + compute_s
        rows = []
        for shift_s, text, model in ((0.0, "at the same time", 1 + share), (period_s / 2, "shifted", 1.0)):
            start_s = time.time() + 8.0
            jobs = [
                launch(
                    names,
                    "shared",
                    29600 + job + os.getpid() % 1000,
                    size=size,
                    compute_s=compute_s,
                    shift_s=job * shift_s,
                    period_s=1.06 * model * period_s,
                    steps=steps,
                    start_s=start_s,
                )
                for job in range(2)
            ]
            found = [each["iteration_s"] for job in jobs for each in results(job)]
            rows.append(row(f"two jobs, c = {share:g}, {text}", statistics.mean(found), model * period_s))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", nargs=2, metavar=("MODE", "OPTIONS"))
    parser.add_argument("--quick", action="store_true", help="fewer bandwidths and steps")
    parser.add_argument("--only", choices=("prophet", "partial", "shift"))
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(WORKERS[options.worker[0]](**json.loads(options.worker[1]))), flush=True)
        import torch.distributed as dist

        dist.barrier()
        time.sleep(0.3)  # rank 0 keeps the store until the others have passed
        os._exit(0)  # gloo's threads need not be joined
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that namespaces are removed
    reason = reason_to_skip()
    if reason is not None:
        print(f"skipped: {reason}")
        return 0
    steps = 6 if options.quick else 12
    rows: list[dict[str, Any]] = []
    if options.only in (None, "prophet"):
        rows += prophet_rows(150, 0.03, 0.03, 2, steps)
        rows += prophet_rows(2000, 0.03, 0.03, 2, steps)
        if not options.quick:
            rows += prophet_rows(200, 0.03, 0.04, 4, steps)
    if options.only in (None, "partial"):
        rows += partial_rows(4, 5.0 if options.quick else 10.0)
    if options.only in (None, "shift"):
        rows += shift_rows(0.4, 10 if options.quick else 20)
    worst = max(abs(each["error"]) for each in rows)
    print(f"largest difference from the model: {worst:.1%}")
    return int(worst > 0.15)


if __name__ == "__main__":
    sys.exit(main())
