"""A journal under Rota's own policy replays to the same steps, with fixed and with elastic jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.cli.main import status
from rota.traces import write_trace
from rota.traces.generators import generate


@pytest.mark.slow
@pytest.mark.parametrize("elastic", [0.0, 1.0], ids=["fixed", "elastic"])
def test_journal_replays(tmp_path: Path, elastic: float, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "jobs.csv"
    write_trace(generate("mixed", jobs=30, seed=3, gpus=8, load=1.5, elastic=elastic), trace)
    run = ["sim", "--trace", str(trace), "--cluster", "gpu=64/8", "--policy", "rota", "--restart-cost", "30"]

    assert status([*run, "--out", str(tmp_path / "out")]) == 0
    assert status(["sim", "--replay", str(tmp_path / "out" / "journal.jsonl")]) == 0
    assert "differ" not in capsys.readouterr().err
