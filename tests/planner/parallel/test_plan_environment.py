"""The plan that tasks of a job get in their environment, at every size."""

from __future__ import annotations

import json

import pytest

from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.core.model.job import Elastic, Job, JobId, Role
from rota.core.model.ranks import TaskRank
from rota.files.job import job_file, job_of, launch_of
from rota.live.intake.planned_models import planned_speeds, within_memory
from rota.planner.parallel.deployment import planned_speed
from rota.planner.parallel.plan_environment import plan_variables

CLUSTER = Cluster.uniform(("a100", 16, 8), ("v100", 8, 8))


def tasks(count: int, gpus: int = 8, first: int = 0) -> list[TaskRank]:
    """One task on each node."""
    return [
        TaskRank(
            rank=at, role=0, role_rank=at, node=CLUSTER.nodes[first + at], devices=tuple(range(gpus)), local_rank=0
        )
        for at in range(count)
    ]


def variables(job: Job, ranks: list[TaskRank], given: str | None = None, task: int = 0) -> dict[str, str]:
    return plan_variables(job, given, ranks, ranks[task], address="127.0.0.1", port=29500)


def job(model: str | None = "gpt-7.5b", count: int = 1, gpus: int = 8, elastic: tuple[int, int] | None = None) -> Job:
    bounds = None if elastic is None else Elastic(min_tasks=elastic[0], max_tasks=elastic[1])
    return Job(id=JobId("1"), roles=(Role(count=count, device_milli=1000 * gpus),), model=model, elastic=bounds)


@pytest.mark.parametrize("nodes", [1, 2])
def test_plan_is_the_best_on_the_devices_at_this_start(nodes: int) -> None:
    found = variables(job(), tasks(nodes), task=nodes - 1)
    plan = json.loads(found["ROTA_PLAN"])
    best = planned_speed("gpt-7.5b", "a100", 8 * nodes, nodes).plan
    assert best is not None
    assert (plan["tensor"], plan["pipeline"], plan["data"]) == (best.tensor, best.pipeline, best.data)
    assert plan["model"] == "gpt-7.5b"
    assert f"--micro-batch-size={best.micro_batch}" in found["ROTA_PLAN_ARGUMENTS"].split()
    assert found["ROTA_TORCHRUN"].split() == [
        f"--nnodes={nodes}",
        f"--node-rank={nodes - 1}",
        "--nproc-per-node=8",
        "--master-addr=127.0.0.1",
        "--master-port=29500",
    ]


def test_own_plan_is_handed_over_unchanged() -> None:
    file = job_file({"run": "true", "model": "gpt-7.5b", "plan": {"tensor": 3, "stages": [1, 2]}})
    launch = launch_of(file, JobId("1"))
    assert json.loads(variables(job(), tasks(1), launch.plan)["ROTA_PLAN"]) == {"tensor": 3, "stages": [1, 2]}
    assert job_of(file, JobId("1")).model == "gpt-7.5b"


@pytest.mark.slow
def test_jobs_without_a_planned_model_get_nothing() -> None:
    assert variables(job(None), tasks(1)) == {}
    assert variables(job("resnet50"), tasks(1)) == {}
    assert "ROTA_PLAN" not in variables(job("gpt-39b"), tasks(1, first=2)), "it does not fit on 8 v100s"


def test_plan_that_is_a_text_is_refused() -> None:
    with pytest.raises(RotaError, match=r"not a plan: 'plan\.json'"):
        job_file({"run": "true", "plan": "plan.json"})


@pytest.mark.slow
def test_submission_is_refused_where_the_model_fits_on_nothing_it_may_have() -> None:
    with pytest.raises(RotaError, match="job: model gpt-39b does not fit: 4 x a100: no plan fits"):
        within_memory(job("gpt-39b", 1, 4), CLUSTER)
    with pytest.raises(RotaError, match="unknown 'tenser'"):
        within_memory(job("gpt-39b:tenser=8"), CLUSTER)
    assert within_memory(job("gpt-39b", 2), CLUSTER) == job("gpt-39b", 2)
    assert within_memory(job("resnet50"), CLUSTER) == job("resnet50")


@pytest.mark.slow
def test_submission_gets_the_sizes_that_fit() -> None:
    sized = within_memory(job("gpt-18b", 1, 1, (1, 16)), CLUSTER)
    assert sized.elastic == Elastic(min_tasks=4, max_tasks=16)
    assert sized.roles[0].count == 4


def test_cluster_of_unknown_types_refuses_nothing() -> None:
    assert within_memory(job("gpt-39b", 1, 1), Cluster.uniform(("gpu", 4, 4))) == job("gpt-39b", 1, 1)


def test_policies_of_a_manager_see_speeds_relative_to_the_request() -> None:
    speed, elastic = planned_speeds(CLUSTER), job("gpt-7.5b", 4, 1, (1, 16))
    asked, more = (planned_speed("gpt-7.5b", "a100", gpus).steps_per_s for gpus in (4, 8))
    assert speed.at_size(elastic, CLUSTER.nodes[0].device_type, 4) == 1.0
    assert speed.at_size(elastic, CLUSTER.nodes[0].device_type, 8) == pytest.approx(more / asked)
    assert speed.at_size(elastic, CLUSTER.nodes[2].device_type, 8) == 0.0, "it does not fit on 8 v100s"
    assert speed.at_size(job(None, 4, 1, (1, 16)), CLUSTER.nodes[0].device_type, 8) == 2.0
