"""Shares: every program against a second solver, and what happens where there is nothing to share."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import linprog

from builders import in_rounds, job
from questions import feasible, odd_questions, question
from rota.mechanisms.arrays import Floats
from rota.mechanisms.declare import Knowledge
from rota.mechanisms.rounds.rule import ShareQuestion
from rota.mechanisms.solvers.lp import NoSolution, Program, Solution, Solver
from rota.policies import find_policy
from rota.policies.published.gavel.declare import LpParams
from rota.policies.published.gavel.finish_time import least_rho
from rota.policies.published.gavel.isolated import isolated_shares
from rota.policies.published.gavel.layout import lay_out
from rota.policies.published.gavel.least import least_program, serve_the_least
from rota.policies.published.gavel.max_min import fair_need
from rota.policies.published.gavel.throughput import MaxSumThroughput
from rota.policies.published.gavel.water_filling import WaterFilling


def second_opinion(program: Program) -> float:
    """The same program by scipy's interior-point method, with every row that its solution would break."""
    while True:
        objective, x = interior(program)
        broken = [] if program.cuts is None else program.cuts(x)
        if not broken:
            return objective
        for columns, values, high, key in broken:
            program.add_row(columns, values, high=high, key=key)


def interior(program: Program) -> tuple[float, Floats]:
    """The optimum of a program's rows, and a solution."""
    starts, columns, values = program.matrix
    dense = np.zeros((len(starts) - 1, len(program.gain)))
    for row, (first, last) in enumerate(itertools.pairwise(starts.tolist())):
        dense[row, columns[first:last]] = values[first:last]
    low, high = np.array(program.row_lower), np.array(program.row_upper)
    rows = np.concatenate([dense[np.isfinite(high)], -dense[np.isfinite(low)]])
    limits = np.concatenate([high[np.isfinite(high)], -low[np.isfinite(low)]])
    found = linprog(
        -program.gain,
        A_ub=rows,
        b_ub=limits,
        bounds=list(zip(program.lower, program.upper, strict=True)),
        method="highs-ipm",
    )
    assert found.status == 0, found.message
    return float(-found.fun), found.x


@pytest.mark.parametrize("packs", [False, True], ids=["alone", "packed"])
@pytest.mark.parametrize("seed", range(4))
def test_max_min_has_the_optimum_of_a_second_solver(seed: int, packs: bool) -> None:
    asked = question(seed=seed)
    whole = lay_out(asked, packs=packs, collapse=False)
    alike = lay_out(asked, packs=packs)

    best = serve_the_least(Solver(), alike, fair_need(alike), spare=True)

    assert best is not None
    assert best.t == pytest.approx(second_opinion(least_program(whole, fair_need(whole))), rel=1e-6)
    assert np.min(alike.done(best.x) / fair_need(alike)) == pytest.approx(best.t, rel=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_max_min_agrees_with_a_modelling_language(seed: int) -> None:
    cp = pytest.importorskip("cvxpy")
    asked = question(seed=seed)
    layout = lay_out(asked, collapse=False)
    x = cp.Variable(asked.speeds.shape, nonneg=True)
    done = cp.sum(cp.multiply(asked.speeds, x), axis=1)
    limits = [cp.sum(x, axis=1) <= 1, asked.scale @ x <= asked.capacity]
    problem = cp.Problem(cp.Maximize(cp.min(done / fair_need(layout))), limits)
    problem.solve(solver=cp.CLARABEL)

    best = serve_the_least(Solver(), layout, fair_need(layout), spare=False)

    assert best is not None
    assert best.t == pytest.approx(problem.value, rel=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_total_duration_has_the_optimum_of_a_second_solver(seed: int) -> None:
    asked = question(seed=seed)
    layout = lay_out(asked, collapse=False)

    best = serve_the_least(Solver(), layout, asked.remaining, spare=False)

    assert best is not None
    assert best.t == pytest.approx(second_opinion(least_program(layout, asked.remaining)), rel=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_finish_time_ratio_can_not_be_beaten(seed: int) -> None:
    asked = question(seed=seed)
    layout = lay_out(asked, collapse=False)
    age, left, alone = asked.age_s, asked.remaining, np.full(len(asked.jobs), 2000.0)

    best, rho = least_rho(Solver(), layout, age, left, alone, spare=False)

    assert best is not None
    lower = rho * (1 - 1e-6)
    need = left / (lower * alone - age)
    assert second_opinion(least_program(layout, need)) < 1.0


@pytest.mark.parametrize("seed", range(3))
def test_most_throughput_has_the_optimum_of_a_second_solver(seed: int) -> None:
    asked = question(seed=seed)
    layout = lay_out(asked, packs=True)
    program = MaxSumThroughput(LpParams())._program(layout, np.zeros(len(layout.count)), np.ones(len(layout.count)))

    found = Solver().solve(program)

    assert isinstance(found, Solution)
    assert found.objective == pytest.approx(second_opinion(program), rel=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_water_filling_lifts_everyone_at_least_to_the_max_min(seed: int) -> None:
    asked = question(seed=seed)
    layout = lay_out(asked, collapse=False)
    filled = WaterFilling(LpParams()).fill(layout)
    best = serve_the_least(Solver(), layout, fair_need(layout), spare=False)

    assert filled is not None
    assert best is not None
    level = layout.done(filled) / fair_need(layout)
    assert level.min() == pytest.approx(best.t, rel=1e-4)
    assert level.sum() >= (layout.done(best.x) / fair_need(layout)).sum() * (1 - 1e-3) or level.min() > best.t


IN_ROUNDS = [
    policy.partition(":")[0]
    for policy in in_rounds()
    if policy.startswith(("gavel/", "shockwave")) and "allox" not in policy
]


def rule(name: str) -> object:
    declared, options = find_policy(name)
    scheduler = declared.build(options, None, Knowledge())  # type: ignore[arg-type] # rounds need no allocator
    return scheduler._rule  # type: ignore[attr-defined] # shares are looked at without an engine


CASES = {
    "usual": {},
    "zero speeds": {"zeros": True},
    "empty type": {"devices": (3, 0, 6)},
    "no devices": {"devices": (0, 0, 0)},
    "one job": {"jobs": 1},
    "too large": {"devices": (1, 1, 1)},
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", IN_ROUNDS)
def test_shares_are_always_feasible_numbers(name: str, case: str) -> None:
    asked = question(**CASES[case])  # type: ignore[arg-type] # a table of any fields

    feasible(asked, dict(rule(name).shares(asked)))  # type: ignore[attr-defined] # every rule has shares


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_ROUNDS)
@given(asked=odd_questions())
@settings(max_examples=10)
def test_odd_profiles_have_a_defined_outcome(name: str, asked: ShareQuestion) -> None:
    feasible(asked, dict(rule(name).shares(asked)))  # type: ignore[attr-defined] # every rule has shares


def test_deadline_in_the_past_binds_nobody() -> None:
    asked = question()
    for index, each in enumerate(asked.jobs):
        late = job(f"j{index}", gpus=each.scale, work=100.0, model="m", deadline_s=10.0 if index % 2 else 601.0)
        each.live.job = late

    policy = rule("gavel/max_sum_throughput_normalized_by_cost_perf_SLOs")

    feasible(asked, dict(policy.shares(asked)))  # type: ignore[attr-defined] # every rule has shares


def test_impossible_programs_have_a_reason() -> None:
    none = Program(gain=np.ones(1), lower=np.zeros(1), upper=np.full(1, np.inf))
    none.add_row(np.array([0]), np.ones(1), low=2.0, high=1.0)
    endless = Program(gain=np.ones(1), lower=np.zeros(1), upper=np.full(1, np.inf))
    broken = Program(gain=np.array([np.nan]), lower=np.zeros(1), upper=np.ones(1))

    assert isinstance(Solver().solve(none), NoSolution)
    assert Solver().solve(endless) in (NoSolution("unbounded"), NoSolution("infeasible or unbounded"))
    assert Solver().solve(broken) == NoSolution("a coefficient is not a number")


def test_isolated_shares_do_not_depend_on_the_order_of_types() -> None:
    asked = question(jobs=7)
    turned = ShareQuestion(
        asked.now_s,
        [replace(job, speeds=job.speeds[::-1]) for job in asked.jobs],
        asked.types[::-1],
        asked.devices[::-1],
        asked.pair_speeds,
    )
    scale = np.array([1.0, 1.0, 2.0, 4.0, 1.0, 2.0, 1.0])

    assert (isolated_shares(asked, scale) == isolated_shares(turned, scale)[:, ::-1]).all()


def test_shortest_job_first_serves_who_is_soonest_through() -> None:
    # One device: done fractions a second are 1/100, 2/400 and 1/50; only the last is served.
    asked = question(jobs=3, devices=(1, 0, 0), models=1)
    for each, (work, speed) in zip(asked.jobs, ((100.0, 1.0), (400.0, 2.0), (50.0, 1.0)), strict=True):
        each.live.job = job(f"j{each.seq}", work=work)
        asked.jobs[each.seq] = replace(each, scale=1, speeds=(speed, 0.0, 0.0), kind=(each.seq,))
    asked = ShareQuestion(0.0, asked.jobs, asked.types, asked.devices, asked.pair_speeds)

    given = rule("gavel/shortest_job_first_perf").shares(asked)  # type: ignore[attr-defined] # every rule has shares

    assert [given[(seq,)][0] for seq in range(3)] == pytest.approx([0.0, 0.0, 1.0])
