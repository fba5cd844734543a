"""Denis et al. (ICPP 2021) re-measured: what communication and computing cost each other in memory, both directions.

`python bench/interference.py [--gpu]` measures on this machine. A transfer moves bytes between two pinned
processes over a socket; beside it, processes on other cores copy arrays that do not fit into caches (memory-bound), or
multiply matrices that do (compute-bound). With `--gpu`, a copy between two buffers of the GPU, as collectives do, runs
beside element-wise kernels and beside matrix products. It needs more cores than processes: 4 are the least.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from typing import Any

import numpy as np

BLOCK = 8_000_000
RUNS = 5


def interval(values: list[float]) -> str:
    """Mean and half of a 95% interval (Student's t for few runs)."""
    half = {3: 4.30, 4: 3.18, 5: 2.78}.get(len(values), 1.96) * statistics.stdev(values) / len(values) ** 0.5
    return f"{statistics.mean(values):.1f} ± {half:.1f}"


def pinned(core: int) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    os.sched_setaffinity(0, {core})


def copies(core: int, stop: Event, done: Any) -> None:
    """Copies between arrays that do not fit into caches; counts bytes per second."""
    pinned(core)
    source = np.ones(BLOCK)
    target = np.empty_like(source)
    count, began = 0, time.perf_counter()
    while not stop.is_set():
        np.copyto(target, source)
        count += 1
    done.put(count * 16 * BLOCK / (time.perf_counter() - began))


def products(core: int, stop: Event, done: Any) -> None:
    """Products of matrices that fit into a core's caches; counts products per second."""
    pinned(core)
    block, out = np.ones((160, 160)), np.empty((160, 160))
    count, began = 0, time.perf_counter()
    while not stop.is_set():
        np.matmul(block, block, out=out)
        count += 1
    done.put(count / (time.perf_counter() - began))


def drain(core: int, end: socket.socket, other: socket.socket) -> None:
    pinned(core)
    other.close()
    room = memoryview(bytearray(64 << 20))
    at = 0
    while got := end.recv_into(room[at : at + (4 << 20)]):
        at = (at + got) % (60 << 20)


def transfer(cores: tuple[int, int], seconds: float) -> float:
    """Bytes per second from one process to another, out of and into arrays that do not fit into caches."""
    pinned(cores[0])
    ours, theirs = socket.socketpair()
    child = multiprocessing.Process(target=drain, args=(cores[1], theirs, ours))
    child.start()
    theirs.close()
    data = memoryview(bytearray(64 << 20))
    began, sent = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        at = sent % (60 << 20)
        sent += ours.send(data[at : at + (4 << 20)])
    taken = time.perf_counter() - began
    ours.close()
    child.join()
    return sent / taken


def beside(work: Callable[..., None] | None, cores: list[int], *, sends: bool, seconds: float) -> tuple[float, float]:
    """The rate of the transfer, and of the work of all other processes together."""
    stop = multiprocessing.Event()
    done: Any = multiprocessing.Queue()
    others = [multiprocessing.Process(target=work, args=(core, stop, done)) for core in cores[2:]] if work else []
    for process in others:
        process.start()
    time.sleep(0.4)
    rate = transfer((cores[0], cores[1]), seconds) if sends else 0.0
    if not sends:
        time.sleep(seconds)
    stop.set()
    total = sum(done.get() for _ in others)
    for process in others:
        process.join()
    return rate, total


def on_cpus(seconds: float) -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 4:
        sys.exit(f"there are {len(cores)} cores; a transfer and processes beside it need at least 4")
    print(f"\n| {len(cores)} cores | published | transfer loses | computing loses |\n|---|---|---|---|")
    for name, work, published in (
        ("copies (memory-bound)", copies, "up to 90%"),
        ("products in cache (compute-bound)", products, "little"),
    ):
        for count in sorted({1, (len(cores) - 2) // 4, (len(cores) - 2) // 2, len(cores) - 2}):
            lost: list[float] = []
            slowed: list[float] = []
            for _ in range(RUNS):
                alone, _ = beside(None, cores, sends=True, seconds=seconds)
                _, free = beside(work, cores[: 2 + count], sends=False, seconds=seconds)
                both, held = beside(work, cores[: 2 + count], sends=True, seconds=seconds)
                lost.append(100 * (1 - both / alone))
                slowed.append(100 * (1 - held / free))
            print(f"| {count} x {name} | {published} | {interval(lost)}% | {interval(slowed)}% |", flush=True)


def on_gpu() -> None:
    """A copy on a stream of its own beside kernels on another: the rate of each, alone and together."""
    import torch

    source = torch.ones(1 << 28, device="cuda")
    target = torch.empty_like(source)
    host = torch.ones(1 << 26, pin_memory=True)
    room = torch.empty(1 << 26, device="cuda")
    wide, out = torch.ones(1 << 28, device="cuda"), torch.empty(1 << 28, device="cuda")
    square = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    product = torch.empty_like(square)
    moves = {
        "a copy on the device": lambda: target.copy_(source),
        "a copy from the host": lambda: room.copy_(host, non_blocking=True),
    }
    kernels = {
        "element-wise kernels (memory-bound)": lambda: torch.add(wide, 1.0, out=out),
        "matrix products (compute-bound)": lambda: torch.matmul(square, square, out=product),
    }
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]

    def rates(first: Callable[[], Any] | None, second: Callable[[], Any] | None, seconds: float = 1.0) -> list[float]:
        """Runs per second of two pieces of work on streams of their own, within the time that both run."""
        counts = [0, 0]
        torch.cuda.synchronize()
        began = time.perf_counter()
        pending: list[list[Any]] = [[], []]
        while time.perf_counter() - began < seconds:
            for at, work in enumerate((first, second)):
                if work is None:
                    continue
                pending[at] = [event for event in pending[at] if not event.query()]
                while len(pending[at]) < 6:
                    with torch.cuda.stream(streams[at]):
                        work()
                        event = torch.cuda.Event()
                        event.record()
                    pending[at].append(event)
                    counts[at] += 1
        done = [count - sum(not event.query() for event in some) for count, some in zip(counts, pending, strict=True)]
        taken = time.perf_counter() - began
        torch.cuda.synchronize()
        return [count / taken for count in done]

    name = torch.cuda.get_device_name()
    print(f"\n| {name} | published | the copy loses | the kernels lose |\n|---|---|---|---|")
    for label, move in moves.items():
        for what, kernel in kernels.items():
            rates(move, kernel, 0.3)
            lost: list[float] = []
            slowed: list[float] = []
            for _ in range(RUNS):
                alone, free = rates(move, None)[0], rates(None, kernel)[1]
                both = rates(move, kernel)
                lost.append(100 * (1 - both[0] / alone))
                slowed.append(100 * (1 - both[1] / free))
            published = "up to 90%" if "memory" in what else "little"
            print(f"| {label} beside {what} | {published} | {interval(lost)}% | {interval(slowed)}% |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", action="store_true", help="measure on the GPU as well (PyTorch)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    options = parser.parse_args()
    if options.gpu:
        on_gpu()
    on_cpus(options.seconds)


if __name__ == "__main__":
    main()
