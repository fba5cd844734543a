"""Time to the best trial of a sweep under policies and rules of early stopping, simulated with real learning curves.

The curves are those of `bench/sweep.py`'s 64 trials, trained here in this process. Gandiva (Xiao et al., OSDI 2018)
reports that time slicing finds good hyper-parameters up to 13.6 times sooner than a first-in-first-out queue; there,
the search stops poor models by their learning curves. Here each policy runs with each rule, on devices that are all
the sweep's (8 for 64 trials), and on devices that it shares with other jobs.
Run: `python bench/sweep_simulated.py [SEED...]`; about a minute for each seed.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parent))

from sweep import DEVICES, EPOCHS, PARAMETERS, RULE, TRIALS, write_digits
from sweep_rows.trial import Network

from rota.core.model.cluster import Cluster
from rota.core.model.job import WHOLE, Checkpoint, Job, JobId, Role
from rota.drivers.simulator.study import Setting
from rota.drivers.simulator.sweep_runs import SimulatedSweep, SweepOutcome, simulate_sweeps
from rota.perf.speed.model import Costs
from rota.sweeps.file import sweep_file
from rota.sweeps.samplers import sample
from rota.sweeps.trial import Params
from rota.traces.workload import Submission

STEP_S = 60.0
RESTART_S = 5.0
CLOSE = 1.05
"""A loss within 5 % of the best of all is good."""
POLICIES = ("fifo:backfill=true", "las", "gandiva:pack=false")
RULES: dict[str, Any] = {
    "none": "none",
    "median": {"rule": "median", "min_steps": 4, "every": 4},
    "learning-curve": {"rule": "learning-curve", "min_steps": 4, "every": 4, "max_steps": EPOCHS},
    "asha": RULE,
}
Curves = dict[int, list[float]]


def trained(folder: Path, seed: int) -> tuple[Curves, dict[str, Any]]:
    """Train all trials to their end; return the loss after each epoch."""
    values = {
        "name": "digits",
        "parameters": PARAMETERS,
        "trials": TRIALS,
        "seed": seed,
        "job": {"run": "train", "checkpoint": {}},
    }
    file = sweep_file({**values, "parallel": DEVICES})
    with np.load(folder / "digits.npz") as data:
        inputs, labels, others, answers = (data[name] for name in ("train_x", "train_y", "test_x", "test_y"))
    curves: Curves = {}
    for number in range(TRIALS):
        params = sample(file, number, ())
        network = Network(int(params["units"]), 10, inputs.shape[1])
        lr, momentum, decay = (float(params[name]) for name in ("lr", "momentum", "decay"))
        losses = curves[number] = []
        for epoch in range(EPOCHS):
            order = np.random.default_rng(epoch).permutation(len(labels))
            with np.errstate(all="ignore"):
                for first in range(0, len(order), int(params["batch"])):
                    chosen = order[first : first + int(params["batch"])]
                    network.learn(inputs[chosen], labels[chosen], lr, momentum, decay)
                loss = network.loss(others, answers)
            losses.append(loss if np.isfinite(loss) else float("inf"))
    return curves, values


def beside(seed: int) -> list[Submission]:
    """Other jobs that keep the devices about half busy, over the time of the whole sweep."""
    rng = Random(seed)
    found, at_s = [], 0.0
    for number in range(120):
        gpus, run_s = rng.choice((1, 1, 2, 4)), rng.lognormvariate(7.5, 1.0)
        job = Job(
            id=JobId(f"other-{number}"), roles=(Role(device_milli=gpus * WHOLE),), work=run_s, checkpoint=Checkpoint()
        )
        found.append(Submission(job=job, submit_s=at_s))
        at_s += rng.expovariate(1 / 1100.0)
    return found


def ran(policy: str, rule: Any, curves: Curves, values: dict[str, Any], others: list[Submission]) -> SweepOutcome:
    """Simulate one sweep whose trials all wait at once."""

    def curve(number: int, params: Params) -> list[float]:
        return curves[number]

    file = sweep_file({**values, "parallel": TRIALS, "early_stop": rule})
    sweep = SimulatedSweep(name="digits", file=file, curve=curve, step_s=STEP_S)
    setting = Setting(cluster=Cluster.uniform(("gpu", DEVICES, DEVICES)), costs=Costs(restart_s=RESTART_S))
    return simulate_sweeps([sweep], policy, setting, others=others)[0]


def main(seeds: list[int]) -> None:
    with tempfile.TemporaryDirectory() as name:
        write_digits(Path(name) / "digits.npz")
        sets = [trained(Path(name), seed) for seed in seeds]
    for title, busy in (("alone", False), ("beside other jobs", True)):
        print(f"\n{title}: hours to a loss within 5 % of the best, to the end of the sweep, and device hours")
        for rule, numbers in RULES.items():
            for policy in POLICIES:
                good, took, used = [], [], []
                for seed, (curves, values) in zip(seeds, sets, strict=True):
                    found = ran(policy, numbers, curves, values, beside(seed) if busy else [])
                    goal = CLOSE * min(min(each) for each in curves.values())
                    good.append(found.time_to(goal))
                    took.append(found.took_s)
                    used.append(found.device_s)
                reached = [value for value in good if value is not None]
                shown = f"{statistics.fmean(reached) / 3600:5.2f}" if reached else "    –"
                print(
                    f"{rule:15} {policy:20} {shown} h ({len(reached)} of {len(seeds)}), "
                    f"{statistics.fmean(took) / 3600:5.2f} h, {statistics.fmean(used) / 3600:6.1f} device hours",
                    flush=True,
                )


if __name__ == "__main__":
    main([int(each) for each in sys.argv[1:]] or [0, 1, 2])
