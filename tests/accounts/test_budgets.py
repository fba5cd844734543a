"""Budgets stop what they should and nothing else, over kills too; on a real manager."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from accounts.test_usage import client_of
from managers import TRAIN, Manager, eventually
from rota.sdk.client import Refused

pytestmark = pytest.mark.slow
Json = dict[str, Any]
UNIT = 1 / 3600
"""GPU hours in a GPU second."""


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(tmp_path, "--emulate", "gpu=8/8").start()
    yield made
    made.clean_up()


def budget_of(manager: Manager, name: str) -> Json:
    return next(each for each in manager.client.budgets() if each["name"] == name)


def sleeper(manager: Manager, tenant: str = "nlp", gpus: int = 1, **fields: Any) -> str:
    return manager.submit("sleep 600", tenant=tenant, resources={"gpus": gpus}, **fields)


def test_a_budget_stops_running_jobs_holds_others_and_lets_them_go_when_it_is_raised(manager: Manager) -> None:
    manager.client.put_budget("month", {"tenant": "nlp", "gpu_hours": 4 * UNIT, "warn": [0.5]})
    runs, other = sleeper(manager, gpus=2), sleeper(manager, "vision", gpus=2)
    waits = sleeper(manager, gpus=8)
    manager.wait(runs, "running")
    manager.wait(other, "running")

    held = [manager.wait(job_id, "held", within_s=90) for job_id in (runs, waits)]
    late = sleeper(manager)

    for job in (*held, manager.client.job(late)):
        assert job["state"] == "held"
        assert "budget month of tenant nlp" in job["reason"]["sentence"]
        assert "4" not in job["reason"]["code"]
    assert manager.state(other) == "running"
    assert manager.state(manager.submit("true", tenant="vision")) != "held"
    with pytest.raises(Refused, match=r"can't be released: budget month of tenant nlp: .* GPU hours used this month"):
        manager.client.act(late, "release")
    found = budget_of(manager, "month")
    assert found["reached"]
    assert 4.0 <= found["used"] * 3600 < 60.0  # passed by how long a stop takes on a busy machine
    audit = [entry["what"] for entry in manager.client.audit(30)]
    assert "budget-warning" in audit or "budget-reached" in audit

    manager.kill()
    manager.start()
    assert {manager.state(job_id) for job_id in (runs, waits, late)} == {"held"}

    manager.client.put_budget("month", {"tenant": "nlp", "gpu_hours": 4000 * UNIT})
    manager.wait(runs, "running")
    manager.wait(late, "running")
    assert manager.client.job(late)["message"] == ""
    assert manager.state(other) == "running"


def test_hold_lets_running_jobs_go_on_and_a_users_own_hold_stays(manager: Manager) -> None:
    manager.client.put_budget("soft", {"tenant": "nlp", "project": "lm", "gpu_hours": UNIT, "at_limit": "hold"})
    lm: Json = {"labels": {"project": "lm"}}
    runs, elsewhere = sleeper(manager, **lm), sleeper(manager)
    mine = sleeper(manager, gpus=8, **lm)
    manager.client.act(mine, "hold")
    eventually(lambda: budget_of(manager, "soft")["reached"])

    late = sleeper(manager, **lm)

    assert manager.state(late) == "held"
    assert (manager.state(runs), manager.state(elsewhere)) == ("running", "running")
    manager.client.remove_budget("soft")
    manager.wait(late, "running")
    assert manager.state(mine) == "held"
    assert manager.state(runs) == "running"


def test_a_stopped_training_goes_on_from_its_checkpoint(manager: Manager) -> None:
    script = manager.folder / "train.py"
    script.write_text(TRAIN)
    asked = {"tenant": "nlp", "resources": {"gpus": 1}, "checkpoint": {"grace": "20s"}}
    job_id = manager.client.submit({"run": [sys.executable, str(script)], **asked})[0]
    manager.wait(job_id, "running")
    eventually(lambda: "from False" in manager.said(job_id))
    manager.client.put_budget("tiny", {"tenant": "nlp", "gpu_hours": 0})
    manager.wait(job_id, "held")

    manager.client.remove_budget("tiny")

    manager.wait(job_id, "running")
    eventually(lambda: "from True" in manager.said(job_id))


def test_reason_of_a_held_job_follows_the_budgets(manager: Manager) -> None:
    manager.client.put_budget("first", {"tenant": "nlp", "gpu_hours": 0})
    job_id = sleeper(manager)
    manager.wait(job_id, "held")

    manager.client.put_budget("second", {"tenant": "nlp", "cost": 0, "period": "total"})
    manager.client.put_budget("first", {"tenant": "nlp", "gpu_hours": 1})
    eventually(lambda: "budget second" in manager.client.job(job_id)["reason"]["sentence"])
    manager.client.put_budget("second", {"tenant": "nlp", "cost": 0, "period": "day"})
    eventually(lambda: "used this day" in manager.client.job(job_id)["reason"]["sentence"])

    manager.kill()
    manager.start()
    assert "used this day" in manager.client.job(job_id)["reason"]["sentence"]
    manager.client.remove_budget("second")
    manager.wait(job_id, "running")


REPORT = """
import os, sys, time
import rota.sdk
run = rota.sdk.steps(lambda first: range(first, 40), steps=40)
for step in run:
    time.sleep(0.1)
    run.report(loss=float(os.environ["ROTA_TRIAL"]))
    with open(sys.argv[1], "a") as steps:
        steps.write(f"{os.environ['ROTA_TRIAL']} {step}\\n")
    if run.should_save:
        run.saved()
"""


def test_budget_stops_a_sweep_and_lets_exactly_its_active_trials_go_on(manager: Manager) -> None:
    script, steps = manager.folder / "trial.py", manager.folder / "steps"
    script.write_text(REPORT)
    manager.client.put_budget("sweeps", {"tenant": "nlp", "gpu_hours": 5 * UNIT})
    values = {
        "tenant": "nlp",
        "parameters": {"x": {"uniform": [0.0, 1.0]}},
        "trials": 8,
        "parallel": 4,
        "early_stop": {"rule": "asha", "min_steps": 2, "max_steps": 40, "factor": 4},
        "job": {
            "run": [sys.executable, str(script), str(steps)],
            "resources": {"gpus": 1},
            "checkpoint": {"grace": "20s"},
        },
    }
    sweep_id = manager.client.start_sweep(values)["id"]

    def runs(state: str) -> list[Json]:
        return [run for run in manager.client.sweep(sweep_id)["runs"] if run["state"] == state]

    for _ in range(2):  # a limit in the middle of the search, and another
        eventually(lambda: budget_of(manager, "sweeps")["reached"])
        eventually(lambda: all(job["state"] == "held" for job in manager.client.jobs(tenant="nlp")))
        if paused := runs("paused"):
            with pytest.raises(Refused, match=f"is a paused trial of sweep {sweep_id}|can't be released: budget"):
                manager.client.act(paused[0]["job"], "release")
        more = budget_of(manager, "sweeps")["used"] + 3 * UNIT
        manager.client.put_budget("sweeps", {"tenant": "nlp", "gpu_hours": more})
    manager.client.remove_budget("sweeps")
    eventually(lambda: manager.client.sweep(sweep_id)["state"] == "finished")

    found = manager.client.sweep(sweep_id)
    whole = [run["trial"] for run in found["runs"] if run["state"] == "completed"]
    assert whole == [0], "no trial that was paused ran on to its end"
    done = [line for line in steps.read_text().splitlines() if not line.startswith("0 ")]
    assert len(done) < 7 * 30
    stopped = next(run for run in found["runs"] if run["state"] == "stopped")
    assert manager.client.job(stopped["job"])["message"].startswith(f"sweep {sweep_id} has stopped it: ")


def test_rights_and_refusals(tmp_path: Path) -> None:
    manager = Manager(tmp_path, "--emulate", "gpu=1/1", "--require-token").start_guarded()
    try:
        ada = client_of(manager, "ada", "maintainer", "nlp")
        manager.client.put_budget("theirs", {"tenant": "vision", "gpu_hours": 5})
        manager.client.put_budget("ours", {"tenant": "nlp", "user": "ada", "gpu_hours": 5, "period": "total"})

        assert [each["name"] for each in ada.budgets()] == ["ours"]
        for attempt in (
            lambda: ada.put_budget("ours", {"tenant": "nlp", "gpu_hours": 500}),
            lambda: ada.remove_budget("ours"),
        ):
            with pytest.raises(Refused, match="needs the role admin"):
                attempt()
        for wrong, message in (
            ({"tenant": "nlp"}, "give either gpu_hours or cost"),
            ({"tenant": "nlp", "gpu_hours": 1, "cost": 1}, "give either gpu_hours or cost"),
            ({"tenant": "nobody", "gpu_hours": 1}, "no tenant 'nobody'"),
            ({"tenant": "nlp", "gpu_hours": -1}, "gpu_hours"),
            ({"tenant": "nlp", "gpu_hours": 1, "period": "week"}, "period"),
        ):
            with pytest.raises(Refused, match=message):
                manager.client.put_budget("ours", wrong)
        with pytest.raises(Refused, match="there is no budget 'none'"):
            manager.client.remove_budget("none")
        assert manager.client.budgets()[0]["gpu_hours"] == 5
    finally:
        manager.clean_up()


def test_random_jobs_are_stopped_exactly_where_a_budget_says(manager: Manager) -> None:
    """Of many jobs of several tenants, users' projects and sizes, those of used-up budgets are held, and no others."""
    rng = random.Random(8)
    shut = {("nlp", "a"), ("vision", None)}
    for number, (tenant, project) in enumerate(sorted(shut, key=str)):
        given = {} if project is None else {"project": project}
        manager.client.put_budget(f"b{number}", {"tenant": tenant, "gpu_hours": 0, **given})
    manager.client.put_budget("roomy", {"tenant": "robotics", "gpu_hours": 1e6})
    manager.client.put_budget("words", {"tenant": "green", "gpu_hours": 0, "at_limit": "warn"})
    files = [
        {
            "run": "true",
            "workdir": "/",
            "tenant": rng.choice(("nlp", "vision", "robotics", "green")),
            "resources": {"gpus": rng.choice((0, 0.5, 1, 2))},
            **({"labels": {"project": project}} if (project := rng.choice(("a", "b", None))) else {}),
        }
        for _ in range(60)
    ]

    ids = manager.client.submit(files)

    def is_shut(file: Json) -> bool:
        project = (file.get("labels") or {}).get("project")
        return bool(file["resources"]["gpus"]) and ((file["tenant"], project) in shut or (file["tenant"], None) in shut)

    wanted = {job_id: "held" if is_shut(file) else "succeeded" for job_id, file in zip(ids, files, strict=True)}
    assert 10 < sum(state == "held" for state in wanted.values()) < 50
    eventually(lambda: {job_id: manager.state(job_id) for job_id in ids} == wanted, within_s=120)


def test_budgets_command(manager: Manager) -> None:
    made = manager.rota(
        "budgets", "set", "thesis", "--tenant", "nlp", "--user", "ada", "--cost", "8", "--period", "total"
    )
    changed = manager.rota("budgets", "set", "thesis", "--gpu-hours", "20", "--at-limit", "hold")
    listed = manager.rota("budgets")
    nobody = manager.rota("budgets", "set", "other", "--gpu-hours", "20")
    removed = manager.rota("budgets", "remove", "thesis")

    assert made.stdout.strip() == "budget thesis of tenant nlp: 8 of cost, 0.00 used", made.stderr
    assert changed.stdout.strip() == "budget thesis of tenant nlp: 20 GPU hours, 0.00 used", changed.stderr
    assert listed.stdout.splitlines()[1].split()[:3] == ["thesis", "nlp", "ada"]
    assert nobody.stderr.strip() == "error: budget 'other' is new; say whose usage counts: --tenant NAME"
    assert (removed.returncode, manager.client.budgets()) == (0, [])
