"""Retraining from what a manager has observed, starting from its present weights."""

from __future__ import annotations

import numpy as np

from rota.core.errors import RotaError
from rota.learn.collect import collect
from rota.learn.evaluation.least_interference import fit_linear
from rota.learn.experience import Experience
from rota.learn.workloads import WorkloadShape
from rota.mechanisms.learned.actor import checked
from rota.mechanisms.learned.weights import Learned

try:
    import torch

    from rota.learn.reward import fit_reward
    from rota.learn.train import Recipe, Trainer
except ModuleNotFoundError as _err:
    raise RotaError(f"learning needs {_err.name}; install it with: pip install 'rota[learn]'") from None

SIMULATED = 30
"""Simulated workloads that are mixed into the observations, so that rare neighbours are not forgotten."""
PASSES = 15
INTERVALS = 60
CLUSTERS = 24


def retrain(
    seen: Experience,
    now: Learned,
    seed: int,
    part: float = 1.0,
) -> Learned:
    """Return weights fitted to the observations with less effort than usual; the caller judges them."""
    simulated, passes, intervals = (max(round(whole * part), 1) for whole in (SIMULATED, PASSES, INTERVALS))
    kinds = now.network.kinds
    if seen.kinds != kinds:
        raise RotaError("the observations have other kinds of jobs than the weights")
    torch.set_num_threads(1)
    both = collect(WorkloadShape(), simulated, seed, kinds).joined(seen)
    reward, fit = fit_reward(both, passes=passes, seed=seed)
    trainer = Trainer(kinds, Recipe(clusters=CLUSTERS), reward, seed)
    trainer.net.load_state_dict(
        {name: torch.from_numpy(np.array(of)) for name, of in now.network.of.items()}, strict=False
    )
    trainer.run(intervals, lambda progress: None)
    about = {
        "command": "learned by a manager",
        "reward_model": {"samples": fit.samples, "median_error": fit.median, "p90_error": fit.p90},
        "seen": seen.samples,
    }
    return Learned(checked(kinds, trainer.net.exported()), fit_linear(both), about)
