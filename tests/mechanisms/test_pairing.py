"""Matchings of greatest weight, against all matchings there are; and the crews that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import job
from rota.core.state.job_record import LiveJob
from rota.mechanisms.colocation.regroup import form
from rota.mechanisms.solvers import weighted_matching
from rota.mechanisms.solvers.lp import NoSolution, Program, Solution, Solver
from rota.mechanisms.solvers.weighted_matching import best_pairs
from rota.perf.speed.interleaving import stages_of, throughput


def heaviest(left: Sequence[int], weights: dict[tuple[int, int], float]) -> float:
    """The weight of the best matching, by trying all."""
    if len(left) < 2:
        return 0.0
    (first, *others) = left
    with_somebody = (
        weights[first, other] + heaviest([each for each in others if each != other], weights) for other in others
    )
    return max(heaviest(others, weights), *with_somebody)


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=30)
def test_no_matching_is_heavier(data: st.DataObject) -> None:
    items = data.draw(st.integers(1, 7))
    weights = {
        (one, other): data.draw(st.integers(0, 20)) / 4 for one in range(items) for other in range(one + 1, items)
    }

    pairs = best_pairs(range(items), lambda one, other: weights.get((one, other), 0.0))

    assert len({item for pair in pairs for item in pair}) == 2 * len(pairs)
    assert sum(weights[pair] for pair in pairs) == heaviest(range(items), weights)


@given(
    classes=st.lists(st.sampled_from("abc"), max_size=8), weights=st.lists(st.integers(0, 9), min_size=6, max_size=6)
)
@settings(max_examples=30)
def test_items_that_are_alike_are_matched_as_well(classes: list[str], weights: list[int]) -> None:
    by_kinds = dict(zip(["aa", "ab", "ac", "bb", "bc", "cc"], map(float, weights), strict=True))

    def weight(one: str, other: str) -> float:
        return by_kinds["".join(sorted(one + other))]

    pairs = best_pairs(classes, weight)

    every = {
        (one, other): weight(classes[one], classes[other])
        for one in range(len(classes))
        for other in range(one + 1, len(classes))
    }
    assert sum(every[pair] for pair in pairs) == heaviest(range(len(classes)), every)


class MoreIsBetter(Solver):
    """A solver that prefers more pairs among matchings of equal weight, as the usual one does not happen to."""

    def solve(self, program: Program) -> Solution | NoSolution:
        return super().solve(replace(program, gain=program.gain + 1e-6))


@pytest.mark.parametrize("worthless", [0.0, -0.0])
def test_pairs_without_weight_are_not_made_whatever_the_solver_prefers(
    monkeypatch: pytest.MonkeyPatch, worthless: float
) -> None:
    monkeypatch.setattr(weighted_matching, "Solver", MoreIsBetter)

    assert best_pairs("ab", lambda one, other: worthless) == []
    assert best_pairs("aabc", lambda one, other: 1.0 if one == other else worthless) == [(0, 1)]


def test_a_triangle_has_one_pair_and_not_three_halves() -> None:
    assert len(best_pairs("abc", lambda one, other: 1.0)) == 1


def live(name: str, stages: str, gpus: int = 1) -> LiveJob:
    return LiveJob(job(name, gpus=gpus, labels=(("stages", stages),)), int(name), 0.0, 1.0)


def weight(one: Sequence[LiveJob], other: Sequence[LiveJob]) -> float:
    together = throughput(tuple(stages_of(each.job) for each in (*one, *other)))
    return together if together > max(len(one), len(other)) else 0.0


def crews(jobs: list[LiveJob], devices: int, most: int = 4, near: tuple[int, int] | None = None) -> list[list[int]]:
    def meet(one: LiveJob, other: LiveJob) -> bool:
        return near in ((one.seq, other.seq), (other.seq, one.seq))

    found = form(jobs, devices, most, weight, meet, stages_of)
    return [sorted(each.seq for each in crew) for crew in found]


READS, COMPUTES, THINKS, SENDS = "1/0/0/0", "0/0/1/0", "0/1/0/0", "0/0/0/1"


def test_nobody_shares_where_all_have_room() -> None:
    assert crews([live("0", READS), live("1", COMPUTES)], 2) == [[0], [1]]


def test_crews_are_of_those_who_use_different_resources() -> None:
    jobs = [live("0", READS), live("1", READS), live("2", COMPUTES), live("3", COMPUTES)]

    assert all({0, 1} != set(crew) and {2, 3} != set(crew) for crew in crews(jobs, 2))
    assert len(crews(jobs, 2)) == 2


def test_who_is_together_stays_so_where_another_is_no_better() -> None:
    jobs = [live("0", READS), live("1", READS), live("2", COMPUTES), live("3", COMPUTES)]

    assert crews(jobs, 2, near=(1, 2)) == [[0, 3], [1, 2]]
    assert crews(jobs, 2, near=(0, 2)) == [[0, 2], [1, 3]]


def test_pairs_are_paired_until_there_is_room() -> None:
    jobs = [live(str(at), stages) for at, stages in enumerate((READS, COMPUTES, THINKS, SENDS))]

    assert crews(jobs, 1) == [[0, 1, 2, 3]]
    assert len(crews(jobs, 3)) == 3


def test_jobs_of_different_size_are_apart_and_those_too_far_back_are_left_out() -> None:
    jobs = [live("0", READS, gpus=2), live("1", COMPUTES), live("2", SENDS, gpus=2), live("3", READS, gpus=2)]

    assert crews(jobs, 3, most=1) == [[0], [1]]
    assert crews(jobs, 3, most=2) == [[0, 2], [1]]
