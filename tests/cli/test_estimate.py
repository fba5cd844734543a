"""`rota estimate`, as people type it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rota.cli.main import status
from rota.estimate.observations import read_observations, with_label

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A table of runs whose memory follows the batch, and what was learned from it."""
    folder = tmp_path_factory.mktemp("learned")
    rows = [f"{model},{batch},{batch * 10 + 100}" for model in "ab" for batch in range(10, 100, 10)]
    (folder / "runs.csv").write_text("\n".join(["model,batch,gpu_memory_mb", *rows]))
    assert status(["estimate", "train", str(folder / "runs.csv"), str(folder / "model.json")]) == 0
    return folder / "runs.csv", folder / "model.json"


def predict(model: Path, *flags: str) -> int:
    return status(["estimate", "predict", str(model), "-o", "json", "--", "python", "train.py", *flags])


@pytest.mark.slow
def test_run_within_what_was_learned_is_trusted(learned: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert predict(learned[1], "--model", "a", "--batch", "55") == 0

    (found,) = json.loads(capsys.readouterr().out)
    assert (found["trusted"], found["why"]) == (True, None)


@pytest.mark.slow
def test_what_is_beyond_is_said_once_for_all_labels(
    learned: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert predict(learned[1], "--model", "a", "--batch", "100000") == 0

    said = capsys.readouterr()
    (found,) = json.loads(said.out)
    assert found["trusted"] is False
    assert found["outside"] == ["batch is 100000; known runs of model=a have 10 to 90"]
    assert said.err == f"not trusted (gpu_memory_mb): {found['why']}\n"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--", "train.py", "--model", "a", "--batch", "-5"], "batch is -5; it must not be negative"),
        (["--label", "save_s", "--", "train.py"], "--label is 'save_s': "),
    ],
    ids=["nonsense", "not learned"],
)
def test_mistakes_are_named(
    learned: tuple[Path, Path], capsys: pytest.CaptureFixture[str], flags: list[str], said: str
) -> None:
    assert status(["estimate", "predict", str(learned[1]), *flags]) == 2

    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.out == ""


@pytest.mark.parametrize("what", ["score", "train"])
def test_table_with_too_few_runs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str) -> None:
    (tmp_path / "runs.csv").write_text("model,step_s\na,1\nb,2\nb,2\n")
    more = [str(tmp_path / "model.json")] if what == "train" else []

    assert status(["estimate", what, str(tmp_path / "runs.csv"), *more]) == 2

    assert "2 different runs are too few; at least 8" in capsys.readouterr().err
    assert not (tmp_path / "model.json").exists()


def table(tmp_path: Path, odd: str) -> Path:
    """A table of twenty runs, the memory of one of which is odd."""
    rows = [f"{batch},{odd if batch == 7 else batch * 10}" for batch in range(1, 21)]
    path = tmp_path / "runs.csv"
    path.write_text("\n".join(["batch,gpu_memory_mb", *rows]))
    return path


@pytest.mark.parametrize("odd", ["nan", "", "inf", "-5"])
def test_one_run_that_was_not_measured_costs_only_itself(tmp_path: Path, odd: str) -> None:
    runs = read_observations(table(tmp_path, odd))

    assert len(with_label(runs, "gpu_memory_mb")) == 19
    assert len(runs) == 20


def test_word_where_a_number_belongs_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table(tmp_path, "much")

    assert status(["estimate", "score", str(path)]) == 2

    assert f"{path}: row 7: gpu_memory_mb is 'much'; expected a number" in capsys.readouterr().err
