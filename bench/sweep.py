"""Device time of a sweep with early stopping against random search, on real trainings and a real manager.

Sixty-four trials of a small network on handwritten digits (scikit-learn's, 1,797 images), eight emulated devices:
random search runs each to its end, then ASHA runs the same parameters, and then once more while the manager is killed
five times. Every epoch is written down by the training, so that lost and repeated ones are counted.
Run: `python bench/sweep.py [SEED...]`; about four minutes for each seed.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from managers import Manager, eventually
from rota.drivers.local.cgroup_search import find

Json = dict[str, Any]
TRIALS, DEVICES, EPOCHS = 64, 8, 64
LEAST_S = 0.25
"""How long an epoch takes at least: the trials share a few cores, and an emulated device computes nothing."""
KILLS = 5
RULE = {"rule": "asha", "min_steps": 4, "max_steps": EPOCHS, "factor": 4}
PARAMETERS = {
    "lr": {"log": [1e-4, 3.0]},
    "momentum": {"uniform": [0.0, 0.99]},
    "decay": {"log": [1e-6, 1e-2]},
    "units": {"log_int": [4, 64]},
    "batch": [32, 64, 128],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRun:
    """What one sweep came to."""

    best: float
    device_s: float
    wall_s: float
    epochs: Counter[tuple[str, str]]
    """How often each epoch of each trial was done."""
    runs: list[Json]
    starts: int
    found_s: float | None
    """Device time of all trials when a given loss was reached."""


def write_digits(path: Path) -> None:
    """Write the images as arrays, which every trial can read quickly."""
    from sklearn.datasets import load_digits

    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    images, labels = (data.data / 16.0)[order], data.target[order]
    np.savez(path, train_x=images[:1200], train_y=labels[:1200], test_x=images[1200:], test_y=labels[1200:])


class CpuShare:
    """Lets trials count as so many processes where other work runs on the machine: a manager's tasks count as one."""

    def __init__(self, home: Path) -> None:
        parent = getattr(find(home), "parents", {}).get("cpu")
        self._files = () if parent is None else ((parent / "cpu.shares", 1024), (parent / "cpu.weight", 100))

    def keep(self) -> None:
        """Set it; the folder comes and goes with the tasks."""
        for path, one in self._files:
            if path.exists():
                with contextlib.suppress(OSError):
                    path.write_text(str(one * DEVICES))


def search(
    manager: Manager, name: str, seed: int, rule: Json | str, *, target: float = -1.0, kills: int = 0
) -> SweepRun:
    """Run one sweep to its end, and kill the manager meanwhile."""
    folder = manager.folder / f"{name}-{seed}"
    folder.mkdir()
    script = Path(__file__).with_name("sweep_rows") / "trial.py"
    begun_s = time.monotonic()
    sweep_id = manager.client.start_sweep(
        {
            "name": folder.name,
            "parameters": PARAMETERS,
            "trials": TRIALS,
            "parallel": DEVICES,
            "seed": seed,
            "early_stop": rule,
            "job": {
                "run": [sys.executable, *map(str, (script, manager.folder / "digits.npz", folder, EPOCHS, LEAST_S))],
                "resources": {"gpus": 1},
                "env": {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
                "checkpoint": {"grace": "20s"},
            },
        }
    )["id"]
    share = CpuShare(manager.home)
    marks = [TRIALS * (kill + 1) // (kills + 1) for kill in range(kills)]
    found_s: list[float] = []

    def has_ended() -> bool:
        share.keep()
        sweep = manager.client.sweep(sweep_id)
        if sweep["best"] is not None and sweep["best"]["value"] <= target and not found_s:
            found_s.append(sweep["device_s"])
        if marks and sweep["begun"] >= marks[0]:
            marks.pop(0)
            manager.kill()
            manager.start()
            return False
        return bool(sweep["state"] != "running")

    eventually(has_ended, within_s=1200.0, every_s=0.25)
    assert not marks, "the sweep ended before all kills"
    sweep = manager.client.sweep(sweep_id)
    lines = [line.split() for line in (folder / "epochs").read_text().splitlines()]
    return SweepRun(
        best=sweep["best"]["value"],
        device_s=sweep["device_s"],
        wall_s=time.monotonic() - begun_s,
        epochs=Counter((trial, epoch) for trial, epoch, _ in lines),
        runs=sweep["runs"],
        starts=sum(manager.client.job(run["job"])["attempt"] for run in sweep["runs"]),
        found_s=found_s[0] if found_s else None,
    )


def told(name: str, run: SweepRun, whole: SweepRun) -> str:
    """Return a line of figures."""
    states = Counter(each["state"] for each in run.runs)
    twice = sum(count > 1 for count in run.epochs.values())
    reached = "never" if run.found_s is None else f"after {run.found_s:.0f} s ({run.found_s / whole.device_s:.2f})"
    share, ended = run.device_s / whole.device_s, ", ".join(f"{count} {each}" for each, count in sorted(states.items()))
    return (
        f"{name:14} best {run.best:.4f}; device time {run.device_s:.0f} s ({share:.2f} of random), wall "
        f"{run.wall_s:.0f} s; best of random reached {reached}; {len(run.epochs)} epochs, {twice} twice; "
        f"{run.starts} starts; {len(run.runs)} trials: {ended}"
    )


def main(seeds: list[int]) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        write_digits(Path(folder) / "digits.npz")
        manager = Manager(Path(folder), "--emulate", f"gpu={DEVICES}/{DEVICES}").start()
        try:
            for seed in seeds:
                whole = search(manager, "random", seed, "none", target=-1.0)
                print(f"seed {seed}")
                print(told("random", whole, whole), flush=True)
                print(told("asha", search(manager, "asha", seed, RULE, target=whole.best), whole), flush=True)
                killed = search(manager, "killed", seed, RULE, target=whole.best, kills=KILLS)
                print(told(f"asha, {KILLS} kills", killed, whole), flush=True)
                jobs = [
                    job["name"] for job in manager.client.jobs(all=True) if job["name"].startswith(f"killed-{seed}-")
                ]
                assert sorted(jobs) == sorted(f"killed-{seed}-{number}" for number in range(TRIALS)), jobs
        finally:
            manager.kill()
            manager.clean_up()
    print(json.dumps({"load": round(os.getloadavg()[0], 1), "cores": os.cpu_count()}))


if __name__ == "__main__":
    main([int(each) for each in sys.argv[1:]] or [0])
