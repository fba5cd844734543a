"""Simulations in which jobs name a model to plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.core.model.job import DeviceType, Elastic, Job, JobId, Role
from rota.drivers.simulator.load import LoadedScenario, load
from rota.drivers.simulator.study import simulate
from rota.perf.profiles.profile_files import read_profiles, write_profiles
from rota.planner.parallel.deployment import planned_speed
from rota.scenario import Scenario
from rota.traces.workload import Submission, Workload

A100, V100 = DeviceType("a100"), DeviceType("v100")
CLUSTER = Cluster.uniform((A100, 16, 8), (V100, 32, 8))
POLICIES = ("sia", "afs-p", "optimus", "srtf", "las", "gavel/max_min_fairness_perf", "pollux")


def job(name: str, gpus: int, model: str | None, sizes: tuple[int, int] | None = None, work: float = 3600.0) -> Job:
    elastic = None if sizes is None else Elastic(min_tasks=sizes[0], max_tasks=sizes[1])
    return Job(id=JobId(name), roles=(Role(count=gpus),), work=work, model=model, elastic=elastic)


def loaded(jobs: list[Job], profiles: str = "plans", *, skip: bool = False, policy: str = "sia") -> LoadedScenario:
    work = Workload(submissions=tuple(Submission(job=one, submit_s=0.0) for one in jobs), source="test", format="rota")
    scenario = Scenario(cluster=CLUSTER, policies=(policy,), profiles=profiles, skip_oversized=skip)
    return load(scenario, work)


def completion_s(found: LoadedScenario, policy: str) -> dict[str, float]:
    rows = simulate(found.workload, policy, found.setting).history.jobs
    return {row.id: row.end_s - row.submit_s for row in rows if row.end_s is not None}


@pytest.mark.slow
def test_work_in_seconds_is_that_of_the_requested_size_on_the_reference() -> None:
    jobs = [job("a", 16, "gpt-3.6b"), job("b", 4, "gpt-7.5b")]
    found = loaded(jobs)
    works = [one.job.work for one in found.workload.submissions]
    assert works[0] == pytest.approx(3600 * planned_speed("gpt-3.6b", "v100", 16, 2).steps_per_s)
    assert works[1] == pytest.approx(3600 * planned_speed("gpt-7.5b", "a100", 4).steps_per_s), "it fits on no 4 v100"


def test_job_alone_takes_the_time_of_its_plan() -> None:
    took = completion_s(loaded([job("a", 4, "gpt-7.5b")]), "srtf")
    assert took["a"] == pytest.approx(3600.0)


@pytest.mark.slow
def test_elastic_sizes_begin_where_a_plan_fits() -> None:
    found = loaded([job("a", 1, "gpt-7.5b", (1, 16))])
    sized = found.workload.submissions[0].job
    assert sized.elastic == Elastic(min_tasks=2, max_tasks=16)
    assert sized.roles[0].count == 2


def test_fixed_plan_stays_with_the_job() -> None:
    found = loaded([job("a", 8, "gpt-7.5b", (1, 16)), job("b", 1, None)], "plans:fixed")
    model = found.workload.submissions[0].job.model
    plan = planned_speed("gpt-7.5b", "a100", 8).plan
    assert plan is not None
    assert model is not None
    assert model.startswith(f"gpt-7.5b:tensor={plan.tensor},pipeline={plan.pipeline},")
    assert found.workload.submissions[1].job.model is None


@pytest.mark.slow
def test_model_that_fits_nowhere_is_refused_in_one_line() -> None:
    jobs = [job("a", 2, "gpt-39b"), job("b", 4, "gpt-7.5b")]
    with pytest.raises(RotaError, match="job a: model gpt-39b does not fit: 2 x a100") as error:
        loaded(jobs)
    assert "--skip-oversized" in str(error.value)
    assert "\n" not in str(error.value)
    assert [one.job.id for one in loaded(jobs, skip=True).workload.submissions] == ["b"]
    with pytest.raises(RotaError, match="job c: model gpt-145b does not fit"):
        loaded([job("c", 4, "gpt-145b", (1, 64))])


def test_profiles_without_planned_models_are_refused() -> None:
    with pytest.raises(RotaError, match="names a model to plan"):
        loaded([job("a", 1, "resnet50")])


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("profiles", ["plans", "plans:fixed"])
def test_no_policy_places_a_model_where_it_does_not_fit(policy: str, profiles: str) -> None:
    jobs = [job(f"g{at}", 4, "gpt-7.5b", (2, 32)) for at in range(5)]
    jobs += [job(f"s{at}", 8, "gpt-3.6b", (1, 16)) for at in range(3)]
    jobs += [job(f"o{at}", 2, "resnet50", (1, 8)) for at in range(6)]
    took = completion_s(loaded(jobs, profiles, policy=policy), policy)
    assert len(took) == 14, "a job placed where its model does not fit would never end"


@pytest.mark.slow
def test_policies_that_see_plans_use_the_other_type_with_more_devices() -> None:
    jobs = [job(f"g{at}", 4, "gpt-7.5b", (2, 32)) for at in range(6)]
    free, fixed = loaded(jobs), loaded(jobs, "plans:fixed")
    assert free.workload.submissions[0].job.roles[0].device_types == (A100, V100)
    assert fixed.workload.submissions[0].job.roles[0].device_types == (A100,)
    for policy in ("sia", "afs-p"):
        assert sum(completion_s(free, policy).values()) < sum(completion_s(fixed, policy).values())


@pytest.mark.slow
def test_table_of_a_run_can_be_read_again(tmp_path: Path) -> None:
    found = loaded([job("a", 4, "gpt-7.5b", (2, 16)), job("b", 2, "resnet50")])
    table = found.speeds.profiles
    assert table is not None
    write_profiles(table, tmp_path / "profiles.json")
    assert json.loads((tmp_path / "profiles.json").read_text())["sized"] == ["gpt-7.5b"]
    again = read_profiles(tmp_path / "profiles.json")
    assert again.sized == table.sized
    assert again.steps_per_s == table.steps_per_s
    assert again.scattered == table.scattered
