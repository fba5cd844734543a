"""Overlap of operators of two models on one GPU by streams, against predictors of the group's latency.

After Abacus (Cui et al., SC 2021): two spans of consecutive blocks, each of one model with its own batch, run on two
streams at once. Their latency is measured and then predicted from measurements of each span alone. Half of
the groups is held out from the fit. With --profile, the times that `rota plan profile --type cuda` measures are
compared with those of the whole model. Needs PyTorch with CUDA and NumPy, and nothing else:

    python bench/gpu_overlap.py [--groups 600] [--seconds 200] [--seed 1] [--out overlap.csv] [--profile]
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
BATCHES = (1, 2, 4, 8, 16, 32)
REPEATS = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Consecutive blocks of a model, with their measurements alone."""

    model: str
    first: int
    blocks: int
    batch: int
    alone_ms: float
    graph: Any
    run: Callable[[], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Two spans and their latency together."""

    spans: tuple[Span, Span]
    together_ms: float


def bottleneck(nn: Any, inside: int, width: int, stride: int) -> Any:
    """Return a residual block of a ResNet: 1x1, 3x3, 1x1 beside a shortcut."""

    class Bottleneck(nn.Module):  # type: ignore[misc,name-defined,unused-ignore]  # torch is not typed here
        def __init__(self) -> None:
            super().__init__()
            self.main = nn.Sequential(
                *(nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
                *(nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
                *(nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)),
            )
            changes = stride > 1 or inside != 4 * width
            shortcut = (nn.Conv2d(inside, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))
            self.side = nn.Sequential(*shortcut) if changes else nn.Identity()

        def forward(self, value: Any) -> Any:
            return nn.functional.relu(self.main(value) + self.side(value))

    return Bottleneck()


def residual(nn: Any, depths: Sequence[int]) -> list[Any]:
    """Return the blocks of a ResNet with so many bottlenecks at each resolution."""
    stem = (nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    blocks = [nn.Sequential(*stem)]
    inside = 64
    for level, depth in enumerate(depths):
        width = 64 << level
        for place in range(depth):
            blocks.append(bottleneck(nn, inside, width, 2 if level and not place else 1))
            inside = 4 * width
    return blocks


def convolutions(nn: Any) -> list[Any]:
    """Return the convolutional layers of VGG-19."""
    layers: list[Any] = []
    inside = 3
    for width, depth in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
        for _ in range(depth):
            layers += [nn.Conv2d(inside, width, 3, padding=1), nn.ReLU()]
            inside = width
        layers.append(nn.MaxPool2d(2, 2))
    return layers


def models(torch: Any) -> dict[str, tuple[list[Any], Callable[[int], Any]]]:
    """Return models as lists of blocks, with a function that makes an input of a batch size."""
    nn = torch.nn

    def image(batch: int) -> Any:
        return torch.randn(batch, 3, 224, 224, device="cuda", dtype=torch.float16)

    def tokens(hidden: int, length: int) -> Callable[[int], Any]:
        return lambda batch: torch.randn(batch, length, hidden, device="cuda", dtype=torch.float16)

    def encoder(hidden: int, heads: int, layers: int) -> list[Any]:
        kind = nn.TransformerEncoderLayer
        return [kind(hidden, heads, 4 * hidden, batch_first=True, norm_first=True) for _ in range(layers)]

    found = {
        "resnet50": (residual(nn, (3, 4, 6, 3)), image),
        "resnet152": (residual(nn, (3, 8, 36, 3)), image),
        "vgg19": (convolutions(nn), image),
        "bert": (encoder(768, 12, 12), tokens(768, 128)),
        "bert-large": (encoder(1024, 16, 24), tokens(1024, 256)),
    }
    return {name: ([block.cuda().half().eval() for block in blocks], start) for name, (blocks, start) in found.items()}


def captured(torch: Any, runs: Sequence[Callable[[], Any]]) -> Any:
    """Return a CUDA graph in which each function runs on its own stream."""
    main = torch.cuda.Stream()
    sides = [torch.cuda.Stream() for _ in runs]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(main):
        for run in runs:
            run()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=main):
            for run, side in zip(runs, sides, strict=True):
                side.wait_stream(main)
                with torch.cuda.stream(side):
                    run()
            for side in sides:
                main.wait_stream(side)
    return graph


def timed_ms(torch: Any, graph: Any) -> float:
    """Return the median time of a replay."""
    for _ in range(3):
        graph.replay()
    times = []
    for _ in range(REPEATS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return float(statistics.median(times))


def measured(torch: Any, groups: int, seed: int, seconds: float) -> list[Group]:
    """Return random groups of two spans, each measured alone and together; fewer where the time is up before."""
    rng = np.random.default_rng(seed)
    library = models(torch)
    began_s = time.monotonic()
    names = sorted(library)

    def span() -> Span:
        name = names[rng.integers(len(names))]
        blocks, start = library[name]
        batch = int(rng.choice(BATCHES))
        count = int(rng.integers(1, len(blocks) + 1))
        first = int(rng.integers(0, len(blocks) - count + 1))
        value = start(batch)
        for block in blocks[:first]:
            value = block(value)
        part = torch.nn.Sequential(*blocks[first : first + count])

        def run() -> Any:
            return part(value)

        graph = captured(torch, [run])
        return Span(
            model=name, first=first, blocks=count, batch=batch, alone_ms=timed_ms(torch, graph), graph=graph, run=run
        )

    found = []
    with torch.inference_mode():
        for index in range(groups):
            pair = (span(), span())
            together = timed_ms(torch, captured(torch, [pair[0].run, pair[1].run]))
            found.append(Group(spans=pair, together_ms=together))
            if time.monotonic() - began_s > seconds:
                break
            if sys.stderr.isatty() or index % 100 == 99:
                print(f"{index + 1} of {groups} groups measured", file=sys.stderr)
    return found


def features_of(groups: Sequence[Group]) -> Floats:
    """Return the features known before a group runs: time alone, model, batch, first block and length of each span."""
    names = sorted({span.model for group in groups for span in group.spans})
    rows = []
    for group in groups:
        row = []
        for span in sorted(group.spans, key=lambda span: -span.alone_ms):
            row += [span.alone_ms, span.batch, span.first, span.blocks, *(float(span.model == name) for name in names)]
        rows.append(row)
    return np.array(rows)


def by_line(known: Floats, times: Floats, asked: Floats) -> Floats:
    """Fit by least squares of the relative error."""
    ones = np.hstack([known, np.ones((len(known), 1))])
    weights = np.linalg.lstsq(ones / times[:, None], np.ones(len(times)), rcond=None)[0]
    predicted: Floats = np.hstack([asked, np.ones((len(asked), 1))]) @ weights
    return predicted


def by_network(torch: Any, known: Floats, times: Floats, asked: Floats) -> Floats:
    """Train a multilayer perceptron on the group's time over the sum of the times alone, as Abacus does."""
    torch.manual_seed(0)
    half = known.shape[1] // 2

    def scaled(rows: Floats) -> Floats:
        copy = rows.copy()
        for at in (0, 1, half, half + 1):
            copy[:, at] = np.log(copy[:, at])
        return np.hstack([copy, copy[:, [0]] - copy[:, [half]]])

    mean, spread = scaled(known).mean(0), scaled(known).std(0) + 1e-6
    sums = known[:, 0] + known[:, half]
    x = torch.tensor((scaled(known) - mean) / spread, dtype=torch.float32)
    y = torch.tensor(times / sums, dtype=torch.float32)[:, None]
    net = torch.nn.Sequential(
        torch.nn.Linear(x.shape[1], 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 1),
    )
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=1e-2)
    for _ in range(1500):
        optimizer.zero_grad()
        ((net(x) - y) / y).abs().mean().backward()
        optimizer.step()
    with torch.no_grad():
        ratio = net(torch.tensor((scaled(asked) - mean) / spread, dtype=torch.float32)).numpy()[:, 0]
    predicted: Floats = ratio * (asked[:, 0] + asked[:, half])
    return predicted


def profile_whole(torch: Any) -> None:
    """Print what `rota plan profile` measures on this GPU and on the CPU, beside the time of the whole model."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "src"))
    from rota.planner.pytorch.graph import ModelProfiling, model_graph

    layers = (torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True) for _ in range(4))
    model, inputs = torch.nn.Sequential(*layers).eval(), torch.randn(16, 512, 1024)
    graph = model_graph(model, (inputs,), ModelProfiling(device_types=("cpu", "cuda"), repeats=5), "encoder")
    there, value = model.cuda(), inputs.cuda()
    times_ms = []
    torch.backends.mha.set_fastpath_enabled(False)
    with torch.no_grad():
        for _ in range(20):
            torch.cuda.synchronize()
            began_s = time.perf_counter()
            there(value)
            torch.cuda.synchronize()
            times_ms.append((time.perf_counter() - began_s) * 1e3)
    sums = {kind: sum(operator.time_ms[kind] for operator in graph.operators) for kind in ("cpu", "cuda")}
    whole_ms = statistics.median(times_ms[5:])
    on = f"{sums['cpu']:.1f} ms on the CPU and {sums['cuda']:.2f} ms on the GPU"
    print(f"profile: {len(graph.operators)} operators take {on};")
    print(f"the whole model takes {whole_ms:.2f} ms there, its operators {sums['cuda'] / whole_ms:.2f} times that")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--groups", type=int, default=600, help="number of random pairs of spans to measure")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=200.0, help="stop measuring groups after that long")
    parser.add_argument("--profile", action="store_true", help="compare operators that Rota profiles with the whole")
    parser.add_argument("--out", help="write the measured groups as CSV")
    options = parser.parse_args()
    try:
        import torch
    except ImportError as error:
        print(f"skipped: {error}; this benchmark needs PyTorch")
        return 0
    if not torch.cuda.is_available():
        print("skipped: PyTorch finds no GPU")
        return 0
    if options.profile:
        profile_whole(torch)
    groups = measured(torch, options.groups, options.seed, options.seconds)
    if options.out:
        with open(options.out, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            head = ["model", "first", "blocks", "batch", "alone_ms"]
            writer.writerow([f"{name}_{side}" for side in (1, 2) for name in head] + ["together_ms"])
            for group in groups:
                cells = [getattr(span, name) for span in group.spans for name in head]
                writer.writerow([*cells, group.together_ms])
    table, times = features_of(groups), np.array([group.together_ms for group in groups])
    half = table.shape[1] // 2
    picked = np.random.default_rng(options.seed).permutation(len(groups))
    fit, held = picked[: len(groups) // 2], picked[len(groups) // 2 :]
    gain = (table[:, 0] + table[:, half]) / times
    print(f"{len(groups)} groups on {torch.cuda.get_device_name()}; overlap gains {gain.mean():.2f} times on average,")
    print(f"from {np.quantile(gain, 0.05):.2f} (5%) to {np.quantile(gain, 0.95):.2f} (95%)")
    print("mean error of the predicted latency on the held-out half:")
    guesses = {
        "one after the other": table[held, 0] + table[held, half],
        "perfect overlap": table[held, 0],
        "linear": by_line(table[fit], times[fit], table[held]),
        "network (as Abacus)": by_network(torch, table[fit], times[fit], table[held]),
    }
    for name, guess in guesses.items():
        off = np.abs(guess - times[held]) / times[held]
        print(f"  {name:20} {off.mean():6.1%}   p90 {np.quantile(off, 0.9):6.1%}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
