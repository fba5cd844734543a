"""`rota sweep` as its users call it: what it says of sweeps that fail or are refused, and what it takes along."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import forked
from managers import Manager, eventually

pytestmark = pytest.mark.slow
Json = dict[str, Any]


def sent(manager: Manager, folder: Path, *words: str) -> forked.Completed:
    path = f"{Path(sys.executable).parent}:{manager.env['PATH']}"
    return forked.run(words, env={**manager.env, "PATH": path}, cwd=folder)


def test_sweep_whose_trials_all_fail_says_so_and_why(shared: Manager, tmp_path: Path) -> None:
    script, file = tmp_path / "train.py", tmp_path / "wrong.yaml"
    script.write_text("import no_such_module\n")
    job: Json = {"run": [sys.executable, str(script)], "resources": {"gpus": 1}}
    file.write_text(json.dumps({"parameters": {"x": [1, 2, 3]}, "sampler": "grid", "job": job}))

    waited = sent(shared, tmp_path, "sweep", "wrong.yaml", "--wait")

    sweep_id = waited.stdout.strip()
    assert waited.returncode == 100, waited.stderr
    assert f"sweep {sweep_id} failed: all 3 trials failed" in waited.stderr
    assert "trial 0: import error (permanent); see `rota logs " in waited.stderr
    found = shared.client.sweep(sweep_id)
    assert (found["state"], {run["state"] for run in found["runs"]}) == ("failed", {"failed"})
    assert {run["why"] for run in found["runs"]} == {"import error (permanent)"}


def test_sweep_whose_trials_report_nothing_has_failed(shared: Manager, tmp_path: Path) -> None:
    file = tmp_path / "silent.yaml"
    job: Json = {"run": "echo hello", "resources": {"gpus": 1}}
    file.write_text(json.dumps({"parameters": {"x": [1, 2]}, "sampler": "grid", "job": job}))

    waited = sent(shared, tmp_path, "sweep", "silent.yaml", "--wait")

    assert waited.returncode == 100, waited.stderr
    assert "failed: all trials are done, and none has reported loss" in waited.stderr


def test_files_of_the_other_kind_are_told_apart(shared: Manager, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("run: echo hi\n")
    (tmp_path / "sweep.yaml").write_text(json.dumps({"parameters": {"x": [1]}, "job": {"run": "true"}, "trials": 1}))

    wrong = [sent(shared, tmp_path, *words) for words in (("sweep", "job.yaml"), ("submit", "sweep.yaml"))]

    assert [done.returncode for done in wrong] == [2, 2]
    assert "job.yaml is a job file; submit it with `rota submit job.yaml`" in wrong[0].stderr
    assert "sweep.yaml is a sweep file; start it with `rota sweep sweep.yaml`" in wrong[1].stderr


def test_sweep_that_can_not_start_says_so(shared: Manager, tmp_path: Path) -> None:
    job: Json = {"run": "true", "resources": {"gpus": 99}}
    (tmp_path / "large.yaml").write_text(json.dumps({"parameters": {"x": [1]}, "sampler": "grid", "job": job}))

    done = sent(shared, tmp_path, "sweep", "large.yaml")

    assert done.returncode == 0
    assert "can't start here: needs 99 devices" in done.stderr
    shared.client.stop_sweep(done.stdout.strip())


def test_follower_of_a_sweep_outlives_the_manager(manager: Manager, tmp_path: Path) -> None:
    file, said = tmp_path / "search.yaml", tmp_path / "said"
    wait = f"until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo loss 0.5"
    job: Json = {"run": wait, "resources": {"gpus": 1}}
    lines = {"log": "loss {value}"}
    file.write_text(json.dumps({"parameters": {"x": [1, 2]}, "sampler": "grid", "objective": lines, "job": job}))
    with said.open("wb") as end:
        follower = forked.popen(["sweep", str(file), "--wait"], env=manager.env, stdout=end, stderr=end)
    eventually(lambda: "2 active" in said.read_text())

    manager.kill()
    eventually(lambda: "it is waited for" in said.read_text())
    manager.start()
    (tmp_path / "go").touch()

    assert follower.wait(timeout=120) == 0, said.read_text()
    assert "finished: all trials are done" in said.read_text()


def test_options_of_a_submission_hold_for_a_sweep_of_a_template(shared: Manager, tmp_path: Path) -> None:
    before = [each["id"] for each in shared.client.sweeps(all=True)]
    ask = ("submit", "--template", "sweep", "-p", "trials=3", "-p", "parallel=2")

    tried = sent(shared, tmp_path, *ask, "--dry-run")
    refused = [sent(shared, tmp_path, *ask, *option) for option in (("--held",), ("--array", "0-3"))]

    assert "3 trials, at most 2 at once; the first:" in tried.stdout
    assert "expected start" in tried.stdout
    assert [done.returncode for done in refused] == [2, 2]
    assert [each["id"] for each in shared.client.sweeps(all=True)] == before, "nothing was started"

    (tmp_path / "train.py").write_text("import rota.sdk; rota.sdk.report(loss=1.0, step=1)\n")
    named = ("--name", "tuned", "--tenant", "vision", "--priority", "-1", "--snapshot", "--env", "A=b")
    sweep_id = sent(shared, tmp_path, *ask, *named).stdout.strip()
    (tmp_path / "train.py").write_text("raise SystemExit(1)\n")
    found = shared.sweep_end(sweep_id)

    assert (found["name"], found["tenant"], found["states"]["failed"]) == ("tuned", "vision", 0), found["runs"]
    job = shared.client.job(found["runs"][-1]["job"])
    assert (job["priority"], job["tenant"], job["spec"]["env"]["A"]) == (-1, "vision", "b")
    assert job["spec"]["snapshot"]["files"] == 1


def test_sweep_runs_the_code_of_its_start(shared: Manager, tmp_path: Path) -> None:
    script, file = tmp_path / "train.py", tmp_path / "search.yaml"
    script.write_text("import rota.sdk, time; time.sleep(0.3); rota.sdk.report(loss=1.0, step=1)\n")
    job: Json = {"run": [sys.executable, "train.py"], "resources": {"gpus": 1}}
    file.write_text(json.dumps({"parameters": {"x": [1, 2, 3]}, "sampler": "grid", "parallel": 1, "job": job}))

    tried = sent(shared, tmp_path, "sweep", "search.yaml", "--dry-run")
    sweep_id = sent(shared, tmp_path, "sweep", "search.yaml", "--snapshot").stdout.strip()
    script.unlink()

    assert tried.stdout.startswith("3 trials, at most 1 at once")
    assert shared.sweep_end(sweep_id)["states"]["completed"] == 3
