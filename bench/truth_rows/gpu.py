"""The same with real trainings: a manager on the GPU that this machine has, small models in PyTorch, within minutes."""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from managers import Manager
from truth_rows.live import LiveRow, figures, keep_database, wait_for_all

Json = dict[str, Any]
KINDS = {"narrow": 3.0, "wide": 4.0, "deep": 6.0, "large": 9.0}
"""Names of trainings, with the median of the seconds that they train."""
SIZES = (0.25, 0.25, 0.25, 0.5)
"""Fractions of a GPU that trainings ask for: models so small leave most of it idle, and hardly slow each other down."""
PACE_STEPS = 300
SPREAD = 0.2
PASSED = ("PYTHONPATH", "LD_LIBRARY_PATH", "CUDA_HOME")
"""Variables that trainings need and a manager does not pass on by itself."""
ROWS = (("fifo:backfill=true", "declared"), ("priority", "history"))
PAST_SHARE, AFTER_SHARE = 0.3, 0.1
FILLED = 0.9
"""How much of the time that is left the trainings fill, if each takes as long as alone."""
LAST_S = 20.0
"""For the simulation, at the end."""
LOAD = 1.3
"""How much more quickly trainings are submitted than the GPU serves them: a queue builds up."""
TRAIN = """
import sys, time
import torch
import rota.sdk

kind, steps = sys.argv[1], int(sys.argv[2])
torch.manual_seed(0)
width, depth = {"narrow": (256, 2), "wide": (1024, 2), "deep": (256, 8), "large": (512, 4)}[kind]
layers = []
for _ in range(depth):
    layers += [torch.nn.Linear(width, width), torch.nn.ReLU()]
model = torch.nn.Sequential(*layers).to("cuda")
optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)
data = torch.randn(256, width, device="cuda")
run = rota.sdk.steps(range(steps))
begun_s, first = None, run.step
for batch in run:
    if begun_s is None and run.step > first + 20:
        torch.cuda.synchronize()
        begun_s, first = time.monotonic(), run.step
    loss = (model(data) - data).square().mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    if run.should_save:
        torch.cuda.synchronize()
        run.saved()
torch.cuda.synchronize()
if begun_s is not None:
    print("pace", (time.monotonic() - begun_s) / max(run.step - first, 1), flush=True)
"""


def measure_gpu(seed: int, *, limit_s: float, wanted: Collection[int] = (), keep: Path | None = None) -> list[Json]:
    """Measure all or the wanted rows one after the other, as they share the GPU; all of it within a limit."""
    each_s = limit_s / len(wanted or ROWS)
    rows = [(number, row) for number, row in enumerate(ROWS, start=1) if not wanted or number in wanted]
    return [_row(policy, source, seed + number, each_s, keep) for number, (policy, source) in rows]


def _row(policy: str, source: str, seed: int, limit_s: float, keep: Path | None) -> Json:
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rota-truth-") as folder:
        script = Path(folder) / "train.py"
        script.write_text(TRAIN, encoding="utf-8")
        manager = Manager(Path(folder), "--policy", policy, "--log-level", "warning").start(within_s=120.0)
        try:
            gpus = sum(node["gpus"] for node in manager.client.nodes())
            if not gpus:
                raise SystemExit("the manager found no GPU on this machine")
            _pace(manager, script, next(iter(KINDS)))  # the first training of a machine reads its libraries from disk
            paces = {kind: _pace(manager, script, kind) for kind in KINDS}
            mean_s = sum(pace.startup_s + KINDS[kind] for kind, pace in paces.items()) / len(paces)
            budget_s = limit_s - (time.monotonic() - begun_s) - LAST_S
            gpu_s = mean_s * sum(SIZES) / len(SIZES)
            jobs = max(int(FILLED * budget_s * gpus / gpu_s), 12)
            past, after = int(PAST_SHARE * jobs), int(AFTER_SHARE * jobs)
            row = LiveRow(
                policy=policy,
                source=source,
                jobs=jobs - past - after,
                past=past,
                after=after,
                scale=1.0,
                seed=seed,
            )
            measured = _submit(manager, script, row, paces, gap_s=gpu_s / gpus / LOAD)
            wait_for_all(manager, until_s=begun_s + limit_s - LAST_S)
            about = {"gpus": gpus, "paces": {kind: asdict(pace) for kind, pace in paces.items()}}
            return {**figures(manager, row, measured), **about}
        finally:
            manager.clean_up()
            keep_database(manager, keep, f"gpu-{source}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long a kind of training takes to start, and for each step."""

    startup_s: float
    step_s: float


def _pace(manager: Manager, script: Path, kind: str) -> Pace:
    """Run a short training of a kind, and return its pace."""
    job_id = manager.client.submit({**_file(script, kind, PACE_STEPS), "name": f"pace-{kind}"})[0]
    manager.wait(job_id, within_s=120.0)
    row = manager.client.job(job_id)
    run_s = _seconds(row["ended"]) - _seconds(row["started"])
    step_s = float(manager.said(job_id).split("pace ")[1].split()[0])
    return Pace(startup_s=max(run_s - PACE_STEPS * step_s, 0.0), step_s=step_s)


def _file(script: Path, kind: str, steps: int) -> Json:
    return {
        "name": kind,
        "run": [sys.executable, str(script), kind, str(steps)],
        "resources": {"gpus": 1},
        "checkpoint": {"grace": "20s"},
        "env": {name: os.environ[name] for name in PASSED if name in os.environ},
    }


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def _submit(manager: Manager, script: Path, row: LiveRow, paces: dict[str, Pace], *, gap_s: float) -> set[str]:
    """Submit trainings of random length; return the measured ones."""
    rng = random.Random(row.seed)
    measured: set[str] = set()
    for number in range(row.past + row.jobs + row.after):
        kind = rng.choice(list(KINDS))
        share = rng.lognormvariate(0.0, SPREAD)
        train_s, pace = KINDS[kind] * share, paces[kind]
        file = _file(script, kind, max(int(train_s / pace.step_s), 50))
        file |= {"priority": rng.choice((0, 0, 0, 50, 100)), "resources": {"gpus": rng.choice(SIZES)}}
        if row.source == "declared":
            file["estimate"] = round((pace.startup_s + train_s) * 1.2 * rng.lognormvariate(0.0, 0.2), 3)
        names = manager.client.submit(file)
        if row.past <= number < row.past + row.jobs:
            measured.update(names)
        time.sleep(rng.expovariate(1.0 / gap_s))
    return measured
