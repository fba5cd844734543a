"""Limits, shares and telemetry on a real GPU: unmodified PyTorch trainings under a real manager, and beside MPS alone.

    python bench/gpu_limits.py [ROW ...]

Rows: limit, mps, turns, bound, pairs, overhead. Prints a table in Markdown, a line for each claim; below six minutes.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]

from managers import Manager, eventually
from rota.drivers.local.gpu.mps import MpsDaemons, MpsKey
from rota.drivers.local.gpu.sensors import find_sensors
from rota.drivers.local.machine import nvml_folder
from rota.drivers.local.task_runner.nvml import find_nvml

Json = dict[str, Any]
PASSED = ("PYTHONPATH", "LD_LIBRARY_PATH", "CUDA_HOME", "PATH")
WARM_S = 4.0
"""A training becomes faster in its first seconds; they don't count where speeds are compared closely."""
WIDE = "wide"
"""A model whose kernels are long: its speed is that of the GPU, however fast the CPU is at the moment."""
MODELS = ("mlp", "convolutions", "transformer", "lstm", "embeddings")
PAIRS = (
    ("mlp", "convolutions"),
    ("transformer", "lstm"),
    ("convolutions", "transformer"),
    ("embeddings", "mlp"),
    ("lstm", "embeddings"),
)
WORK = """
import os, sys, time
import torch
from torch import nn

kind, seconds, path = sys.argv[1], float(sys.argv[2]), sys.argv[3]
reports, peer = sys.argv[4:] == ["sdk"], sys.argv[4] if sys.argv[4:] not in ([], ["sdk"]) else None
torch.manual_seed(1)


class Last(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, data):
        return self.inner(data)[0].mean(1)


def made():
    if kind in ("mlp", "wide"):
        sizes = [nn.Linear(2048, 2048) if n % 2 == 0 else nn.ReLU() for n in range(9)]
        batch = torch.randn(8192 if kind == "wide" else 2048, 2048, device="cuda")
        return nn.Sequential(*sizes), lambda: batch
    if kind == "convolutions":
        layers = []
        for into, out in ((3, 64), (64, 128), (128, 256), (256, 256)):
            layers += [nn.Conv2d(into, out, 3, 2, 1), nn.BatchNorm2d(out), nn.ReLU()]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), lambda: torch.randn(
            512, 3, 96, 96, device="cuda"
        )
    if kind == "transformer":
        layers = [nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True) for _ in range(4)]
        return nn.Sequential(*layers), lambda: torch.randn(64, 128, 512, device="cuda")
    if kind == "lstm":
        return Last(nn.LSTM(512, 512, 2, batch_first=True)), lambda: torch.randn(256, 64, 512, device="cuda")
    return nn.Sequential(nn.EmbeddingBag(200_000, 128), nn.Linear(128, 64)), lambda: torch.randint(
        0, 200_000, (16384, 64), device="cuda"
    )


model, batch = made()
model = model.cuda()
optimiser = torch.optim.SGD(model.parameters(), lr=1e-4)


def step():
    loss = model(batch()).square().mean()
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    optimiser.step()


for _ in range(30):
    step()
torch.cuda.synchronize()
run = None
if reports:
    import rota.sdk

    run = iter(rota.sdk.steps(range(10**9)))
done, begun, noted = 0, time.monotonic(), 0.0
with open(path, "w") as out:
    while time.monotonic() - begun < seconds:
        if peer is not None and not os.path.exists(peer):
            begun = time.monotonic()
        for _ in range(5):
            step()
            if run is not None:
                next(run)
        done += 5
        torch.cuda.synchronize()
        now = time.monotonic()
        if now - noted >= 0.1:
            noted = now
            print(now, done, file=out, flush=True)
"""
"""Trains a small model for a time, from when its peer trains as well, and notes how many steps it has done by when."""
FILL = """
import sys, time
import torch

gib, seconds = int(sys.argv[1]), float(sys.argv[2])
blocks = [torch.zeros(1 << 28, device="cuda") for _ in range(gib)]
print("filled", flush=True)
time.sleep(seconds)
"""
_rows: list[tuple[str, str, str, str]] = []


def said(claim: str, seen: str, wanted: str, *, holds: bool) -> None:
    """Note and print a line of the table."""
    _rows.append((claim, seen, wanted, "yes" if holds else "**no**"))
    print(f"| {claim} | {seen} | {wanted} | {_rows[-1][3]} |", flush=True)


def points_of(path: Path) -> list[tuple[float, int]]:
    """When how many steps were done, as a script noted."""
    if not path.exists():
        return []
    lines = [line.split() for line in path.read_text().splitlines()]
    return [(float(line[0]), int(line[1])) for line in lines if len(line) == 2]


def rate_of(points: Sequence[tuple[float, int]], from_s: float = -1e18, until_s: float = 1e18) -> float:
    """Steps in a second, in a part of the time."""
    inside = [point for point in points if from_s <= point[0] <= until_s]
    if len(inside) < 2:
        return 0.0
    return (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0])


def together(one: Path, other: Path, *, warm_s: float = 0.5) -> tuple[float, float]:
    """The rates of two scripts in the time in which both ran, without its ends."""
    first, second = points_of(one), points_of(other)
    if not first or not second:
        return 0.0, 0.0
    from_s, until_s = max(first[0][0], second[0][0]) + warm_s, min(first[-1][0], second[-1][0]) - 0.2
    return rate_of(first, from_s, until_s), rate_of(second, from_s, until_s)


class Lab:
    """A manager on this machine's GPU, with settings, and scripts for it."""

    def __init__(self, folder: Path, settings: str, policy: str = "priority") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in (("work.py", WORK), ("fill.py", FILL), ("rota.yaml", settings)):
            (folder / name).write_text(text, encoding="utf-8")
        self.manager = Manager(folder, "--policy", policy, "--config", str(folder / "rota.yaml")).start(within_s=120.0)
        self.env = {name: os.environ[name] for name in PASSED if name in os.environ}
        self.env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "src"), self.env.get("PYTHONPATH")]))

    def submit(self, script: str, *args: object, **resources: Any) -> str:
        """Submit a script as a job; `class_` is its class."""
        more = {"class": resources.pop("class_")} if "class_" in resources else {}
        run = [sys.executable, str(self.folder / script), *map(str, args)]
        file: Json = {"run": run, "resources": {"gpus": 1, **resources}, "env": self.env, **more}
        return self.manager.client.submit({**file, "workdir": str(self.folder)})[0]

    def end(self) -> None:
        """End the manager and what it runs; its log is kept where the caller wants files."""
        self.manager.clean_up()
        if out := os.environ.get("OUT"):
            Path(out, f"{self.folder.name}.log").write_text((self.folder / "up.log").read_text())


def limit(folder: Path, *, mps: bool = False) -> None:
    """Let a job take more GPU memory than it asked for, beside one that keeps to its request."""
    lab = Lab(folder, f"gpu: {{memory_grace: 2s, mps: {'packed' if mps else 'off'}}}\n")
    try:
        good = lab.submit("work.py", "mlp", 18, lab.folder / "good", gpus=0.5, gpu_memory="30Gi")
        eventually(lambda: points_of(lab.folder / "good"), within_s=60)
        passes = lab.submit("fill.py", 5, 1, gpus=0.25, gpu_memory="10Gi")
        bad = lab.submit("fill.py", 60, 60, gpus=0.25, gpu_memory="10Gi")
        failed = lab.manager.wait(bad, "failed", within_s=60.0)
        kept = lab.manager.wait(good, within_s=60.0)["state"]
        fits = lab.manager.wait(passes, within_s=60.0)["state"]
        seen = f"{failed['failure']}: {failed['message']}; its neighbour {kept}, one within its request {fits}"
        words = "out of GPU memory" if mps else "used 6"
        holds = failed["failure"] == "gpu-out-of-memory" and words in failed["message"]
        how = "through MPS" if mps else "by the watch"
        said(
            f"60 GiB taken with `gpu_memory: 10Gi`, {how}",
            seen,
            "fails alone, with the reason",
            holds=holds and kept == fits == "succeeded",
        )
        if mps:
            shares(lab, "MPS")
    finally:
        lab.end()


def shares(lab: Lab, how: str) -> None:
    """Let two equal trainings have fractions of the GPU, and compare their speeds with that of one alone."""
    path = lab.folder / "alone"
    lab.manager.wait(lab.submit("work.py", WIDE, 12, path), within_s=60.0)
    points = points_of(path)
    alone = rate_of(points, points[0][0] + WARM_S)
    for part in (0.1, 0.3, 0.5):
        paths = [lab.folder / f"{how}-{part}-{number}" for number in range(2)]
        jobs = [
            lab.submit("work.py", WIDE, 22, path, peer, gpus=round(share, 3))
            for share, path, peer in zip((part, 1 - part), paths, reversed(paths), strict=True)
        ]
        for job in jobs:
            lab.manager.wait(job, within_s=90.0)
        small, large = (rate / alone for rate in together(*paths, warm_s=WARM_S))
        error = max(abs(small - part), abs(large - (1 - part)))
        wanted = "within 0.02" if how == "turns" else "as measured: threads are not time"
        holds = error <= 0.02 if how == "turns" else small + large > 0.8
        said(
            f"shares {part:g} and {1 - part:g} by {how}",
            f"{small:.3f} and {large:.3f} of full speed",
            wanted,
            holds=holds,
        )


def turns(folder: Path) -> None:
    """Let jobs with fractions be time-sliced."""
    lab = Lab(folder, "gpu: {}\n", "kubeshare")
    try:
        shares(lab, "turns")
    finally:
        lab.end()


def bound(folder: Path) -> None:
    """Pack an opportunistic job beside a guaranteed one, without and with the loop that keeps the latter's speed."""
    for value in (0.0, 0.95):
        kept, got = _packed(folder / f"bound{value:g}", value)
        name = f"bound {value:g}" if value else "MPS without control"
        wanted = "at least 0.95, the rest is the other's" if value else "(for comparison)"
        seen = f"{kept:.3f} of its speed alone, the other {got:.3f}"
        said(f"guaranteed training beside the same, {name}", seen, wanted, holds=kept >= value)


def _packed(folder: Path, value: float) -> tuple[float, float]:
    """Return the speeds of a guaranteed job and of an opportunistic one beside it, in parts of the former's alone."""
    lab = Lab(folder, f"gpu: {{mps: all, bound: {value}}}\n", "antman:unknown=0.5")
    firm, other = lab.folder / "guaranteed", lab.folder / "other"
    try:
        first = lab.submit("work.py", WIDE, 80 if value else 35, firm, "sdk")
        eventually(lambda: len(points_of(firm)) > 100, within_s=90)
        points = points_of(firm)
        guest = lab.submit("work.py", WIDE, 130, other, class_="opportunistic")
        lab.manager.wait(first, within_s=150.0)
        lab.manager.client.act(guest, "cancel")
        both = points_of(firm)
        from_s = both[-1][0] - (30 if value else 10)
        alone = rate_of(points, points[-1][0] - 8)
        return rate_of(both, from_s) / alone, rate_of(points_of(other), from_s, both[-1][0]) / alone
    finally:
        lab.end()
        if out := os.environ.get("OUT"):
            for path in (firm, other):
                if path.exists():
                    Path(out, f"{lab.folder.name}-{path.name}").write_text(path.read_text())


def pairs(folder: Path) -> None:
    """Run five pairs of small models at the same time through MPS, without a manager."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "work.py").write_text(WORK, encoding="utf-8")
    found = find_nvml(None, nvml_folder())
    assert found is not None
    daemons = MpsDaemons(folder, tuple(found.uuids()))
    env = {**os.environ, **daemons.variables(0, None, 1000, 0)}

    def run(kind: str, seconds: float, path: Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, str(folder / "work.py"), kind, str(seconds), str(path)], env=env)

    try:
        alone: dict[str, float] = {}
        for kind in MODELS:
            assert run(kind, 6.0, folder / kind).wait() == 0
            points = points_of(folder / kind)
            alone[kind] = rate_of(points, points[0][0] + 2)
        for number, kinds in enumerate(PAIRS):
            paths = [folder / f"pair{number}-{place}" for place in range(2)]
            for child in [run(kind, 8.0, path) for kind, path in zip(kinds, paths, strict=True)]:
                assert child.wait() == 0
            parts = [rate / alone[kind] for rate, kind in zip(together(*paths, warm_s=2.0), kinds, strict=True)]
            said(
                f"packed: {kinds[0]} and {kinds[1]}",
                f"{parts[0]:.2f} and {parts[1]:.2f} of their speeds alone, {sum(parts):.2f} together",
                "(gain above 1, loss below)",
                holds=min(parts) > 0,
            )
    finally:
        daemons.end(MpsKey(0, os.geteuid()))


def overhead(folder: Path) -> None:
    """Sample the GPU as a manager and a supervisor do, in turns with nothing, beside a training."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "work.py").write_text(WORK, encoding="utf-8")
    path = folder / "steps"
    child = subprocess.Popen([sys.executable, str(folder / "work.py"), "transformer", "40", str(path)])
    eventually(lambda: len(points_of(path)) > 10, within_s=90)
    sensors, nvml = find_sensors(nvml_folder()), find_nvml([0], nvml_folder())
    assert sensors is not None
    assert nvml is not None
    rates: dict[bool, list[float]] = {True: [], False: []}
    busy_s, looks = time.process_time(), 0
    for turn in range(8):
        samples, over = turn % 2 == 1, threading.Event()
        begun = time.monotonic()
        while samples and time.monotonic() - begun < 3.8:
            sensors.look(time.monotonic())
            sensors.xids()
            nvml.look()
            looks += 1
            over.wait(max(min(1.0, begun + 4 - time.monotonic()), 0))
        over.wait(max(begun + 4 - time.monotonic(), 0))
        rates[samples].append(rate_of(points_of(path), begun + 0.2, begun + 4))
    busy_s = time.process_time() - busy_s
    child.kill()
    child.wait()
    lost = 1 - statistics.median(rates[True]) / statistics.median(rates[False])
    said(
        "telemetry once a second beside a training",
        f"{100 * lost:.2f}% fewer steps; {1000 * busy_s / max(looks, 1):.1f} ms of CPU for a look, files included",
        "below 0.5%",
        holds=lost < 0.005,
    )


def main() -> None:
    """Measure the rows that are named, or all."""
    rows: dict[str, Callable[[Path], None]] = {
        "limit": limit,
        "mps": lambda folder: limit(folder, mps=True),
        "turns": turns,
        "bound": bound,
        "pairs": pairs,
        "overhead": overhead,
    }
    wanted = sys.argv[1:] or list(rows)
    if nvml_folder() is None:
        print("there is no NVIDIA GPU here; nothing is measured")
        return
    print("| claim | seen | wanted | holds |\n|-|-|-|-|", flush=True)
    with tempfile.TemporaryDirectory(prefix="rota-gpu-") as folder:
        for row in wanted:
            begun = time.monotonic()
            try:
                rows[row](Path(folder) / row)
            except AssertionError as error:
                said(row, " ".join(str(error).split())[:300], "", holds=False)
            print(f"<!-- {row}: {time.monotonic() - begun:.0f} s -->", flush=True)
    sys.exit(any(row[3] != "yes" for row in _rows))


if __name__ == "__main__":
    main()
