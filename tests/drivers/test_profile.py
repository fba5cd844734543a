"""`rota profile` on real processes."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rota.cli.main import status
from rota.core.errors import RotaError
from rota.drivers.local.profile import profile

TRAINING = """
import sys, time
from rota.sdk import steps
time.sleep(0.6)
held = bytearray(80 * 2**20)
for number in steps(range(30)):
    until = time.process_time() + 0.02
    while time.process_time() < until: pass
    time.sleep(0.02)
time.sleep(0.4)
"""


@pytest.mark.slow
def test_training_is_measured_whole(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)

    used, code = profile([sys.executable, str(tmp_path / "train.py"), "--batch", "4"], 60)

    assert code == 0
    assert used["host_memory_mb"] > 80
    assert 0.04 <= used["step_s"] < 1
    assert used["load_s"] >= 0.55
    assert used["save_s"] >= 0.35
    assert used["train_s"] == pytest.approx(30 * used["step_s"], rel=0.01)
    assert sum(used[name] for name in ("load_s", "train_s", "save_s")) == pytest.approx(used["duration_s"], rel=0.05)
    assert 0 < used["cpu_cores"] <= 1.2


@pytest.mark.slow
def test_command_that_goes_on_is_stopped_with_all_it_started(tmp_path: Path) -> None:
    mark = tmp_path / "alive"
    script = f"(while :; do date +%s%N > {mark}; sleep 0.05; done) & wait"

    used, code = profile(["sh", "-c", script], 0.6)

    assert code is None
    assert "cpu_cores" in used
    assert not used.keys() & {"duration_s", "train_s", "save_s"}
    before = mark.read_text()
    time.sleep(0.3)
    assert mark.read_text() == before


def test_command_that_is_not_there_is_named() -> None:
    with pytest.raises(RotaError, match="can't run 'no-such-command': No such file"):
        profile(["no-such-command"], 1)


@pytest.mark.slow
def test_rows_are_collected_for_the_estimator(tmp_path: Path) -> None:
    rota = [
        sys.executable,
        "-c",
        "from rota.cli.main import run; run()",
        "profile",
        "--append",
        str(tmp_path / "r.csv"),
    ]
    for flags in (["--batch=4"], ["--size", "8"]):
        made = subprocess.run([*rota, "-o", "json", "--", "true", *flags], capture_output=True, check=True, text=True)
        assert json.loads(made.stdout)[0]["exit_code"] == 0

    failed = subprocess.run([*rota, "--", "false"], capture_output=True, check=False, text=True)

    assert failed.returncode == 1
    assert "status 1; the row is not kept" in failed.stderr
    with (tmp_path / "r.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["program"], row["batch"], row["size"]) for row in rows] == [("true", "4.0", ""), ("true", "", "8.0")]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("train.py", "print('mine')\n", "a table of runs is a file that ends in .csv"),
        ("notes.csv", "# Notes\n\nof mine\n", "no column to learn"),
        ("none/runs.csv", None, "which can't be written"),
    ],
)
def test_what_is_no_table_of_runs_is_left_alone_and_nothing_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: str | None, said: str
) -> None:
    path, ran = tmp_path / name, tmp_path / "ran"
    if content is not None:
        path.write_text(content)

    assert status(["profile", "--append", str(path), "--", "touch", str(ran)]) == 2

    assert said in capsys.readouterr().err
    assert not ran.exists()
    assert content is None or path.read_text() == content
