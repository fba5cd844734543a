"""Choices within limits, against a search for whole numbers."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from rota.mechanisms.solvers import set_packing
from rota.mechanisms.solvers.lp import NoSolution, Program, Solution, Solver
from rota.mechanisms.solvers.set_packing import best_choices, equal_owners, rounded


def choices(seed: int, jobs: int, gap: float) -> Program:
    """Each job has one of three sizes or none; there is room for half of what all would take."""
    rng = random.Random(seed)
    size = np.array([rng.choice((1.0, 2.0, 4.0, 8.0)) * factor for _ in range(jobs) for factor in (1, 2, 4)])
    gain = np.array([rng.uniform(0.1, 1.0) for _ in size])
    columns = np.arange(len(size))
    program = Program(
        gain=gain, lower=np.zeros(len(size)), upper=np.ones(len(size)), whole=np.ones(len(size), dtype=bool), gap=gap
    )
    program.add_rows(columns // 3, columns, np.ones(len(size)), np.full(jobs, -np.inf), np.ones(jobs))
    program.add_row(columns, size, high=float(jobs))
    return program


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("gap", [0.0, 0.01, 0.3])
def test_choices_are_as_near_to_the_optimum_as_was_asked_for(seed: int, gap: float) -> None:
    program = choices(seed, 12, gap)
    best = Solver().solve(replace(program, gap=0.0))
    assert isinstance(best, Solution)

    found = best_choices(program, np.zeros(len(program.gain)), np.arange(36) // 3)

    assert not isinstance(found, NoSolution)
    assert set(found.tolist()) <= {0.0, 1.0}
    assert program.gain @ found >= best.objective * (1 - gap) - 1e-6
    starts, columns, values = program.matrix
    used = np.add.reduceat(values * found[columns], starts[:-1])
    assert (used <= np.array(program.row_upper) + 1e-6).all()


@pytest.mark.parametrize("seed", range(8))
def test_equal_owners_lose_nothing_by_being_counted(seed: int) -> None:
    """Forty owners of three kinds with a choice on each of two pools, against a search that tells them apart."""
    rng = random.Random(seed)
    kinds = [(rng.choice((3.0, 5.0, 7.0)), rng.uniform(0.1, 1.0), rng.uniform(0.1, 1.0)) for _ in range(3)]
    of = [rng.choice(kinds) for _ in range(40)]
    columns = np.arange(80)
    program = Program(
        gain=np.array([gain for _, *gains in of for gain in gains]),
        lower=np.zeros(80),
        upper=np.ones(80),
        whole=np.ones(80, dtype=bool),
    )
    program.add_rows(columns // 2, columns, np.ones(80), np.full(40, -np.inf), np.ones(40))
    for pool in range(2):
        program.add_row(columns[pool::2], np.array([size for size, *_ in of]), high=31.0)
    best = Solver().solve(program)
    assert isinstance(best, Solution)

    found = best_choices(program, np.zeros(80), columns // 2)

    assert not isinstance(found, NoSolution)
    assert program.gain @ found == pytest.approx(best.objective)
    starts, of_columns, values = program.matrix
    assert (np.add.reduceat(values * found[of_columns], starts[:-1]) <= np.array(program.row_upper) + 1e-6).all()


def test_of_equal_owners_the_first_come_first() -> None:
    """Room for three of five that take 3 of 10 each."""
    program = Program(gain=np.ones(5), lower=np.zeros(5), upper=np.ones(5), whole=np.ones(5, dtype=bool))
    program.add_rows(np.arange(5), np.arange(5), np.ones(5), np.full(5, -np.inf), np.ones(5))
    program.add_row(np.arange(5), np.full(5, 3.0), high=10.0)

    found = best_choices(program, np.zeros(5), np.arange(5))

    assert not isinstance(found, NoSolution)
    assert found.tolist() == [1.0, 1.0, 1.0, 0.0, 0.0]
    assert [len(owners) for owners in equal_owners(program, np.array([0.0, 1.0, 0.0, 0.0, 1.0]), np.arange(5))] == [
        3,
        2,
    ]


def test_rounding_keeps_what_is_whole_and_fills_the_rest() -> None:
    """Room for 5: the first has 3 of it, whole. The second, half chosen, does not fit; of the others, which do, the one
    that gains more."""
    program = Program(gain=np.array([1.0, 3.0, 0.5, 0.6]), lower=np.zeros(4), upper=np.ones(4))
    program.add_row(np.arange(4), np.array([3.0, 4.0, 2.0, 2.0]), high=5.0)

    found = rounded(program, np.array([1.0, 0.5, 0.0, 0.0]))

    assert found is not None
    assert found.tolist() == [1.0, 0.0, 0.0, 1.0]
    assert rounded(program, np.array([1.0, 1.0, 0.0, 0.0])) is None


@pytest.mark.parametrize(("gap", "kept"), [(0.2, [0.0, 1.0, 1.0]), (0.05, [1.0, 0.0, 1.0])])
def test_present_choices_are_kept_where_they_are_near_enough(gap: float, kept: list[float]) -> None:
    """One of the first two, and the third beside it: 1.8 of 2 is a tenth less than the best."""
    program = Program(
        gain=np.array([1.0, 0.8, 1.0]), lower=np.zeros(3), upper=np.ones(3), whole=np.ones(3, dtype=bool), gap=gap
    )
    program.add_row(np.arange(2), np.ones(2), high=1.0)
    program.add_row(np.array([2]), np.ones(1), high=1.0)

    found = best_choices(program, np.array([0.0, 1.0, 0.0]), np.array([0, 0, 1]))

    assert not isinstance(found, NoSolution)
    assert found.tolist() == kept


def test_many_choices_need_no_search_for_whole_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    class Relaxed(Solver):
        def solve(self, program: Program) -> Solution | NoSolution:
            assert program.whole is None
            return super().solve(program)

    monkeypatch.setattr(set_packing, "Solver", Relaxed)

    assert not isinstance(best_choices(choices(0, 300, 2e-3), np.zeros(900), np.arange(900) // 3), NoSolution)


def test_limits_below_nothing_are_an_answer() -> None:
    program = Program(gain=np.ones(1), lower=np.zeros(1), upper=np.ones(1), whole=np.ones(1, dtype=bool))
    program.add_row(np.zeros(1, dtype=np.int64), np.ones(1), high=-1.0)

    assert best_choices(program, np.zeros(1), np.zeros(1, dtype=np.int64)) == NoSolution("infeasible")
