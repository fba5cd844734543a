"""Which speeds a study runs on, as `rota sim` is asked: files, the catalogue, none; seconds and steps; over nodes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rota.cli.main import status

OWN = {
    "rota_profiles": 1,
    "speeds": [
        {"type": "v100", "model": "m", "devices": 1, "steps_per_s": 10.0},
        {"type": "v100", "model": "m", "devices": 2, "steps_per_s": 16.0, "scattered_steps_per_s": 8.0},
        {"type": "k80", "model": "m", "devices": 1, "steps_per_s": 2.0},
        {"type": "k80", "model": "m", "devices": 2, "steps_per_s": 4.0},
    ],
}
GAVEL = {
    "v100": {"('m', 2)": {"null": 16.0}},
    "v100_unconsolidated": {"('m', 2)": {"null": 8.0}},
}


def jct_s(tmp_path: Path, capsys: pytest.CaptureFixture[str], row: dict[str, object], *args: str) -> float:
    """The completion time of a lone job."""
    path = tmp_path / "job.jsonl"
    path.write_text(json.dumps({"id": "a", "submit_s": 0} | row))
    assert status(["sim", "--trace", str(path), "--policy", "fifo", "-o", "json", *args]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    return float(result["avg_jct_s"])


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "own.json"
    path.write_text(json.dumps(OWN))
    return str(path)


def test_work_in_seconds_is_scaled_by_a_file_too(tmp_path: Path, capsys: pytest.CaptureFixture[str], own: str) -> None:
    row: dict[str, object] = {"work": 600, "model": "m"}

    assert jct_s(tmp_path, capsys, row, "--cluster", "k80=1/1", "--profiles", own) == pytest.approx(3000)
    assert jct_s(tmp_path, capsys, row, "--cluster", "k80=1/1", "--profiles", own, "--reference", "k80") == 600
    assert jct_s(tmp_path, capsys, row, "--cluster", "k80=1/1", "--profiles", "none") == 600


@pytest.mark.parametrize("form", ["own", "gavel"])
def test_speeds_over_nodes_are_used_when_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], own: str, form: str
) -> None:
    (tmp_path / "gavel.json").write_text(json.dumps(GAVEL))
    file = own if form == "own" else str(tmp_path / "gavel.json")
    row: dict[str, object] = {"work": 1600, "work_unit": "steps", "model": "m", "gpus": 2}
    args = ("--cluster", "v100=2/1", "--profiles", file)

    assert jct_s(tmp_path, capsys, row, *args) == pytest.approx(100)
    assert jct_s(tmp_path, capsys, row, *args, "--spread", "profile") == pytest.approx(200)


SPREADS = ("gavel/max_min_fairness_perf:compat=none,round_s=100,cross_type=true", "--type-speed", "a=1,b=0.5")


@pytest.mark.parametrize(("option", "end_s"), [((), 600.0), (("--uneven-batches",), 360.0)], ids=["slowest", "uneven"])
def test_job_on_two_types(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: tuple[str, ...], end_s: float
) -> None:
    """Three tasks of 300 s, two of them on devices of speed 1 and one on 1/2."""
    path = tmp_path / "job.csv"
    path.write_text("id,submit_s,gpus,work\na,0,3,300\n")
    study = ["sim", "--trace", str(path), "--cluster", "a=2/2,b=2/2", "-o", "json", "--policy"]

    assert status([*study, *SPREADS, *option]) == 0
    (result,) = json.loads(capsys.readouterr().out)

    assert result["avg_jct_s"] == pytest.approx(end_s)


def test_job_too_large_for_every_type_is_refused_where_one_policy_does_not_spread(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.csv"
    path.write_text("id,submit_s,gpus,work\na,0,3,300\n")

    assert (
        status(["sim", "--trace", str(path), "--cluster", "a=2/2,b=2/2", "--policy", *SPREADS, "--policy", "fifo"]) == 2
    )

    assert "needs 3 devices of one type, and the cluster has 2 of 'a', 2 of 'b'" in capsys.readouterr().err


def test_catalogue_serves_by_itself_and_can_be_turned_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row: dict[str, object] = {"work": 368, "model": "resnet50"}

    assert jct_s(tmp_path, capsys, row, "--cluster", "h100=1/1") == pytest.approx(368 * 368 / 1197)
    assert jct_s(tmp_path, capsys, row, "--cluster", "h100=1/1", "--profiles", "none") == 368
    assert jct_s(tmp_path, capsys, row, "--cluster", "gpu=1/1") == 368
    steps = {"work": 100, "work_unit": "steps", "model": "resnet50"}
    assert jct_s(tmp_path, capsys, steps, "--cluster", "h100=1/1") == pytest.approx(100 * 64 / 1197)


@pytest.mark.parametrize(
    ("row", "args", "message"),
    [
        ({"work": 60, "model": "m"}, ["--reference", "t4"], "they have no type 't4', in whose seconds work is counted"),
        ({"work": 60, "model": "m"}, ["--profiles", "catalogue", "--cluster", "gpu=1/1"], "no device type 'gpu'"),
        ({"work": 60}, ["--profiles", "none", "--known-profiles", "0.5"], "no profiles of which part could be hidden"),
        ({"work": 60}, ["--profiles", "missing.json"], "profiles missing.json: can't be read"),
    ],
)
def test_wrong_wishes_are_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    own: str,
    row: dict[str, object],
    args: list[str],
    message: str,
) -> None:
    path = tmp_path / "job.jsonl"
    path.write_text(json.dumps({"id": "a", "submit_s": 0} | row))
    given = ["sim", "--trace", str(path), "--policy", "fifo", *args]
    for option, value in (("--profiles", own), ("--cluster", "v100=1/1")):
        given += [] if option in args else [option, value]

    assert status(given) == 2

    assert message in capsys.readouterr().err


def test_profiles_command_lists_models_types_and_files(own: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["profiles", "-o", "json"]) == 0
    models = json.loads(capsys.readouterr().out)
    assert status(["profiles", "--types", "-o", "json"]) == 0
    types = json.loads(capsys.readouterr().out)
    assert status(["profiles", "resnet50", "-o", "json"]) == 0
    speeds = {row["type"]: row for row in json.loads(capsys.readouterr().out)}
    assert status(["profiles", "--file", own, "-o", "json"]) == 0
    file = json.loads(capsys.readouterr().out)

    assert {row["model"]: row["gradient_bytes"] for row in models}["resnet50"] == 4 * 25.6e6
    assert {row["type"]: row["kind"] for row in types}["xeon-6148"] == "cpu"
    assert (speeds["p100"]["on_8"], speeds["p100"]["source"]) == (1734, "tensorflow-2017")
    assert speeds["t4"]["source"] == "estimate"
    assert file[0] == {
        "model": "m", "devices": 1, "steps_per_s": {"v100": 10.0, "k80": 2.0}, "scattered": 0, "pairs": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["resnet5"], "the catalogue has no model 'resnet5'; did you mean 'resnet50'?"),
        (["resnet50", "--types"], "--types lists all types; leave out the model 'resnet50'"),
        (["--file", "x.json", "--types"], "--file lists a whole file; give neither --types nor a model beside it"),
    ],
)
def test_profiles_command_refuses(args: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["profiles", *args]) == 2

    assert message in capsys.readouterr().err


def test_times_are_written_as_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row: dict[str, object] = {"work": 600}

    assert jct_s(tmp_path, capsys, row, "--cluster", "gpu=1/1", "--load-time", "1h", "--save-time", "30") == 4230
    assert status(["sim", "--trace", "x", "--load-time", "1x"]) == 2
    assert "'--load-time': not a duration: '1x'; write it like 90, 10m" in capsys.readouterr().err


def again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cluster: str, profiles: str, *args: str
) -> tuple[float, float, str]:
    """Completion times of two jobs, and of those in their journal once more; what is told of the latter."""
    jobs, journal = tmp_path / "jobs.csv", tmp_path / "run" / "journal.jsonl"
    jobs.write_text("id,submit_s,work,gpus,model\na,0,600,1,resnet50\nb,0,900,1,vgg16\n")
    asked = ["--policy", "fifo", "-o", "json"]
    first = ["sim", "--trace", str(jobs), "--cluster", cluster, *asked, "--profiles", profiles]
    assert status([*first, "--out", str(tmp_path / "run")]) == 0
    (once,) = json.loads(capsys.readouterr().out)
    assert status(["sim", "--trace", str(journal), *asked, *args]) == 0
    said = capsys.readouterr()
    (twice,) = json.loads(said.out)
    return once["avg_jct_s"], twice["avg_jct_s"], said.err


@pytest.mark.slow
def test_journals_work_is_in_seconds_of_the_devices_it_ran_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    on_p100_s, again_s, told = again(tmp_path, capsys, "p100=2/2", "catalogue")

    assert on_p100_s > 1.5 * 750
    assert again_s == pytest.approx(on_p100_s)
    assert "speeds: catalogue" in told
    assert again(tmp_path, capsys, "p100=2/2", "none", "--cluster", "v100=2/2")[1] == pytest.approx(
        750 * 750 / on_p100_s, rel=0.05
    )


@pytest.mark.slow
def test_nobody_knows_in_whose_seconds_a_journal_of_several_types_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    once_s, again_s, told = again(tmp_path, capsys, "p100=1/1,k80=1/1", "catalogue")

    assert again_s == pytest.approx(once_s)
    assert "speeds: catalogue" not in told
