"""Pairs of jobs by halves: who sits beside whom, and that nobody needs more neighbours than there are."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from questions import question
from rota.mechanisms.solvers.lp import Solver
from rota.policies.published.gavel.layout import lay_out
from rota.policies.published.gavel.least import serve_the_least
from rota.policies.published.gavel.max_min import fair_need
from rota.policies.published.gavel.pairs import Halves, Kinds, Part, folded, zipped

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
