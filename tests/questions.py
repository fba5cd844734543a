"""Questions for share rules: a few jobs of a few models, with speeds left to chance."""

from __future__ import annotations

import random

import numpy as np

from builders import job
from rota.core.live import LiveJob
from rota.core.model import DeviceType
from rota.mechanisms.shares import Contender, Floats, Question

TYPES = (DeviceType("v100"), DeviceType("p100"), DeviceType("k80"))


def question(
    *, seed: int = 0, jobs: int = 12, devices: tuple[int, ...] = (3, 4, 6), models: int = 4, zeros: bool = False
) -> Question:
    """Jobs of a few models and sizes with random speeds."""
    rng = random.Random(seed)
    table = [tuple(rng.uniform(0.5, 9.0) for _ in TYPES) for _ in range(models)]
    if zeros:
        table[0] = (table[0][0], 0.0, 0.0)
        table[1] = (0.0, 0.0, 0.0)
    made = []
    for seq in range(jobs):
        model, scale = rng.randrange(models), rng.choice((1, 1, 1, 2))
        live = LiveJob(job(f"j{seq}", gpus=scale, work=rng.uniform(100.0, 9000.0), model=f"m{model}"), seq, 0.0, 1.0)
        speeds = tuple(s if scale <= n else 0.0 for s, n in zip(table[model], devices, strict=True))
        made.append(
            Contender(
                live,
                seq,
                scale,
                rng.choice((1.0, 2.0)),
                None,
                "ab"[seq % 2],
                speeds,
                (True,) * 3,
                (scale, 1),
                (model, scale, speeds),
            )
        )

    def beside(one: Contender, other: Contender) -> Floats:
        slow = 0.4 + 0.5 * ((hash((one.kind[0], other.kind[0])) + hash((other.kind[0], one.kind[0]))) % 10) / 10
        return np.array([one.speeds, other.speeds]) * slow * (np.array(one.speeds) > 0) * (np.array(other.speeds) > 0)

    return Question(600.0, made, TYPES, devices, beside)
