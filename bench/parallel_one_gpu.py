"""Iterations of a GPT in plain PyTorch on one GPU, against what `rota plan parallel` predicts for it.

Weights and gradients have 16 bits, master weights and Adam's moments 32. Attention is not fused, dropout is on, as in
the runs that the cost model was fitted to. `measure FILE` needs PyTorch and a GPU, and writes a table in vTrain's
format with an additional column for peak memory. `compare FILE TYPE` needs Rota: it predicts the rows with the type's
constants, fits them to a random half of the rows and prints the error on the other half.
Run: `python bench/parallel_one_gpu.py measure FILE`, then `python bench/parallel_one_gpu.py compare FILE h200`.
"""

from __future__ import annotations

import csv
import sys
import time
from pathlib import Path
from typing import Any

COLUMNS = (
    "# GPUs",
    "global batch",
    "micro batch",
    "hidden size",
    "attention heads",
    "# layers",
    "sequence length",
    "tensor parallelism",
    "data parallelism",
    "pipeline parallelism",
    "iteration time (ms)",
    "recompute",
    "peak memory (bytes)",
)
SHAPES = ((1024, 12, 16, 1024), (1024, 24, 16, 1024), (2048, 12, 16, 2048), (2048, 24, 32, 1024), (4096, 8, 32, 2048))
MICRO_BATCHES = (1, 2, 4, 8, 16)
VOCAB = 51200


def model_class() -> Any:
    import torch
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    class Layer(nn.Module):  # type: ignore[misc] # PyTorch is not checked
        def __init__(self, hidden: int, heads: int) -> None:
            super().__init__()
            self.heads = heads
            self.first, self.second = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
            self.mix, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
            self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

        def attend(self, x: Any, mask: Any) -> Any:
            batch, seq, hidden = x.shape
            parts = self.mix(x).view(batch, seq, self.heads, 3 * hidden // self.heads).transpose(1, 2).chunk(3, dim=-1)
            scores = parts[0] @ parts[1].transpose(2, 3) * (hidden // self.heads) ** -0.5
            shares = nn.functional.dropout((scores + mask).softmax(-1), 0.1)
            return self.out((shares @ parts[2]).transpose(1, 2).reshape(batch, seq, hidden))

        def forward(self, x: Any, mask: Any) -> Any:
            x = x + nn.functional.dropout(self.attend(self.first(x), mask), 0.1)
            return x + nn.functional.dropout(self.down(nn.functional.gelu(self.up(self.second(x)))), 0.1)

    class Gpt(nn.Module):  # type: ignore[misc] # PyTorch is not checked
        def __init__(self, hidden: int, layers: int, heads: int, seq: int, recompute: bool) -> None:
            super().__init__()
            self.recompute = recompute
            self.words, self.places = nn.Embedding(VOCAB, hidden), nn.Embedding(seq, hidden)
            self.layers = nn.ModuleList(Layer(hidden, heads) for _ in range(layers))
            self.norm = nn.LayerNorm(hidden)
            self.register_buffer("mask", torch.full((seq, seq), -1e4).triu(1), persistent=False)

        def forward(self, tokens: Any) -> Any:
            x = self.words(tokens) + self.places.weight
            for layer in self.layers:
                x = checkpoint(layer, x, self.mask, use_reentrant=False) if self.recompute else layer(x, self.mask)
            logits = self.norm(x) @ self.words.weight.T
            return nn.functional.cross_entropy(logits.float().view(-1, VOCAB), tokens.reshape(-1))

    return Gpt


class MasterAdam:
    """Adam over 32-bit copies of 16-bit weights, one weight at a time, to save memory."""

    def __init__(self, parameters: list[Any]) -> None:
        import torch

        self.parameters = parameters
        self.masters = [one.detach().float() for one in parameters]
        self.states = [(torch.zeros_like(one), torch.zeros_like(one)) for one in self.masters]
        self.step_count = torch.zeros((), device=parameters[0].device)

    def step(self) -> None:
        import torch

        with torch.no_grad():
            for one, master, (mean, square) in zip(self.parameters, self.masters, self.states, strict=True):
                torch._fused_adamw_(
                    [master], [one.grad.float()], [mean], [square], [], [self.step_count + 1], lr=1e-4, beta1=0.9,
                    beta2=0.95, weight_decay=0.1, eps=1e-8, amsgrad=False, maximize=False,
                )  # fmt: skip
                one.copy_(master)
                one.grad.zero_()


def iteration_s(shape: tuple[int, ...], micro_batch: int, micro_batches: int, recompute: bool) -> tuple[float, int]:
    import torch

    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    hidden, layers, heads, seq = shape
    with torch.device("cuda"):
        model = model_class()(hidden, layers, heads, seq, recompute).bfloat16()
    optimizer = MasterAdam(list(model.parameters()))
    tokens = torch.randint(VOCAB, (micro_batch, seq), device="cuda")
    times = []
    for _ in range(6):
        torch.cuda.synchronize()
        began_s = time.perf_counter()
        for _ in range(micro_batches):
            model(tokens).backward()
        optimizer.step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began_s)
    return sorted(times[2:])[1], torch.cuda.max_memory_allocated()


def measure(file: Path) -> None:
    import torch

    with file.open("w", newline="") as text:
        table = csv.writer(text)
        table.writerow(COLUMNS)
        for shape in SHAPES:
            for micro_batch in MICRO_BATCHES:
                for recompute in (False, True):
                    for micro_batches in (1, 4):
                        try:
                            taken_s, peak = iteration_s(shape, micro_batch, micro_batches, recompute)
                        except torch.OutOfMemoryError:
                            continue
                        hidden, layers, heads, seq = shape
                        batch = micro_batch * micro_batches
                        way = "full" if recompute else "none"
                        row = (
                            1,
                            batch,
                            micro_batch,
                            hidden,
                            heads,
                            layers,
                            seq,
                            1,
                            1,
                            1,
                            f"{taken_s * 1e3:.3f}",
                            way,
                            peak,
                        )
                        table.writerow(row)
                        text.flush()
                        print(*row, flush=True)


def compare(file: Path, gpu: str) -> None:
    import random
    from dataclasses import replace

    from rota.planner.parallel.accuracy import mean_absolute, relative_errors
    from rota.planner.parallel.fitting import fitted
    from rota.planner.parallel.hardware import accelerator
    from rota.planner.parallel.measured import read_iterations
    from rota.planner.parallel.memory import RESERVED_BYTES, memory_use
    from rota.planner.parallel.plans import Recompute

    device = accelerator(gpu)
    with file.open(newline="") as text:
        told = list(csv.DictReader(text))
    rows = read_iterations(file, Recompute.NONE)
    peaks = [int(more["peak memory (bytes)"]) for more in told]
    memory = [
        (memory_use(row.setup, row.plan).total_bytes - RESERVED_BYTES) / peak - 1
        for row, peak in zip(rows, peaks, strict=True)
    ]
    print("| | rows | mean error | largest |")
    print("|---|---|---|---|")

    def tell(name: str, errors: list[float]) -> None:
        print(f"| {name} | {len(errors)} | {mean_absolute(errors):.1%} | {max(errors, key=abs):+.0%} |")

    tell("time, constants of the A100", relative_errors(replace(device, kernels=accelerator("a100").kernels), rows))
    tell(f"time, constants of `{gpu}`", relative_errors(device, rows))
    halves = []
    for seed in range(5):
        drawn = random.Random(seed).sample(rows, len(rows))
        halves += relative_errors(fitted(device, drawn[: len(rows) // 2]), drawn[len(rows) // 2 :])
    tell("time, fitted to the other half (five draws)", halves)
    tell("peak memory", memory)
    print(fitted(device, rows).kernels, file=sys.stderr)


if __name__ == "__main__":
    if sys.argv[1] == "measure":
        measure(Path(sys.argv[2]))
    else:
        compare(Path(sys.argv[2]), sys.argv[3])
