"""Questions for share rules: a few jobs of a few models, with speeds left to chance."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from builders import job
from rota.core.model.job import DeviceType
from rota.core.state.job_record import LiveJob
from rota.mechanisms.arrays import Floats
from rota.mechanisms.rounds.rule import RoundJob, ShareQuestion

TYPES = (DeviceType("v100"), DeviceType("p100"), DeviceType("k80"))


def question(
    *, seed: int = 0, jobs: int = 12, devices: tuple[int, ...] = (3, 4, 6), models: int = 4, zeros: bool = False
) -> ShareQuestion:
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
            RoundJob(
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

    def beside(one: RoundJob, other: RoundJob) -> Floats:
        slow = 0.4 + 0.5 * ((hash((one.kind[0], other.kind[0])) + hash((other.kind[0], one.kind[0]))) % 10) / 10
        return np.array([one.speeds, other.speeds]) * slow * (np.array(one.speeds) > 0) * (np.array(other.speeds) > 0)

    return ShareQuestion(600.0, made, TYPES, devices, beside)


def feasible(asked: ShareQuestion, shares: dict[tuple[int, ...], Sequence[float]]) -> None:
    by_seq = {each.seq: each for each in asked.jobs}
    rows = np.array(list(shares.values()), dtype=np.float64).reshape(len(shares), len(asked.types))
    assert np.isfinite(rows).all()
    assert (rows >= 0).all()
    assert (rows <= 1 + 1e-9).all()
    scale = np.array([by_seq[contender[0]].scale for contender in shares])
    assert (scale @ rows <= np.array(asked.devices) + 1e-6).all()
    spent = dict.fromkeys(by_seq, 0.0)
    for contender, row in zip(shares, rows, strict=True):
        for seq in contender:
            spent[seq] += float(row.sum())
    assert max(spent.values(), default=0.0) <= 1 + 1e-6


SPEEDS = st.sampled_from([0.0, 0.0, 1e-6, 0.3, 1.0, 7.5, 1e5])


@st.composite
def odd_questions(draw: st.DrawFn) -> ShareQuestion:
    """Speeds from none to huge, types without devices, jobs that are through or past their deadline."""
    devices = tuple(draw(st.lists(st.sampled_from([0, 0, 1, 2, 5]), min_size=3, max_size=3)))
    made = []
    for seq in range(draw(st.integers(0, 6))):
        scale = draw(st.sampled_from([1, 1, 2, 4]))
        able = tuple(scale <= count for count in devices)
        speeds = tuple(draw(SPEEDS) if fits else 0.0 for fits in able)
        asked = job(
            f"j{seq}",
            gpus=scale,
            work=draw(st.sampled_from([None, 0.0, 1e-3, 100.0, 1e7])),
            deadline_s=draw(st.sampled_from([None, 1.0, 600.0, 601.0, 1e6])),
        )
        live = LiveJob(asked, seq, draw(st.sampled_from([0.0, 600.0])), 1.0)
        weight = draw(st.sampled_from([1e-3, 1.0, 1e3]))
        kind = (seq % 2, scale, speeds)
        made.append(RoundJob(live, seq, scale, weight, None, "ab"[seq % 2], speeds, able, (scale, 1), kind))
    slow = draw(st.sampled_from([0.0, 0.4, 1.0]))

    def beside(one: RoundJob, other: RoundJob) -> Floats:
        return np.array([one.speeds, other.speeds]) * slow * (np.array(one.speeds) > 0) * (np.array(other.speeds) > 0)

    return ShareQuestion(600.0, made, TYPES, devices, beside)
