"""Scores of forecasts: what counts as covered, overdue or not at all, and the groups."""

from __future__ import annotations

from dataclasses import replace

import pytest

from live.truth.seeded import stored
from rota.live.truth.scores import ScoredMoment, by_horizon, by_size, percentile, rows_by, score, summary
from rota.live.truth.summary import tables_of
from rota.store.forecasts import StoredRange

SPAN = StoredRange(median_s=200.0, low_s=190.0, high_s=210.0, given_low_s=180.0, given_high_s=230.0)
KEPT = stored(start=SPAN, made_s=100.0, gpus=4.0)


def scored(started_s: float | None, *, now_s: float = 1000.0, **more: object) -> object:
    return score(replace(KEPT, started_s=started_s, **more), ScoredMoment.START, now_s)  # type: ignore[arg-type]  # fields of the case


@pytest.mark.parametrize(
    ("started_s", "given", "raw", "error"),
    [
        (200.0, True, True, 0.0),
        (220.0, True, False, 20 / 120),
        (180.0, True, False, 20 / 80),
        (231.0, False, False, 31 / 131),
        (179.0, False, False, 21 / 79),
    ],
    ids=["at the median", "within what was given", "at the lower end", "too late", "too soon"],
)
def test_covered_by_what_was_given_and_error_as_part_of_the_wait(
    started_s: float, given: bool, raw: bool, error: float
) -> None:
    found = score(replace(KEPT, started_s=started_s), ScoredMoment.START, 1000.0)

    assert found is not None
    assert (found.is_covered, found.was_covered_raw) == (given, raw)
    assert found.error == pytest.approx(error)


def test_waiting_job_is_overdue_once_its_range_is_over() -> None:
    assert scored(None, now_s=229.0) is None
    late = score(KEPT, ScoredMoment.START, 231.0)
    assert late is not None
    assert not late.is_covered
    assert summary("all", [late]).overdue == 1
    assert summary("all", [late]).coverage == 0.0
    assert summary("all", [late]).median_error is None


def test_cancelled_job_says_nothing_and_one_that_ran_before_neither() -> None:
    assert scored(None, state="cancelled", now_s=1e6) is None
    assert scored(50.0) is None


def test_end_counts_only_for_jobs_that_succeeded() -> None:
    with_end = replace(KEPT, end=SPAN, started_s=150.0, ended_s=205.0)

    assert score(replace(with_end, state="failed"), ScoredMoment.END, 1000.0) is None
    found = score(replace(with_end, state="succeeded"), ScoredMoment.END, 1000.0)
    assert found is not None
    assert found.is_covered


def test_range_without_an_upper_end_is_never_overdue_and_holds_all_that_is_later() -> None:
    endless = replace(KEPT, start=replace(SPAN, high_s=None, given_high_s=None))

    assert score(endless, ScoredMoment.START, 1e9) is None
    found = score(replace(endless, started_s=1e6), ScoredMoment.START, 1e9)
    assert found is not None
    assert found.is_covered
    assert found.width is None


def test_groups_have_names_in_order() -> None:
    near = score(replace(KEPT, started_s=200.0), ScoredMoment.START, 0.0)
    far = score(replace(KEPT, started_s=5000.0, start=replace(SPAN, median_s=5000.0)), ScoredMoment.START, 0.0)
    assert near is not None
    assert far is not None

    assert [row.group for row in rows_by([far, near], by_horizon)] == ["1 to 10 min", "1 to 6 h"]
    assert by_size(near) == "2 to 8 GPUs"


def test_tables_hold_every_group() -> None:
    kept = [replace(KEPT, started_s=200.0), replace(KEPT, started_s=500.0, policy="las"), KEPT]

    tables = tables_of(kept, 1.0, ScoredMoment.START, 210.0)

    assert tables.kept == 3
    assert (tables.all.forecasts, tables.all.coverage) == (2, 0.5)
    assert [row.group for row in tables.groups["policy"]] == ["fifo", "las"]
    assert set(tables.groups) == {"policy", "horizon", "kind", "size", "cause", "tenant"}
    assert [row.group for row in tables.over_time] == ["1970-01-01T00:00Z"]


def test_percentile_is_a_value_of_the_sample() -> None:
    assert percentile([3.0, None, 1.0, 2.0], 0.5) == 2.0
    assert percentile([1.0], 0.9) == 1.0
    assert percentile([None], 0.5) is None
