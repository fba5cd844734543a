"""The SDK inside real jobs, and outside of any."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from managers import Manager, eventually
from rota import sdk

TRAIN = """
import pathlib, sys, time
import rota.sdk
run = rota.sdk.steps(range(int(sys.argv[1])))
print("from", run.step, flush=True)
for batch in run:
    time.sleep(0.02)
    if pathlib.Path(__file__).with_name("enough").exists():
        break
    run.report(loss=1.0 / (run.step + 1))
    if run.should_save:
        run.saved()
print("stopped" if run.stop_asked else "finished", flush=True)
"""


@pytest.fixture
def train(manager: Manager) -> Path:
    script = manager.folder / "train.py"
    script.write_text(TRAIN)
    return script


@pytest.mark.slow
def test_loop_saves_when_asked_and_goes_on_from_there(manager: Manager, train: Path) -> None:
    job = {"run": [sys.executable, str(train), "1000000"], "priority": -1, "resources": {"gpus": 4}, "checkpoint": {}}
    low = manager.client.submit(job)[0]
    eventually(lambda: (manager.client.job(low)["progress"] or {}).get("step", 0) > 10)
    high = manager.submit("true", priority=1, workers=2, resources={"gpus": 4})
    manager.wait(high)

    first = b"".join(manager.client.logs(low, attempt=1)).decode()
    assert first == "from 0\nstopped\n"
    train.with_name("enough").touch()
    done = manager.wait(low)
    said = manager.said(low).split()
    assert int(said[1]) > 10
    assert done["state"] == "succeeded"
    assert manager.client.job(low)["progress"]["step"] > 10


def test_outside_of_a_job_it_only_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROTA_RUN_DIR", raising=False)
    run = sdk.steps("abc")

    assert (list(run), run.step, run.should_save) == (["a", "b", "c"], 3, False)


def test_a_step_costs_less_than_a_hundredth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a step of one millisecond, the shortest that anyone trains with."""
    monkeypatch.setenv("ROTA_RUN_DIR", str(tmp_path))
    count, took_s = 5000, []
    for _ in range(5):
        begun_s = time.process_time()
        for _ in (run := sdk.steps(range(count))):
            run.report(loss=1.0)
            if run.should_save:
                run.saved()
        took_s.append(time.process_time() - begun_s)

    assert min(took_s) / count < 0.01 * 1e-3
    assert sorted(os.listdir(tmp_path)) == ["curve-0.json", "progress-0.json"]


@pytest.mark.slow
def test_function_as_a_job(manager: Manager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", manager.env["XDG_DATA_HOME"])
    monkeypatch.setenv("XDG_STATE_HOME", manager.env["XDG_STATE_HOME"])

    def fail() -> None:
        raise ValueError("as it should")

    assert sdk.submit(lambda number: 2 * number, 21, client=manager.client).result(30) == 42
    with pytest.raises(ValueError, match="as it should"):
        sdk.submit(fail, client=manager.client).result(30)


@pytest.mark.slow
def test_function_that_ran_gets_a_fitting_request_and_one_that_ran_out_gets_more(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", manager.env["XDG_DATA_HOME"])

    def hungry() -> int:
        block = bytearray(200 << 20)
        time.sleep(1.5)
        return len(block)

    call = sdk.submit(hungry, memory=120 << 20, client=manager.client)
    assert call.result(60) == 200 << 20
    assert manager.client.job(call.id)["spec"]["resources"]["memory"] == 240 << 20
    again = sdk.submit(hungry, client=manager.client)
    asked = manager.client.job(again.id)["spec"]["resources"]["memory"]
    again.cancel()
    assert 220 << 20 < asked < 400 << 20
