"""Pairs of jobs by halves: who sits beside whom, and that nobody needs more neighbours than there are."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import job
from questions import TYPES, question
from rota.core.state.job_record import LiveJob
from rota.mechanisms.arrays import Floats
from rota.mechanisms.rounds.pair_speeds import PairSpeeds
from rota.mechanisms.rounds.rule import NO_PARTNER, RoundJob, round_job
from rota.mechanisms.solvers.lp import Solver
from rota.perf.speed.model import SpeedModel
from rota.policies.published.gavel.layout import lay_out
from rota.policies.published.gavel.least import serve_the_least
from rota.policies.published.gavel.max_min import fair_need
from rota.policies.published.gavel.pairs import Halves, Kinds, Part, folded, pair_columns, zipped

TIMES = st.lists(st.floats(0.01, 1.0), min_size=2, max_size=8)


def time_of(couples: list[tuple[int, int, float]]) -> Counter[int]:
    spent: Counter[int] = Counter()
    for one, other, part in couples:
        assert one != other
        spent.update({one: part, other: part})
    return spent


@given(TIMES)
def test_within_a_kind_everybody_has_its_time_beside_somebody_else(times: list[float]) -> None:
    most = max(range(len(times)), key=times.__getitem__)
    times[most] = min(times[most], sum(times) - times[most])
    parts: list[Part] = list(enumerate(times))

    spent = time_of(list(zipped(*folded(parts))))

    assert [spent[row] for row, _ in parts] == pytest.approx(times, abs=1e-6)


@given(TIMES, TIMES)
def test_between_two_kinds_both_sides_have_their_time(left: list[float], right: list[float]) -> None:
    right = [time * sum(left) / sum(right) for time in right]
    sides = [(row, time) for row, time in enumerate(left)], [(100 + row, time) for row, time in enumerate(right)]

    spent = time_of(list(zipped(*sides)))

    assert [spent[row] for side in sides for row, _ in side] == pytest.approx([*left, *right], abs=1e-6)


def live(name: str, gpus: int = 1) -> LiveJob:
    return LiveJob(job(name, gpus=gpus, model=name), ord(name), 0.0, 1.0)


def test_jobs_of_which_one_can_not_run_are_no_pair() -> None:
    """On a type where one of them can't be placed, and in different sizes, both speeds of a pair are 0."""
    speeds = PairSpeeds(SpeedModel(), TYPES)
    anywhere = round_job(live("a"), SpeedModel(), TYPES, [True, True, True])
    first_only = round_job(live("b"), SpeedModel(), TYPES, [True, False, False])
    larger = round_job(live("c", gpus=2), SpeedModel(), TYPES, [True, True, True])

    for one, other in ((anywhere, first_only), (first_only, anywhere)):
        assert (speeds(one, other)[:, 0] > 0).all()
        assert not speeds(one, other)[:, 1:].any()
        assert speeds.run_together(one, other).tolist() == [True, False, False]
    assert not speeds(anywhere, larger).any()
    assert not speeds.run_together(anywhere, larger).any()


def test_pairs_of_which_one_makes_no_progress_have_no_column() -> None:
    """Half of the speeds of pairs are 0 on the first type: no column may give such a pair time there."""
    asked = question(seed=5, jobs=8, models=8, devices=(1, 1, 1))
    asked.scale[:] = 1.0
    plain = asked.pair_speeds

    def stalls(one: RoundJob, other: RoundJob) -> Floats:
        speeds = plain(one, other)
        speeds[1 if one.seq < other.seq else 0, 0] = 0.0
        return speeds

    asked.pair_speeds = stalls
    members = [[row] for row in range(len(asked.jobs))]
    columns = pair_columns(asked, members, Kinds.among(asked, members))

    assert len(columns.kind)
    assert 0 not in columns.kind.tolist()
    assert (columns.one_speed > 0).all()
    assert (columns.other_speed[columns.partner == NO_PARTNER] > 0).all()


def test_who_has_too_few_neighbours_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody would have more time beside others of its kind than all of them have: the optimum is that with a column
    for every two jobs only if a row forbids it."""
    asked = question(seed=3)

    def optimum() -> float:
        layout = lay_out(asked, packs=True, collapse=False)
        best = serve_the_least(Solver(), layout, fair_need(layout), spare=False)
        assert best is not None
        return best.t

    found = optimum()
    with monkeypatch.context() as patched:
        patched.setattr(Halves, "_lonely", lambda *args: iter(()))
        assert optimum() > found * (1 + 1e-6)
    monkeypatch.setattr(Kinds, "classes", property(lambda kinds: np.ones(len(kinds.names), dtype=np.int64)))
    assert lay_out(asked, packs=True, collapse=False).halves is None
    assert optimum() == pytest.approx(found, rel=1e-9)
