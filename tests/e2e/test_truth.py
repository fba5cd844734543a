"""Forecasts of a real manager are kept and scored; `rota truth` and `rota what-if` show them, also after a kill."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from managers import Manager, eventually

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    """A manager of one device on which four declared jobs ran, three of them after a kill in between."""
    made = Manager(tmp_path_factory.mktemp("truth"), "--emulate", "gpu=1/1", "--policy", "fifo").start()
    try:
        go = made.folder / "go"
        blocks = f"while [ ! -f {go} ]; do sleep 0.05; done"
        ids = [made.submit(blocks, resources={"gpus": 1}, estimate="4s")]
        ids += [made.submit("sleep 0.5", resources={"gpus": 1}, estimate="0.5s") for _ in range(3)]
        eventually(lambda: kept(made)["kept"] >= 4, within_s=90)
        made.kill()
        made.start(within_s=90)
        go.touch()
        for job_id in ids:
            made.wait(job_id, within_s=60)
        eventually(lambda: kept(made)["all"]["scored"] >= 3)
        yield made
    finally:
        made.clean_up()


def kept(manager: Manager) -> Any:
    return manager.client.get("/truth?days=1")


def test_every_submitted_job_that_waited_was_forecast_and_scored(manager: Manager) -> None:
    found = kept(manager)

    assert found["all"]["scored"] >= 3
    assert found["all"]["overdue"] == 0
    assert [row["group"] for row in found["groups"]["policy"]] == ["fifo"]
    assert [row["group"] for row in found["groups"]["cause"]] == ["submission"]
    assert 0.0 <= found["all"]["coverage"] <= 1.0
    assert found["all"]["median_error"] is not None
    assert found["calibration"]["start"]["seen"] == found["all"]["scored"]


def test_command_prints_tables_and_the_simulation_beside_what_happened(manager: Manager) -> None:
    answer = manager.rota("truth", "--days", "1")

    assert answer.returncode == 0, answer.stderr
    assert "in 90% range" in answer.stdout
    assert "policy   fifo" in answer.stdout
    assert "happened" in answer.stdout
    assert "the simulation of the present policy is" in answer.stdout


def test_json_has_every_table(manager: Manager) -> None:
    found = json.loads(manager.rota("truth", "--days", "1", "--of", "start", "-o", "json").stdout)[0]

    assert {"all", "groups", "over_time", "calibration", "simulated"} <= found.keys()
    assert found["simulated"]["real"]["metrics"]["finished"] == 4
    assert abs(found["simulated"]["error"]["metrics"]["avg_jct_s"]) < 0.5


def test_alternative_carries_the_error_bar(manager: Manager) -> None:
    answer = manager.rota("what-if", "--policy", "srtf", "--add-nodes", "gpu=1", "-o", "json")
    found = json.loads(answer.stdout)[0]

    assert [side["policy"] for side in found["alternatives"]] == ["srtf"]
    assert found["alternatives"][0]["metrics"]["avg_jct_s"] < found["now"]["metrics"]["avg_jct_s"]
    assert found["error"]["jobs"] == 4
    table = manager.rota("what-if", "--policy", "srtf").stdout
    assert "alternative" in table
    assert "± " in table


def test_metrics_for_prometheus(manager: Manager) -> None:
    def scraped() -> str:
        with urllib.request.urlopen(f"{manager.client.url}/metrics") as answer:
            return str(answer.read().decode())

    eventually(lambda: 'rota_forecast_coverage_ratio{moment="start"}' in scraped())  # scores are read again at times
    assert 'rota_forecasts_scored{moment="start"}' in scraped()


def test_bad_questions_are_refused_by_name(manager: Manager, tmp_path: Path) -> None:
    assert "unknown policy 'lsa'" in manager.rota("what-if", "--policy", "lsa").stderr
    assert "write it like A100=2" in manager.rota("what-if", "--add-nodes", "gpu").stderr
    assert "there is no node of type 'h100'" in manager.rota("what-if", "--add-nodes", "h100=1").stderr
