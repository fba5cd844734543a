from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from report.histories import history, row
from rota.core.state.history import JobRow
from rota.report.tables import write_jobs

PAST = history(
    row("a", 0.0, 0.0, 100.0, gpus=2, name='ä, "quoted"\nname', tenant="t", preemptions=3),
    row("b", 20.0, None, None, gpus=0.5, state="waiting"),
)


def test_columns_are_the_row_and_two_figures(tmp_path: Path) -> None:
    parquet, csv = write_jobs(PAST, tmp_path)

    expected = [*JobRow._fields, "jct_s", "finish_time_fairness"]
    assert (parquet.name, csv.name) == ("jobs.parquet", "jobs.csv")
    assert pl.read_parquet(parquet).columns == expected
    assert pl.read_csv(csv).columns == expected


def test_both_files_hold_the_same_rows(tmp_path: Path) -> None:
    parquet, csv = write_jobs(PAST, tmp_path)

    table = pl.read_parquet(parquet)
    again = pl.read_csv(csv, schema=table.schema).with_columns(pl.col("user").fill_null(""))
    assert table.to_dicts() == again.to_dicts()
    assert table["jct_s"].to_list() == [100.0, None]
    assert table["finish_time_fairness"].to_list()[0] == pytest.approx(1.0)
    assert table["finish_time_fairness"].to_list()[1] is None
    assert table["preemptions"].to_list() == [3, 0]
    assert table["name"].to_list() == ['ä, "quoted"\nname', "b"]


def test_history_without_jobs_has_a_header(tmp_path: Path) -> None:
    parquet, csv = write_jobs(history(), tmp_path)

    assert pl.read_parquet(parquet).height == 0
    assert csv.read_text(encoding="utf-8").startswith("id,name,tenant,")
