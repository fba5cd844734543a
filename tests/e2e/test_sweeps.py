"""Sweeps on a real manager: trials pause and resume as jobs, nothing is lost by kills, and rights are kept."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from managers import Manager, eventually
from rota.sdk.client import Client, Refused

pytestmark = pytest.mark.slow
Json = dict[str, Any]
TRAIN = """
import fcntl, os, sys, time
import rota.sdk
trial, folder = os.environ["ROTA_TRIAL"], sys.argv[1]
lock = open(f"{folder}/lock-{trial}", "w")
fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails if the trial runs twice at a time
x = rota.sdk.params()["x"]
run = rota.sdk.steps(lambda first: range(first, int(sys.argv[2])), steps=int(sys.argv[2]))
for step in run:
    time.sleep(float(sys.argv[3]))
    run.report(loss=x + 1 / (step + 1))
    with open(f"{folder}/steps", "a") as steps:
        steps.write(f"{trial} {step}\\n")
    if run.should_save:
        run.saved()
"""


def sweep(manager: Manager, *, steps: int = 16, sleep_s: float = 0.02, **fields: Any) -> Json:
    """A sweep file of a training that writes down every step that it does."""
    script = manager.folder / "trial.py"
    script.write_text(TRAIN)
    folder = Path(manager.folder) / f"steps-{time.monotonic_ns()}"
    folder.mkdir()
    command = [sys.executable, str(script), str(folder), str(steps), str(sleep_s)]
    values: Json = {
        "name": "search",
        "parameters": {"x": {"uniform": [0.0, 1.0]}},
        "trials": 12,
        "parallel": 8,
        "early_stop": {"rule": "asha", "min_steps": 1, "max_steps": steps, "factor": 4},
        "job": {"run": command, "resources": {"gpus": 1}, "checkpoint": {"grace": "10s"}},
    }
    return {**values, **fields}


def steps_done(values: Json) -> Counter[str]:
    """How often each step of each trial was done."""
    return Counter((Path(values["job"]["run"][2]) / "steps").read_text().splitlines())


def begun_in(log: Path) -> int:
    """How many trials have done a step."""
    return len({line.split()[0] for line in log.read_text().splitlines()}) if log.exists() else 0


def jobs_of(manager: Manager) -> list[str]:
    return [job["name"] for job in manager.client.jobs(all=True) if job["name"].startswith("search-")]


def test_trials_pause_and_resume_until_the_best_has_run_to_its_end(shared: Manager) -> None:
    values = sweep(shared, name="paused")

    started = shared.client.start_sweep(values)
    found = shared.sweep_end(started["id"])

    best = min(found["runs"], key=lambda run: run["params"]["x"])
    assert (found["state"], found["why"], found["begun"]) == ("finished", "all trials are done", 12)
    assert best["state"] == "completed"
    assert found["best"]["trial"] == best["trial"]
    assert found["best"]["value"] == pytest.approx(best["params"]["x"] + 1 / 16)
    assert set(steps_done(values).values()) == {1}, "a resumed trial goes on where it was"
    attempts = [shared.client.job(run["job"])["attempt"] for run in found["runs"]]
    assert max(attempts) > 1, "of those that pause at a rung, some go on when others have come to it"
    assert sum(run["state"] == "stopped" for run in found["runs"]) >= 8
    assert all(shared.state(run["job"]) == "cancelled" for run in found["runs"] if run["state"] == "stopped")
    assert 0 < found["device_s"] < 12 * 16
    assert found["importance"]["by_parameter"]["x"] > 0.3


def test_kills_lose_no_trial_and_begin_none_twice(manager: Manager) -> None:
    values = sweep(manager, steps=16, sleep_s=0.08)
    sweep_id = manager.client.start_sweep(values)["id"]

    for begun in (8, 9, 11):
        eventually(lambda least=begun: manager.client.sweep(sweep_id)["begun"] >= least)  # type: ignore[misc]
        manager.kill()
        manager.start()
    found = manager.sweep_end(sweep_id)

    names = jobs_of(manager)
    assert sorted(names) == sorted(f"search-{number}" for number in range(12))
    assert [run["trial"] for run in found["runs"]] == list(range(12))
    assert set(steps_done(values).values()) == {1}
    assert Counter(run["state"] for run in found["runs"])["failed"] == 0
    assert min(found["runs"], key=lambda run: run["params"]["x"])["state"] == "completed"


def test_trials_save_and_leave_at_their_rung_while_no_manager_runs(manager: Manager) -> None:
    rule = {"rule": "asha", "min_steps": 40, "max_steps": 400, "factor": 4}
    values = sweep(manager, trials=8, steps=400, early_stop=rule)
    sweep_id = manager.client.start_sweep(values)["id"]
    log = Path(values["job"]["run"][2]) / "steps"

    eventually(lambda: begun_in(log) == 8)
    manager.kill()
    eventually(lambda: not manager.task_processes())

    last = {trial: int(step) for trial, step in (line.split() for line in log.read_text().splitlines())}
    assert set(last.values()) <= {39, 159}, "each has left right at a rung"
    manager.start()
    found = manager.sweep_end(sweep_id)
    assert set(steps_done(values).values()) == {1}
    assert Counter(run["state"] for run in found["runs"])["failed"] == 0
    assert min(found["runs"], key=lambda run: run["params"]["x"])["state"] == "completed"
    first = [run["job"] for run in found["runs"] if run["state"] == "stopped" and run["step"] == 40]
    assert first
    assert {manager.client.job(job)["attempt"] for job in first} == {1}, "none started again before it was judged"


PRINTING = """
trap 'echo "$step" > saved-$ROTA_TRIAL; exit 0' TERM
step=$(cat saved-$ROTA_TRIAL 2>/dev/null || echo 0)
while [ "$step" -lt 400 ]; do
  step=$((step + 1)); echo "epoch $step: loss $ROTA_PARAM_X"; echo "$ROTA_TRIAL $step" >> steps; sleep 0.02
done
"""


def test_trials_that_only_print_leave_too(manager: Manager, tmp_path: Path) -> None:
    rule = {"rule": "asha", "min_steps": 40, "max_steps": 400, "factor": 4}
    folder = tmp_path / "prints"
    folder.mkdir()
    job = {"run": PRINTING, "workdir": str(folder), "resources": {"gpus": 1}, "checkpoint": {"grace": "60s"}}
    lines = {"log": "epoch {step}: loss {value}"}
    values = sweep(manager, trials=8, early_stop=rule, objective=lines, job=job)
    sweep_id = manager.client.start_sweep(values)["id"]

    eventually(lambda: begun_in(folder / "steps") == 8)
    manager.kill()
    eventually(lambda: not manager.task_processes())
    manager.start()
    found = manager.sweep_end(sweep_id)

    best = min(found["runs"], key=lambda run: run["params"]["x"])
    assert (best["state"], best["step"]) == ("completed", 400)
    assert Counter(run["state"] for run in found["runs"])["failed"] == 0
    assert set(Counter((folder / "steps").read_text().splitlines()).values()) == {1}


def test_trial_that_a_user_holds_stays_held_over_a_restart(manager: Manager) -> None:
    values = sweep(manager, trials=3, parallel=3, steps=5000, early_stop="none")
    values["job"]["resources"] = {"gpus": 4}
    sweep_id = manager.client.start_sweep(values)["id"]
    eventually(lambda: sorted(job["state"] for job in manager.client.jobs()) == ["running", "running", "waiting"])
    held = next(job["id"] for job in manager.client.jobs() if job["state"] == "waiting")
    manager.client.act(held, "hold")

    manager.kill()
    manager.start()

    running = next(job["id"] for job in manager.client.jobs() if job["id"] != held)
    manager.client.act(running, "cancel")
    manager.wait(running, "cancelled")
    eventually(lambda: manager.client.sweep(sweep_id)["states"]["cancelled"] == 1)
    assert manager.state(held) == "held"
    manager.client.act(held, "release")
    manager.wait(held, "running")


def test_metric_of_output_lines_with_another_rule(shared: Manager) -> None:
    lines = "for i in 1 2 3; do echo step $i gain $ROTA_PARAM_X; sleep 0.05; done"
    values = {
        "parameters": {"x": [0.1, 0.5, 0.9]},
        "sampler": "grid",
        "objective": {"metric": "gain", "goal": "maximize", "log": "step {step} gain {value}"},
        "early_stop": "median",
        "job": {"run": lines},
    }

    found = shared.sweep_end(shared.client.start_sweep(values)["id"])

    assert found["best"]["value"] == 0.9
    assert [[step for step, _ in run["curve"]] for run in found["runs"]] == [[1, 2, 3]] * 3
    assert [run["state"] for run in found["runs"]] == ["completed"] * 3


def test_stop_cancels_what_is_left(shared: Manager) -> None:
    started = shared.client.start_sweep(sweep(shared, steps=2000, name="endless"))

    said = shared.rota("sweep", "stop", started["id"])

    assert said.returncode == 0, said.stderr
    found = shared.sweep_end(started["id"])
    assert (found["state"], found["why"]) == ("stopped", "stopped by local")
    eventually(lambda: all(shared.state(run["job"]) == "cancelled" for run in found["runs"]))
    with pytest.raises(Refused, match="has ended already"):
        shared.client.stop_sweep(started["id"])
    assert next(entry["thing"] for entry in shared.client.audit(100, what="stop-sweep")) == started["id"]
    listed = shared.rota("sweep", "list", "--all")
    assert "endless" in listed.stdout
    shown = shared.rota("sweep", "show", started["id"])
    assert "cancelled" in shown.stdout


def test_refused_sweep_leaves_nothing(shared: Manager) -> None:
    before = len(shared.client.sweeps(all=True)), len(list(shared.client.jobs(all=True)))
    values = sweep(shared)

    with pytest.raises(Refused, match="names the type 'H100' of 0 devices"):
        shared.client.start_sweep({**values, "job": {"run": "x", "resources": {"gpu": "H100"}}})
    with pytest.raises(Refused, match="sweep: unknown field trails; did you mean 'trials'"):
        shared.client.start_sweep({**values, "trails": 3})

    assert (len(shared.client.sweeps(all=True)), len(list(shared.client.jobs(all=True)))) == before


GROWING = """
import os, sys, time
import rota.sdk
x = rota.sdk.params()["x"]
run = rota.sdk.steps(lambda first: range(first, 32), steps=32)
for step in run:
    if run.rank == 0:
        with open(sys.argv[1], "a") as steps:
            steps.write(f"{os.environ['ROTA_TRIAL']} {step} {run.tasks}\\n")
    time.sleep(0.1)
    run.report(loss=x + 1 / (step + 1))
    if run.should_save:
        run.saved()
"""


@pytest.fixture
def elastic(tmp_path: Path) -> Iterator[Manager]:
    """A manager of eight devices under a policy that resizes."""
    made = Manager(tmp_path, "--emulate", "gpu=8/8", "--policy", "afs-p").start()
    yield made
    made.clean_up()


def test_promoted_trials_grow_onto_the_devices_of_those_that_ended(elastic: Manager) -> None:
    script, log = elastic.folder / "grow.py", elastic.folder / "steps"
    script.write_text(GROWING)
    job = {
        "run": [sys.executable, str(script), str(log)],
        "elastic": {"min": 1, "max": 4},
        "resources": {"gpus": 1},
        "checkpoint": {"grace": "10s"},
    }
    rule = {"rule": "asha", "min_steps": 4, "max_steps": 32, "factor": 4}

    found = elastic.sweep_end(elastic.client.start_sweep(sweep(elastic, trials=8, early_stop=rule, job=job))["id"])

    best = min(found["runs"], key=lambda run: run["params"]["x"])
    assert best["state"] == "completed"
    lines = [line.split() for line in log.read_text().splitlines()]
    steps = [(int(step), int(tasks)) for trial, step, tasks in lines if int(trial) == best["trial"]]
    assert [step for step, _ in steps] == list(range(32)), "no step is lost or done again when it grows"
    assert steps[-1][1] == 4, "at the end it has all the tasks that it may have"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Manager]:
    """A manager that asks for tokens."""
    made = Manager(tmp_path, "--emulate", "gpu=8/4", "--require-token").start_guarded()
    yield made
    made.clean_up()


def test_sweeps_are_within_the_rights_of_tenants(guarded: Manager) -> None:
    def user(name: str, role: str, tenant: str) -> Client:
        token = guarded.client.post("/tokens", {"name": name, "role": role, "tenants": [tenant]})["token"]
        return Client(guarded.client.url, token)

    ada, bob, eve, dan = (
        user("ada", "member", "nlp"),
        user("bob", "member", "nlp"),
        user("eve", "member", "vision"),
        user("dan", "viewer", "nlp"),
    )
    values = sweep(guarded, steps=2000)
    secret = {"env": {"KEY": {"secret": "hidden"}, "PLAIN": "seen"}}
    started = ada.start_sweep({**values, "job": {**values["job"], **secret}})

    assert (started["owner"], started["tenant"]) == ("ada", "nlp")
    assert [each["id"] for each in bob.sweeps()] == [started["id"]]
    assert eve.sweeps() == []
    with pytest.raises(Refused, match="there is no sweep"):
        eve.sweep(started["id"])
    with pytest.raises(Refused, match="not valid for tenant 'nlp'"):
        eve.start_sweep({**values, "tenant": "nlp"})
    with pytest.raises(Refused, match="viewer"):
        dan.start_sweep(values)
    with pytest.raises(Refused, match="belongs to 'ada'"):
        bob.stop_sweep(started["id"])
    assert bob.sweep(started["id"])["file"]["job"]["env"] == {"KEY": "***", "PLAIN": "***"}
    assert ada.sweep(started["id"])["file"]["job"]["env"] == {"KEY": {"secret": "***"}, "PLAIN": "seen"}
    assert not any(b"hidden" in path.read_bytes() for path in guarded.home.glob("rota.db*"))
    assert ada.stop_sweep(started["id"])["state"] == "stopped"
    assert [entry["who"] for entry in guarded.client.audit(100, what="sweep")] == ["ada"]
