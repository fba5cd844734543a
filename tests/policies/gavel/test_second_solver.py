"""Each program's optimum against that of another solver: cvxpy's own model of it, solved by Clarabel.

What is compared is what the shares that a rule gives are worth, not what its solver says of itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from questions import question
from rota.mechanisms.arrays import Floats
from rota.mechanisms.declare import Knowledge
from rota.mechanisms.rounds.rule import Contender, ShareQuestion, Shares
from rota.perf.device_facts import PRICES
from rota.policies import find_policy
from rota.policies.published.gavel.isolated import isolated_shares
from rota.policies.published.gavel.layout import lay_out
from rota.policies.published.gavel.strategy_proof import discounts, proportional, without_one

cp: Any = pytest.importorskip("cvxpy")
SEEDS = range(3)
MODELS = (4, 1, 2)
"""By seed: with one model almost all jobs are of a kind, so that pairs of them are columns by halves."""


@dataclass
class Model:
    """Time of contenders on types, and the work of each job; `seen` are the speeds that the rule assumes."""

    asked: ShareQuestion
    seen: Floats
    packs: bool = False

    def __post_init__(self) -> None:
        jobs = self.asked.jobs
        self.contenders: list[Contender] = [(row,) for row in range(len(jobs))]
        if self.packs:
            pairs = itertools.combinations(range(len(jobs)), 2)
            self.contenders += [pair for pair in pairs if jobs[pair[0]].scale == jobs[pair[1]].scale]
        self.x = cp.Variable((len(self.contenders), len(self.asked.types)), nonneg=True)
        self.speed_of = [np.zeros((len(self.contenders), len(self.asked.types))) for _ in jobs]
        for number, contender in enumerate(self.contenders):
            speeds = self.seen[list(contender)]
            if len(contender) > 1:
                speeds = self.asked.pair_speeds(jobs[contender[0]], jobs[contender[1]])
            for row, speed in zip(contender, speeds, strict=True):
                self.speed_of[row][number] = speed

    @property
    def limits(self) -> list[Any]:
        """Devices by type and the time of every job."""
        scale = np.array([self.asked.jobs[contender[0]].scale for contender in self.contenders])
        member = np.array(
            [[row in contender for contender in self.contenders] for row in range(len(self.asked.jobs))], dtype=float
        )
        return [scale @ self.x <= self.asked.capacity, cp.sum(member @ self.x, axis=1) <= 1]

    def done(self) -> list[Any]:
        """Work a second of every job."""
        return [cp.sum(cp.multiply(speed, self.x)) for speed in self.speed_of]

    def worth(self, shares: Shares) -> Floats:
        """Work a second of every job under shares that a rule gave."""
        seqs = [job.seq for job in self.asked.jobs]
        value = np.zeros((len(self.contenders), len(self.asked.types)))
        rows = {tuple(seqs[row] for row in contender): number for number, contender in enumerate(self.contenders)}
        for contender, part in shares.items():
            value[rows[contender]] = part
        return np.array([(speed * value).sum() for speed in self.speed_of])


def best(goal: Any, limits: list[Any], tolerance: float = 1e-10) -> float:
    problem = cp.Problem(cp.Maximize(goal), limits)
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=tolerance, tol_gap_rel=tolerance, tol_feas=tolerance)
    assert problem.status == "optimal"
    return float(problem.value)


def shares_of(policy: str, asked: ShareQuestion) -> Shares:
    declared, options = find_policy(policy)
    built: Any = declared.build(options, None, Knowledge())  # type: ignore[arg-type] # no rule places
    answer: Shares = built._rule.shares(asked)
    return answer


def seen_by(policy: str, asked: ShareQuestion) -> Floats:
    if policy == "gavel/max_min_fairness":
        return np.where(asked.speeds > 0, 1.0, 0.0)
    if policy in ("gavel/min_total_duration", "gavel/finish_time_fairness"):
        return np.where(asked.speeds > 0, asked.speeds.max(axis=1, keepdims=True), 0.0)
    return asked.speeds


def fair_part(asked: ShareQuestion, seen: Floats) -> Floats:
    """w p / s: what a job's throughput is measured in."""
    mean = seen @ asked.capacity / asked.capacity.sum()
    part: Floats = asked.weight * mean / asked.scale
    return part


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("policy", ["max_min_fairness", "max_min_fairness_perf", "max_min_fairness_packed"])
def test_the_least_served(policy: str, seed: int) -> None:
    asked = question(seed=seed, jobs=8, models=MODELS[seed])
    seen = seen_by(f"gavel/{policy}", asked)
    model = Model(asked, seen, policy.endswith("packed"))
    need = fair_part(asked, seen)

    optimum = best(
        cp.min(cp.hstack([done / part for done, part in zip(model.done(), need, strict=True)])), model.limits
    )

    assert (model.worth(shares_of(f"gavel/{policy}", asked)) / need).min() == pytest.approx(optimum, rel=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("policy", ["min_total_duration", "min_total_duration_perf", "min_total_duration_packed"])
def test_total_duration(policy: str, seed: int) -> None:
    asked = question(seed=seed, jobs=8, models=MODELS[seed])
    model = Model(asked, seen_by(f"gavel/{policy}", asked), policy.endswith("packed"))
    parts = [done / left for done, left in zip(model.done(), asked.remaining, strict=True)]

    optimum = best(cp.min(cp.hstack(parts)), model.limits)

    found = model.worth(shares_of(f"gavel/{policy}", asked)) / asked.remaining
    assert found.min() == pytest.approx(optimum, rel=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("policy", ["finish_time_fairness", "finish_time_fairness_perf", "finish_time_fairness_packed"])
def test_finish_time_ratio(policy: str, seed: int) -> None:
    """Few devices, so that no job can have all that it could use."""
    asked = question(seed=seed, jobs=8, devices=(1, 1, 2), models=MODELS[seed])
    model = Model(asked, seen_by(f"gavel/{policy}", asked), policy.endswith("packed"))
    alone_s = asked.remaining / (isolated_shares(asked, asked.scale) * asked.speeds).sum(axis=1)
    rho = cp.Variable()
    ends = [
        done * (alone / left) >= cp.inv_pos(rho - age / alone)
        for done, left, alone, age in zip(model.done(), asked.remaining, alone_s, asked.age_s, strict=True)
    ]

    optimum = -best(-rho, [*model.limits, *ends], tolerance=1e-8)

    done = model.worth(shares_of(f"gavel/{policy}", asked))
    assert ((asked.age_s + asked.remaining / done) / alone_s).max() == pytest.approx(optimum, rel=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "policy",
    [
        "max_sum_throughput_perf",
        "max_sum_throughput_normalized_by_cost_perf",
        "max_sum_throughput_normalized_by_cost_perf_SLOs",
        "max_sum_throughput_normalized_by_cost_packed_SLOs",
    ],
)
def test_sum_of_throughputs(policy: str, seed: int) -> None:
    asked = question(seed=seed, jobs=8)
    model = Model(asked, asked.speeds, "packed" in policy)
    total = steps_for_the_price(policy, model)

    optimum = best(cp.sum(cp.multiply(total, model.x)), model.limits)

    assert worth_in_all(total, model, shares_of(f"gavel/{policy}", asked)) == pytest.approx(optimum, rel=1e-6)


def steps_for_the_price(policy: str, model: Model) -> Floats:
    """By contender and type, the steps a second of all its jobs, over the price of the type where that counts."""
    price = np.array([PRICES[str(kind)] if "cost" in policy else 1.0 for kind in model.asked.types])
    total: Floats = sum(model.speed_of, np.zeros_like(model.speed_of[0])) / price
    return total


def worth_in_all(total: Floats, model: Model, given: Shares) -> float:
    rows = {tuple(model.asked.jobs[row].seq for row in contender): n for n, contender in enumerate(model.contenders)}
    return sum(float(total[rows[contender]] @ np.array(part)) for contender, part in given.items())


SLOS = [f"max_sum_throughput_normalized_by_cost_{kind}_SLOs" for kind in ("perf", "packed")]


def due(asked: ShareQuestion, needs: Floats) -> ShareQuestion:
    """The same jobs, each with the deadline that it meets at such a speed; 0: it has none."""
    for each, need, left in zip(asked.jobs, needs, asked.remaining, strict=True):
        at_s = asked.now_s + left / need if need else None
        each.live.job = replace(each.live.job, deadline_s=at_s)
    return asked


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("policy", SLOS)
def test_sum_of_throughputs_with_deadlines_that_can_be_kept(policy: str, seed: int) -> None:
    """Every job but two must have nine tenths of what it would have by itself, which all of them can."""
    asked = question(seed=seed, jobs=18, devices=(2, 2, 3))
    alone = (isolated_shares(asked, asked.scale) * asked.speeds).sum(axis=1)
    needs = np.where(np.arange(18) < 16, 0.9 * alone, 0.0)
    asked = due(asked, needs)
    model = Model(asked, asked.speeds, "packed" in policy)
    total = steps_for_the_price(policy, model)
    goal = cp.sum(cp.multiply(total, model.x))
    kept = [done >= need for done, need in zip(model.done(), needs, strict=True)]

    optimum, without = best(goal, [*model.limits, *kept]), best(goal, model.limits)

    given = shares_of(f"gavel/{policy}", asked)
    assert worth_in_all(total, model, given) == pytest.approx(optimum, rel=1e-6)
    assert (model.worth(given) >= needs * (1 - 1e-6)).all()
    assert optimum < without * (1 - 1e-3), "the deadlines cost nothing, so that the test says nothing"


@pytest.mark.parametrize("policy", SLOS)
def test_deadlines_that_can_not_all_be_kept_are_dropped(policy: str) -> None:
    """Everyone would need its fastest type all of the time."""
    asked = question(seed=1, jobs=12)
    asked = due(asked, 0.999 * asked.speeds.max(axis=1))
    model = Model(asked, asked.speeds, "packed" in policy)
    total = steps_for_the_price(policy, model)
    goal = cp.sum(cp.multiply(total, model.x))
    kept = [done >= 0.999 * speed for done, speed in zip(model.done(), asked.speeds.max(axis=1), strict=True)]
    impossible = cp.Problem(cp.Maximize(goal), [*model.limits, *kept])
    impossible.solve(solver=cp.CLARABEL)

    given = shares_of(f"gavel/{policy}", asked)

    assert impossible.status == "infeasible"
    assert worth_in_all(total, model, given) == pytest.approx(best(goal, model.limits), rel=1e-6)


Pace = Callable[[list[int]], Floats]
"""How fast the level of every job rises while these can still rise."""


def filled(model: Model, unit: Floats, pace: Pace) -> Floats:
    """Levels by water filling; stuck are those whose level can't rise even if nobody else's does."""
    done = model.done()
    level = np.zeros(len(unit))
    open_ = list(range(len(unit)))
    while open_:
        rise = cp.Variable(nonneg=True)
        rates = pace(open_)
        kept = [each >= unit[row] * (level[row] + rates[row] * rise) for row, each in enumerate(done)]
        level = level + rates * best(rise, [*model.limits, *kept], tolerance=1e-9) * (1 - 1e-8)
        stuck = []
        for row in (row for row in open_ if rates[row] > 0):
            others = [each >= unit[one] * level[one] * (1 - 1e-8) for one, each in enumerate(done)]
            most = best(done[row] / unit[row], [*model.limits, *others], tolerance=1e-9)
            if most <= level[row] * (1 + 1e-5):
                stuck.append(row)
        assert stuck
        open_ = [row for row in open_ if row not in stuck]
    return level


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["perf", "packed"])
def test_water_filling(kind: str, seed: int) -> None:
    """Everyone's level, not the least alone, is that of another way to fill, with another solver."""
    asked = question(seed=seed, jobs=6)
    model = Model(asked, asked.speeds, kind == "packed")
    unit = fair_part(asked, asked.speeds) / asked.weight

    def by_weight(rows: list[int]) -> Floats:
        return np.where(np.isin(np.arange(6), rows), asked.weight, 0.0)

    found = model.worth(shares_of(f"gavel/max_min_fairness_water_filling_{kind}", asked)) / unit

    assert found == pytest.approx(filled(model, unit, by_weight), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("inside", ["fairness", "fifo"])
def test_hierarchy(inside: str, seed: int) -> None:
    """Two entities, the first with twice the weight: within it by weight, or all to the oldest that can rise."""
    asked = question(seed=seed, jobs=6)
    model = Model(asked, asked.speeds)
    unit = fair_part(asked, asked.speeds) / asked.weight
    of_entity = {"a": 2.0, "b": 1.0}

    def by_entity(rows: list[int]) -> Floats:
        rates = np.zeros(6)
        for entity, weight in of_entity.items():
            own = [row for row in rows if asked.jobs[row].entity == entity]
            if own and inside == "fifo":
                rates[own[0]] = weight
            elif own:
                rates[own] = weight * asked.weight[own] / asked.weight[own].sum()
        return rates

    found = model.worth(shares_of(f"gavel/hierarchical:inside={inside},weights=a:2/b:1", asked)) / unit

    assert found == pytest.approx(filled(model, unit, by_entity), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_product_of_throughputs_and_its_discounts(seed: int) -> None:
    asked = question(seed=seed, jobs=8)
    layout = lay_out(asked, collapse=False)
    counts = without_one(layout.count)
    answers = proportional(layout, counts)

    def optimum(rows: list[int]) -> float:
        model = Model(asked, asked.speeds)
        done = model.done()
        return best(cp.sum(cp.hstack([cp.log(done[row]) for row in rows])), model.limits)

    everyone = list(range(8))
    done = (asked.speeds * answers[0]).sum(axis=1)
    assert np.log(done).sum() == pytest.approx(optimum(everyone), rel=1e-6)
    for one, discount in enumerate(discounts(layout, counts, answers)):
        others = [row for row in everyone if row != one]
        assert discount == pytest.approx(np.exp(np.log(done[others]).sum() - optimum(others)), rel=1e-5)
