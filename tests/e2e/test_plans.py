"""Jobs that name a model: the manager hands them the plan for their devices, and refuses what fits nowhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from managers import Manager, eventually
from rota.planner.parallel.deployment import planned_speed
from rota.sdk.client import Refused

pytestmark = pytest.mark.slow
POLICY = Path(__file__).with_name("stretch.py")


@pytest.fixture
def planned(tmp_path: Path) -> Iterator[Manager]:
    """A manager of four emulated A100s under a policy that resizes."""
    made = Manager(tmp_path, "--emulate", "a100=4/4", "--policy", f"{POLICY}:stretch").start()
    yield made
    made.clean_up()


def plan_of(manager: Manager, job_id: str, attempt: int) -> dict[str, object]:
    """The plan that an attempt printed; empty if it has not yet."""
    if manager.client.job(job_id)["attempt"] < attempt:
        return {}
    lines = b"".join(manager.client.logs(job_id, attempt=attempt)).decode().splitlines()
    return json.loads(lines[0]) if lines else {}


def degrees(gpus: int) -> tuple[int, int, int]:
    plan = planned_speed("gpt-7.5b", "a100", gpus).plan
    assert plan is not None
    return plan.tensor, plan.pipeline, plan.data


def test_job_gets_the_plan_for_its_devices_at_every_size(planned: Manager) -> None:
    job_id = planned.submit(
        'trap "exit 0" TERM; echo "$ROTA_PLAN"; sleep 300 & wait',
        model="gpt-7.5b",
        elastic={"min": 1, "max": 4},
        resources={"gpus": 1},
        checkpoint={"grace": "5s"},
    )
    first = eventually(lambda: plan_of(planned, job_id, 1))
    assert (first["tensor"], first["pipeline"], first["data"]) == degrees(4)
    planned.submit("sleep 60", workers=2, resources={"gpus": 1})
    second = eventually(lambda: plan_of(planned, job_id, 2))
    assert (second["tensor"], second["pipeline"], second["data"]) == degrees(2)


def test_own_plan_and_torchrun_arguments(planned: Manager, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"stages": [3, 5]}')
    (tmp_path / "job.json").write_text(json.dumps({"run": 'echo "$ROTA_PLAN" $ROTA_TORCHRUN', "plan": "plan.json"}))
    made = planned.rota("submit", str(tmp_path / "job.json"))
    job_id = made.stdout.strip()
    assert planned.wait(job_id)["state"] == "succeeded"
    assert planned.said(job_id).startswith(
        '{"stages": [3, 5]} --nnodes=1 --node-rank=0 --nproc-per-node=1 --master-addr='
    )


def test_model_that_fits_nowhere_is_refused(planned: Manager) -> None:
    with pytest.raises(Refused, match="model gpt-39b does not fit: 4 x a100: no plan fits"):
        planned.client.submit({"run": "true", "model": "gpt-39b", "resources": {"gpus": 4}})
