"""What `rota sim` tells on stderr of a study: what it takes for granted, and what has no effect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rota.cli.main import status

SPEEDS = [{"type": "v100", "model": model, "devices": 1, "steps_per_s": 10.0} for model in "ab"]
BOTH = [("a", "a"), ("a", "b"), ("b", "b")]
PACKED = "gavel/max_min_fairness_packed"
FULL_SPEED = "such jobs run packed as fast as alone. State their interference with --neighbours"


def pairs(*models: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"type": "v100", "models": two, "devices": 1, "steps_per_s": [6.0, 6.0]} for two in models]


class Study:
    """Two jobs on a device, with speeds in a file."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder = folder
        self._capsys = capsys
        self.labels: list[dict[str, str]] = [{}, {}]
        self.more: list[dict[str, Any]] = [{}, {}]
        self.pairs: list[dict[str, Any]] = []

    def run(self, *args: str) -> tuple[list[dict[str, Any]], str]:
        trace, profiles = self._folder / "jobs.jsonl", self._folder / "own.json"
        rows = [
            {"id": model, "submit_s": 0, "work": 10000, "work_unit": "steps", "model": model, "labels": labels} | more
            for model, labels, more in zip("ab", self.labels, self.more, strict=True)
        ]
        trace.write_text("\n".join(map(json.dumps, rows)))
        profiles.write_text(json.dumps({"rota_profiles": 1, "speeds": SPEEDS, "pairs": self.pairs}))
        given = ["sim", "--trace", str(trace), "--profiles", str(profiles), "-o", "json"]
        given += [] if "--cluster" in args else ["--cluster", "v100=1/1"]
        assert status([*given, *args]) == 0
        told = self._capsys.readouterr()
        return json.loads(told.out), told.err


@pytest.fixture
def study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Study:
    return Study(tmp_path, capsys)


def test_nothing_is_said_of_pairs_where_stages_decide(study: Study) -> None:
    assert "pair" not in study.run("--policy", "muri", "--neighbours", "stages")[1]


@pytest.mark.parametrize("policy", [PACKED, "gavel/gandiva", "gavel/fifo_packed", "muri"])
def test_unmeasured_pairs_are_reported(study: Study, policy: str) -> None:
    _, told = study.run("--policy", policy)

    assert f"{policy}: no pair of jobs on the same devices was measured; {FULL_SPEED}" in told


@pytest.mark.parametrize(
    ("measured", "lack"),
    [
        ([("a", "b")], "2 of 3 pairs of models on the same devices were not measured"),
        (BOTH, None),
    ],
    ids=["some", "all"],
)
def test_only_pairs_that_are_missing_are_told_of(
    study: Study, measured: list[tuple[str, str]], lack: str | None
) -> None:
    study.pairs = pairs(*measured)

    _, told = study.run("--policy", PACKED)

    assert (FULL_SPEED in told) is (lack is not None)
    assert lack is None or lack in told


def test_nothing_is_said_of_pairs_where_there_are_none_or_their_speed_is_given(study: Study) -> None:
    _, alone = study.run("--policy", "gavel/max_min_fairness_perf")
    rows, given = study.run("--policy", PACKED, "--neighbours", "device=0.8")

    assert "--neighbours" not in alone + given
    assert rows[0]["makespan_s"] == pytest.approx(1250, rel=0.01)


def test_types_without_a_speed_are_named(study: Study) -> None:
    _, told = study.run("--policy", "fifo", "--cluster", "v100=1/1,V10O=2/1,h900=1/1")
    _, silent = study.run("--policy", "fifo")

    assert "no speed on type 'V10O' (known: v100), 'h900' (known: v100); no job of its models runs there" in told
    assert "no speed on type" not in silent


def test_labels_that_are_no_numbers_are_named(study: Study) -> None:
    study.labels = [{"priority_weight": "heavy", "slo": "gold"}, {"priority_weight": "-3"}]

    _, told = study.run("--policy", "gavel/max_min_fairness_perf")
    _, silent = study.run("--policy", "fifo")

    assert "job a: label priority_weight is 'heavy', not a number above 0; it counts as 1 (1 more like it)" in told
    assert "job a: label slo is 'gold', not a number above 0; it is no deadline" in told
    assert "label" not in silent


@pytest.mark.parametrize(
    ("policy", "note"),
    [
        (
            "gavel/max_sum_throughput_normalized_by_cost_perf:prices=v10:2/v100:3",
            "prices names 'v10', which is no type of the cluster; did you mean 'v100'?",
        ),
        ("gavel/hierarchical:weights=groop:2/group:1", "weights names 'groop', which is no job's entity; did you mean"),
        ("gavel/hierarchical:entities=z:fifo", "entities names 'z', which is no job's entity; known: default, group"),
    ],
)
def test_names_that_nothing_has_are_told_of(study: Study, policy: str, note: str) -> None:
    study.labels[0] = {"entity": "group"}

    _, told = study.run("--policy", policy)

    assert f"{policy}: {note}" in told
    assert told.count(" names ") == 1


def test_slo_is_counted_as_deadline(study: Study) -> None:
    """Each runs 1000 s alone; the second waits for the first."""
    study.labels = [{"slo": "1.5"}, {"slo": "1.5"}]

    (row,), _ = study.run("--policy", "fifo")

    assert (row["deadlines"], row["deadlines_met"]) == (2, 1)


def test_deadline_of_its_own_goes_before_slo_and_slo_that_is_no_number_is_none(study: Study) -> None:
    study.labels = [{"slo": "1.5"}, {"slo": "gold"}]
    study.more[0] = {"deadline_s": 10}

    (row,), _ = study.run("--policy", "fifo")

    assert (row["deadlines"], row["deadlines_met"]) == (1, 0)


def test_spread_by_profile_is_among_the_words_that_are_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("id,submit_s,gpus,work\na,0,1,300\n")
    given = ["sim", "--trace", str(trace), "--cluster", "gpu=1/1", "--policy", "fifo", "--spread"]

    assert status([*given, "bogus"]) == 2
    assert "--spread: unknown name 'bogus'; known: cluster, domain, network, profile, rack" in capsys.readouterr().err
    assert status([*given, "profil"]) == 2
    assert "did you mean 'profile'?" in capsys.readouterr().err


def test_kinds_that_are_not_known_are_named_once_with_what_becomes_of_them(study: Study) -> None:
    _, told = study.run("--policy", "harmony", "--policy", "fifo", "--contention")
    _, silent = study.run("--policy", "fifo")

    assert "--contention: 2 of 2 jobs are of no known kind ('a', 'b'; known: inception3, " in told
    assert "they cause no interference and suffer none" in told
    assert "harmony: 2 of 2 jobs are of no known kind ('a', 'b'; known: inception3, " in told
    assert told.count("its weights treat them as one unknown kind") == 1
    assert "of no known kind" not in silent


NONE_OPPORTUNISTIC = "no job is opportunistic (priority -1), so that none is packed with a job that has whole devices"
NEVER_IDLE = (
    "no two jobs are known to keep a device busy for at most 1.3 together, so that none share one. "
    "Measured pairs (--profiles), the label utilization or unknown=FRACTION say how busy they are"
)
ALL_BUSY = (
    "no guaranteed job is known to keep its devices busy for less than 0.8 of the time, so that none is packed "
    "with another"
)


@pytest.mark.parametrize(
    ("policy", "jobs", "note"),
    [
        ("antman", [{}, {}], NONE_OPPORTUNISTIC),
        ("antman:patience_s=60", [{}, {}], ALL_BUSY),
        ("antman", [{}, {"priority": -1}], ALL_BUSY),
        ("antman:unknown=0.5", [{}, {"priority": -1}], None),
        ("antman", [{"labels": {"utilization": "0.5"}}, {"priority": -1}], None),
        ("antman", [{"priority": -1, "labels": {"utilization": "0.5"}}, {"priority": -1}], ALL_BUSY),
        ("horus", [{}, {}], NEVER_IDLE),
        ("horus", [{}, {"labels": {"utilization": "0.3"}}], None),
        ("horus:unknown=0.6", [{}, {}], None),
        ("kubeshare", [{}, {}], "no job asks for a fraction of a device (gpus below 1), so that none share one"),
        ("kubeshare", [{}, {"gpus": 0.5}], None),
    ],
)
def test_policies_under_which_no_jobs_share_here_tell_why(
    study: Study, policy: str, jobs: list[dict[str, Any]], note: str | None
) -> None:
    study.more = jobs

    _, told = study.run("--policy", policy)

    assert ("so that none" in told) is (note is not None)
    assert note is None or f"{policy}: {note}" in told


def test_measured_pairs_say_how_busy_a_guaranteed_job_is(study: Study) -> None:
    study.more, study.pairs = [{}, {"priority": -1}], pairs(*BOTH)

    assert f"antman: {ALL_BUSY}" in study.run("--policy", "antman")[1]
    study.pairs = [pair | {"steps_per_s": [9.0, 9.0]} for pair in study.pairs]
    assert "so that none" not in study.run("--policy", "antman")[1]
