"""Measurements of links with all-reduces by gloo, and the network file that describes what was measured."""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from rota.core.errors import RotaError

SMALLEST = 1024
MOST_WAIT_S = 600.0
_WORKER = "from rota.cli.net_bench import worker; worker()"


def measure(out: Path, *, ranks: int, most: int, repeats: int) -> list[Path]:
    """Measure, write the table and the network file, and return their paths; only rank 0 writes."""
    if find_spec("torch") is None:
        raise RotaError("there is no PyTorch to measure with; install it: pip install 'rota[learn]'")
    if most < 4 * SMALLEST:
        raise RotaError(f"--most is {most} bytes; it must be at least {4 * SMALLEST}")
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        points = timed(most, repeats)
        if int(os.environ["RANK"]):
            return []
        return written(out, int(os.environ["WORLD_SIZE"]), points, between_nodes=True)
    return written(out, ranks, _spawned(ranks, most, repeats), between_nodes=False)


def _spawned(ranks: int, most: int, repeats: int) -> list[tuple[int, float]]:
    """Measure between processes of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", _WORKER, str(most), str(repeats)]
    processes = [
        subprocess.Popen(command, env={**os.environ, **common, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in range(ranks)
    ]
    try:
        printed = [process.communicate(timeout=MOST_WAIT_S)[0] for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
    if any(process.returncode for process in processes):
        raise RotaError("a process of the measurement failed; its error is above")
    return [(int(size), float(seconds)) for size, seconds in json.loads(printed[0].splitlines()[-1])]


def worker() -> None:
    """Measure as one of several processes, and print the points."""
    points = timed(int(sys.argv[1]), int(sys.argv[2]))
    print(json.dumps(points), flush=True)


def timed(most: int, repeats: int) -> list[tuple[int, float]]:
    """Return the median time of an all-reduce at each size, four sizes for each factor of two up to the largest."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    sizes, size = [], SMALLEST
    while size <= most:
        sizes.append(size)
        size = size * 5 // 4 // 4 * 4 if size >= most // 64 else size * 2
    points = []
    for each in sizes:
        buffer = torch.zeros(each // 4)
        dist.all_reduce(buffer)
        times = []
        for _ in range(repeats):
            dist.barrier()
            began = time.perf_counter()
            dist.all_reduce(buffer)
            times.append(time.perf_counter() - began)
        points.append((each, statistics.median(times)))
    dist.barrier()
    dist.destroy_process_group()
    return points


def written(out: Path, ranks: int, points: list[tuple[int, float]], *, between_nodes: bool) -> list[Path]:
    """Write a table and a network file whose links have the rate and latency that were measured."""
    from rota.network.calibration import fit_curve

    curve = fit_curve([(float(size), seconds) for size, seconds in points])
    small_s, (large, large_s) = points[0][1], points[-1]
    slope = (large_s - curve.time_s(large / 2)) / (large / 2)
    rate = 2 * (ranks - 1) / ranks / slope if slope > 0 else large / large_s
    table = out.with_name(f"{out.stem}-{ranks}.csv")
    table.write_text("size,time(s)\n" + "".join(f"{size},{seconds:.9f}\n" for size, seconds in points))
    names = [f"n{number + 1}" for number in range(ranks)]
    lines = [
        f"# measured by rota net bench: all-reduce between {ranks} {'nodes' if between_nodes else 'processes'} (gloo)",
        "topology: links",
        f"nodes: [{', '.join(names)}]",
        f"link: {round(8 * rate)}",
        f"message_latency: {small_s / (2 * (ranks - 1)):.9f}",
        "links:",
        *(f"  - {{between: [{name}, switch]}}" for name in names),
    ]
    if not between_nodes:
        lines.append(f"inside: {{{ranks}: {table.name}}}")
    out.write_text("\n".join(lines) + "\n")
    return [out, table]
