"""Limits, shares, the bound of guaranteed jobs, packing and telemetry."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

from gpu_rows.lab import Lab, over_whole_turns, points_of, rate_of, together
from gpu_rows.scripts import WORK
from gpu_rows.table import said
from managers import eventually
from rota.drivers.local.gpu.mps import MpsDaemons, MpsKey
from rota.drivers.local.gpu.sensors import find_sensors
from rota.drivers.local.machine import nvml_folder
from rota.drivers.local.task_runner.nvml import find_nvml

WARM_S = 4.0
"""A training becomes faster in its first seconds; they don't count where speeds are compared closely."""
WIDE = "wide"
"""A model whose kernels are long: its speed is that of the GPU, however fast the CPU is at the moment."""
MODELS = ("resnet50", "gpt2", "bert", "mobilenet_v3_large", "vit_b_16")
PAIRS = (
    ("resnet50", "gpt2"),
    ("bert", "mobilenet_v3_large"),
    ("vit_b_16", "resnet50"),
    ("gpt2", "bert"),
    ("mobilenet_v3_large", "vit_b_16"),
)
BOUND_KINDS = (WIDE, "convolutions")
PARTS = {"turns": (0.1, 0.2, 0.3, 0.4, 0.5), "MPS": (0.1, 0.3, 0.5)}


def limit(folder: Path, *, mps: bool = False) -> None:
    """Let a job take more GPU memory than it asked for, beside one that keeps to its request."""
    lab = Lab(folder, f"gpu: {{memory_grace: 2s, mps: {'packed' if mps else 'off'}}}\n")
    try:
        good = lab.submit("work.py", WIDE, 18, lab.folder / "good", gpus=0.5, gpu_memory="30Gi")
        eventually(lambda: points_of(lab.folder / "good"), within_s=60)
        passes = lab.submit("fill.py", 5, 1, folder / "fits", gpus=0.25, gpu_memory="10Gi")
        bad = lab.submit("fill.py", 60, 60, folder / "bad", gpus=0.25, gpu_memory="10Gi")
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
    finally:
        lab.end()


def shares(lab: Lab, how: str) -> None:
    """Let two equal trainings have fractions of the GPU, and compare their speeds with that of one alone."""
    path = lab.folder / "alone"
    lab.manager.wait(lab.submit("work.py", WIDE, 12, path), within_s=60.0)
    points = points_of(path)
    alone = rate_of(points, points[0][0] + WARM_S)
    for part in PARTS[how]:
        paths = [lab.folder / f"{how}-{part}-{number}" for number in range(2)]
        jobs = [
            lab.submit("work.py", WIDE, 16, path, peer, gpus=round(share, 3))
            for share, path, peer in zip((part, 1 - part), paths, reversed(paths), strict=True)
        ]
        for job in jobs:
            lab.manager.wait(job, within_s=90.0)
        rates = over_whole_turns if how == "turns" else together
        small, large = (rate / alone for rate in rates(*paths, warm_s=WARM_S))
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


def mps_shares(folder: Path) -> None:
    """Let jobs with fractions share the GPU's threads through MPS."""
    lab = Lab(folder, "gpu: {mps: packed}\n")
    try:
        shares(lab, "MPS")
    finally:
        lab.end()


def bound(folder: Path) -> None:
    """Pack an opportunistic job beside a guaranteed one under the loop that keeps the latter's speed."""
    _bounds(folder, 0.95)


def unbound(folder: Path) -> None:
    """The same without the loop."""
    _bounds(folder, 0.0)


def _bounds(folder: Path, value: float) -> None:
    for kind in BOUND_KINDS:
        kept, got = _packed(folder / kind, value, kind)
        name = f"bound {value:g}" if value else "MPS without control"
        wanted = "at least 0.95, the rest is the other's" if value else "(for comparison)"
        seen = f"{kept:.3f} of its speed alone, the other {got:.3f}"
        said(f"guaranteed training ({kind}) beside the same, {name}", seen, wanted, holds=kept >= value)


def _packed(folder: Path, value: float, kind: str) -> tuple[float, float]:
    """Return the speeds of a guaranteed job and of an opportunistic one beside it, in parts of the former's alone."""
    lab = Lab(folder, f"gpu: {{mps: all, bound: {value}}}\n", "antman:unknown=0.5")
    firm, other = lab.folder / "guaranteed", lab.folder / "other"
    try:
        first = lab.submit("work.py", kind, 66 if value else 28, firm, "sdk")
        eventually(lambda: len(points_of(firm)) > 100, within_s=90)
        points = points_of(firm)
        guest = lab.submit("work.py", kind, 130, other, class_="opportunistic")
        lab.manager.wait(first, within_s=150.0)
        lab.manager.client.act(guest, "cancel")
        both = points_of(firm)
        from_s = both[-1][0] - (30 if value else 8)
        alone = rate_of(points, points[-1][0] - 8)
        return rate_of(both, from_s) / alone, rate_of(points_of(other), from_s, both[-1][0]) / alone
    finally:
        lab.end(firm, other)


def pairs(folder: Path) -> None:
    """Run five pairs of real models at the same time through MPS, without a manager."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "work.py").write_text(WORK, encoding="utf-8")
    found = find_nvml(None, nvml_folder())
    assert found is not None
    daemons = MpsDaemons(folder, tuple(found.uuids()))
    env = {**os.environ, **daemons.variables(0, None, 1000, 0)}

    def run(kind: str, seconds: float, path: Path, peer: Path | None = None) -> subprocess.Popen[bytes]:
        more = [] if peer is None else [str(peer)]
        return subprocess.Popen(
            [sys.executable, str(folder / "work.py"), kind, str(seconds), str(path), *more], env=env
        )

    try:
        alone: dict[str, float] = {}
        for kind in MODELS:
            assert run(kind, 5.0, folder / kind).wait() == 0
            points = points_of(folder / kind)
            alone[kind] = rate_of(points, points[0][0] + 2)
        for number, kinds in enumerate(PAIRS):
            paths = [folder / f"pair{number}-{place}" for place in range(2)]
            at_once = zip(kinds, paths, reversed(paths), strict=True)
            for child in [run(kind, 6.0, path, peer) for kind, path, peer in at_once]:
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
    child = subprocess.Popen([sys.executable, str(folder / "work.py"), "bert", "44", str(path)])
    eventually(lambda: len(points_of(path)) > 10, within_s=90)
    sensors, nvml = find_sensors(nvml_folder()), find_nvml([0], nvml_folder())
    assert sensors is not None
    assert nvml is not None
    rates: dict[bool, list[float]] = {True: [], False: []}
    busy_s, looks = time.process_time(), 0
    for turn in range(10):
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
