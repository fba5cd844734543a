"""Measure the trainings of `workloads.py` on a GPU, alone and in pairs, and write one row for each.

    python bench/profiles/measure.py alone --out alone.csv
    python bench/profiles/measure.py pairs --out pairs.csv

Needs PyTorch, torchvision and NVML, which is read beside the process that trains. Nothing else may use the GPU
meanwhile.
"""

from __future__ import annotations

import argparse
import csv
import gc
import io
import itertools
import multiprocessing
import random
import statistics
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pynvml
import torch
from workloads import KINDS, Config, Training, steps_for

ALONE_S = 1.0
PAIR_S = 1.0
SEED = 20261115
REPEATED = 8
"""The number of configurations measured three times, because equal inputs do not always give equal results."""

BATCHES = {
    "cnn": (16, 32, 64, 128, 256),
    "mobile": (32, 64, 128, 256),
    "vit": (8, 16, 32, 64),
    "lstm": (16, 32, 64, 128),
    "transformer": (4, 8, 16, 32, 64),
    "recommender": (512, 2048, 8192, 32768),
    "gan": (32, 64, 128, 256),
}
SIZES = {
    "cnn": (64, 128, 192, 224),
    "mobile": (96, 128, 192, 224),
    "vit": (128, 224),
    "lstm": (32, 64, 128),
    "transformer": (64, 128, 256, 512),
    "recommender": (10_000, 50_000, 200_000),
    "gan": (32, 64, 128),
}
CHOICES = tuple(itertools.product(("fp32", "tf32", "bf16", "fp16"), ("sgd", "momentum", "adam", "adamw")))
PER_MODEL = 11
PAIRED = (
    Config(model="resnet18", batch=32, size=128, precision="bf16", optimizer="momentum"),
    Config(model="resnet50", batch=64, size=224, precision="bf16", optimizer="momentum"),
    Config(model="mobilenet_v3_large", batch=64, size=224, precision="bf16", optimizer="momentum"),
    Config(model="densenet121", batch=32, size=192, precision="tf32", optimizer="momentum"),
    Config(model="vit_b_16", batch=32, size=224, precision="bf16", optimizer="adamw"),
    Config(model="lstm-small", batch=32, size=64, precision="fp32", optimizer="adam"),
    Config(model="lstm-large", batch=64, size=128, precision="tf32", optimizer="adam"),
    Config(model="gpt-tiny", batch=8, size=128, precision="bf16", optimizer="adamw"),
    Config(model="gpt-base", batch=16, size=256, precision="bf16", optimizer="adamw"),
    Config(model="dlrm-narrow", batch=2048, size=100_000, precision="fp32", optimizer="sgd"),
    Config(model="dcgan", batch=64, size=64, precision="fp32", optimizer="adam"),
)


def grid() -> list[Config]:
    """Return configurations of all models in mixed order; some occur three times."""
    rng = random.Random(SEED)
    chosen: list[Config] = []
    for model, kind in KINDS.items():
        shapes = list(itertools.product(BATCHES[kind.family], SIZES[kind.family]))
        rng.shuffle(shapes)
        picks = list(CHOICES)
        rng.shuffle(picks)
        for number in range(PER_MODEL):
            batch, size = shapes[number % len(shapes)]
            precision, optimizer = picks[number % len(picks)]
            chosen.append(Config(model=model, batch=batch, size=size, precision=precision, optimizer=optimizer))
    chosen += 2 * rng.sample(chosen, REPEATED)
    rng.shuffle(chosen)
    return chosen


@dataclass(slots=True)
class Watch:
    """NVML's readings of the GPU while a training runs."""

    handle: Any
    idle_bytes: int
    most_bytes: int = 0
    busy: list[int] = field(default_factory=list)
    read_kb: list[int] = field(default_factory=list)
    sent_kb: list[int] = field(default_factory=list)
    training: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.over.wait(0.02):
            self.most_bytes = max(self.most_bytes, used(self.handle))
            if self.training.is_set():
                self.busy.append(pynvml.nvmlDeviceGetUtilizationRates(self.handle).gpu)
                self._note_bus()

    def _note_bus(self) -> None:
        try:
            self.read_kb.append(pynvml.nvmlDeviceGetPcieThroughput(self.handle, pynvml.NVML_PCIE_UTIL_RX_BYTES))
            self.sent_kb.append(pynvml.nvmlDeviceGetPcieThroughput(self.handle, pynvml.NVML_PCIE_UTIL_TX_BYTES))
        except pynvml.NVMLError:
            return

    def row(self) -> dict[str, float]:
        return {
            "gpu_memory_mb": (self.most_bytes - self.idle_bytes) / 2**20,
            "gpu_util_mean": statistics.fmean(self.busy) if self.busy else float("nan"),
            "gpu_util_std": statistics.pstdev(self.busy) if self.busy else float("nan"),
            "pcie_read_mb_s": statistics.fmean(self.read_kb) / 1024 if self.read_kb else float("nan"),
            "pcie_sent_mb_s": statistics.fmean(self.sent_kb) / 1024 if self.sent_kb else float("nan"),
        }


def used(handle: Any) -> int:
    return int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)


def train(config: Config, seconds: float, link: Connection) -> dict[str, float]:
    """Load, wait for the start signal, train and save; return the measurements."""
    torch.cuda.reset_peak_memory_stats()
    begun = time.monotonic()
    training = Training(config, "cuda")
    steps = steps_for(training, seconds)
    next(steps)
    loaded = time.monotonic()
    link.send("ready")
    link.recv()
    cpu, clock, done, marks = time.process_time(), time.monotonic(), 0, [0.0]
    for done in steps:  # noqa: B007 - the last one counts
        marks.append(time.monotonic() - clock)
    wall, cpu = time.monotonic() - clock, time.process_time() - cpu
    link.send("trained")
    fours = [(late - early) / 4 for early, late in itertools.pairwise(marks)]
    row = {
        "steps": done,
        "step_s": statistics.median(fours),
        "step_mean_s": wall / done,
        "cpu_cores": cpu / wall,
        "host_memory_mb": resident_mb(),
        "load_s": loaded - begun,
        "reserved_mb": torch.cuda.max_memory_reserved() / 2**20,
        "allocated_mb": torch.cuda.max_memory_allocated() / 2**20,
    }
    saving = time.monotonic()
    held = io.BytesIO()
    torch.save(training.model.state_dict(), held)
    row |= {"save_s": time.monotonic() - saving, "saved_mb": held.tell() / 2**20}
    return row | training.white_box()


def resident_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def work(link: Connection) -> None:
    """Run the received trainings one after the other, and release the device's memory between them."""
    while True:
        config, seconds = link.recv()
        try:
            result: object = train(config, seconds, link)
        except torch.cuda.OutOfMemoryError as error:
            result = error.with_traceback(None)
        gc.collect()
        torch.cuda.empty_cache()
        link.send(result)


class Worker:
    """A process with a context on the device."""

    def __init__(self) -> None:
        self.link, other = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("fork").Process(target=work, args=(other,), daemon=True)
        self.process.start()
        other.close()

    def expect(self) -> Any:
        if not self.link.poll(60):
            raise EOFError("it does not answer")
        result = self.link.recv()
        if isinstance(result, Exception):
            raise result
        return result


@dataclass(slots=True)
class Bench:
    """The device, and the processes that use it."""

    handle: Any
    idle_bytes: int
    workers: list[Worker]

    def measure(self, configs: tuple[Config, ...], seconds: float) -> tuple[list[dict[str, float]], dict[str, float]]:
        """Train these at the same time; return the measurements of each and NVML's readings."""
        watch = Watch(self.handle, self.idle_bytes)
        watcher = threading.Thread(target=watch.run, daemon=True)
        watcher.start()
        busy = self.workers[: len(configs)]
        try:
            for worker, config in zip(busy, configs, strict=True):
                worker.link.send((config, seconds))
            for worker in busy:
                worker.expect()
            watch.training.set()
            for worker in busy:
                worker.link.send("go")
            for worker in busy:
                worker.expect()
            watch.training.clear()
            watch.over.set()
            return [worker.expect() for worker in busy], watch.row()
        finally:
            watch.over.set()
            watcher.join()


def alone(bench: Bench, first: int) -> Iterator[dict[str, Any]]:
    """Yield the grid from an index on; configurations that do not fit into the device's memory are skipped."""
    for config in grid()[first:]:
        try:
            (results,), seen = bench.measure((config,), ALONE_S)
        except torch.cuda.OutOfMemoryError:
            print(f"{config} does not fit", flush=True)
            continue
        yield {"family": KINDS[config.model].family, **asdict(config), **seen, **results}


def pairs(bench: Bench) -> Iterator[dict[str, Any]]:
    """Yield every pair of a few trainings, including each with itself; each is first measured alone in the same run."""
    bare_s: dict[Config, float] = {}
    for config in PAIRED:
        (results,), _ = bench.measure((config,), PAIR_S)
        bare_s[config] = results["step_mean_s"]
    for one, other in itertools.combinations_with_replacement(PAIRED, 2):
        results, seen = bench.measure((one, other), PAIR_S)
        row: dict[str, Any] = {}
        for name, config, result in (("a", one, results[0]), ("b", other, results[1])):
            row |= {f"{name}_{key}": value for key, value in asdict(config).items()}
            row |= {f"{name}_alone_s": bare_s[config], f"{name}_together_s": result["step_mean_s"]}
        yield row | seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("alone", "pairs"))
    parser.add_argument("--from", dest="first", type=int, default=0, help="go on from this place of the grid")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--within", type=float, default=560.0, help="stop after so many seconds")
    asked = parser.parse_args()
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    idle = used(handle)
    bench = Bench(handle, idle, [Worker() for _ in range(1 if asked.what == "alone" else 2)])
    rows = alone(bench, asked.first) if asked.what == "alone" else pairs(bench)
    begun = time.monotonic()
    writer: csv.DictWriter[str] | None = None
    with asked.out.open("w", newline="") as file:
        for number, row in enumerate(rows):
            writer = writer or csv.DictWriter(file, row)
            if number == 0:
                writer.writeheader()
            writer.writerow({key: f"{value:.6g}" if isinstance(value, float) else value for key, value in row.items()})
            file.flush()
            passed = time.monotonic() - begun
            if number % 10 == 0:
                print(f"{number + 1} rows in {passed:.0f} s", flush=True)
            if passed > asked.within:
                print("out of time", flush=True)
                break


if __name__ == "__main__":
    main()
