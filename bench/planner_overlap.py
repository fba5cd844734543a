"""Operators that overlap on one GPU by streams: measured times of pairs against the predictor of `abacus`.

An operator's occupancy is measured with two concurrent copies of it; no pair of different operators is used for that.
Every pair is then run on two streams and compared with the prediction, and with two baselines that need no measurement
of pairs: one after the other, and the longer of the two.

Run: `python bench/planner_overlap.py`, one NVIDIA GPU; skipped without PyTorch or a GPU.
"""

from __future__ import annotations

import itertools
import statistics
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from rota.planner.server.overlap import OverlapPredictor

REPEATS, LAUNCHES = 15, 40


def operators(torch: Any) -> dict[str, Callable[[], Any]]:
    """Return operators of inference with small and large batches."""
    device = torch.device("cuda")

    def linear(rows: int, width: int) -> Callable[[], Any]:
        x, w = torch.randn(rows, width, device=device), torch.randn(width, width, device=device)
        return lambda: x @ w

    def convolution(batch: int, channels: int, side: int) -> Callable[[], Any]:
        x = torch.randn(batch, channels, side, side, device=device)
        layer = torch.nn.Conv2d(channels, channels, 3, padding=1).to(device)
        return lambda: layer(x)

    def softmax(rows: int, width: int) -> Callable[[], Any]:
        x = torch.randn(rows, width, device=device)
        return lambda: torch.softmax(x, dim=1)

    return {
        "linear 32x2048": linear(32, 2048),
        "linear 256x2048": linear(256, 2048),
        "linear 2048x2048": linear(2048, 2048),
        "conv 1x64x56": convolution(1, 64, 56),
        "conv 8x128x28": convolution(8, 128, 28),
        "conv 32x256x14": convolution(32, 256, 14),
        "softmax 512x1024": softmax(512, 1024),
        "softmax 16384x1024": softmax(16384, 1024),
    }


def captured(torch: Any, run: Callable[[], Any], stream: Any) -> Any:
    """Return a graph that repeats the operator many times, so that launches cost no host time."""
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(LAUNCHES):
            run()
    return graph


def timed_ms(torch: Any, pairs: list[tuple[Any, Any]]) -> float:
    """Return the median time of graphs that start together, each on its own stream."""
    times = []
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        main = torch.cuda.current_stream()
        begin.record(main)
        for graph, stream in pairs:
            stream.wait_stream(main)
            with torch.cuda.stream(stream):
                graph.replay()
        for _, stream in pairs:
            main.wait_stream(stream)
        end.record(main)
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return float(statistics.median(times[3:]))


def main() -> int:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    streams = torch.cuda.Stream(), torch.cuda.Stream()
    graphs = {name: [captured(torch, run, stream) for stream in streams] for name, run in operators(torch).items()}
    alone = {name: timed_ms(torch, [(made[0], streams[0])]) for name, made in graphs.items()}
    occupancy = {}
    for name, made in graphs.items():
        twice_ms = timed_ms(torch, list(zip(made, streams, strict=True)))
        occupancy[name] = min(1.0, max(twice_ms / (2 * alone[name]), 1e-3))
    # Launches of the shorter operator end first: the two overlap throughout only if their times are equal, so pairs are
    # compared as whole graphs.
    predictor = OverlapPredictor()
    errors: dict[str, list[float]] = {"abacus": [], "one after the other": [], "longer of the two": []}
    for first, second in itertools.combinations(graphs, 2):
        real_ms = timed_ms(torch, [(graphs[first][0], streams[0]), (graphs[second][1], streams[1])])
        guesses = {
            "abacus": predictor.group_ms([(alone[name], occupancy[name]) for name in (first, second)]),
            "one after the other": alone[first] + alone[second],
            "longer of the two": max(alone[first], alone[second]),
        }
        for name, guess_ms in guesses.items():
            errors[name].append(abs(guess_ms / real_ms - 1))
    print(f"{torch.cuda.get_device_name()}, {len(errors['abacus'])} pairs of {len(graphs)} operators")
    for name in graphs:
        print(f"{name:20} {alone[name] / LAUNCHES * 1e3:8.1f} us alone, occupancy {occupancy[name]:.2f}")
    for name, found in errors.items():
        print(f"{name:20} mean error {statistics.mean(found):6.1%}, largest {max(found):6.1%}")
    return 0 if statistics.mean(errors["abacus"]) < statistics.mean(errors["one after the other"]) else 1


if __name__ == "__main__":
    if find_spec("torch") is None:
        print("skipped: PyTorch is not installed; pip install 'rota[learn]'")
        sys.exit(0)
    import torch as found_torch

    if not found_torch.cuda.is_available():
        print("skipped: PyTorch finds no GPU")
        sys.exit(0)
    sys.exit(main())
