"""OpenPAI's job files, protocol version 2."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rota.core.errors import RotaError
from rota.core.model.cells import CellTypeName, SkuSize
from rota.core.model.job import DeviceType
from rota.files.job import read_job_file
from rota.files.openpai import read_openpai

JOB = """
protocolVersion: 2
name: mnist
type: job
jobRetryCount: 1
prerequisites: [{type: dockerimage, name: image, uri: example/train}]
taskRoles:
  worker:
    instances: 4
    completion: {minFailedInstances: 1}
    taskRetryCount: 2
    dockerImage: image
    resourcePerInstance: {gpu: 2, cpu: 8, memoryMB: 16384}
    commands: [python train.py]
  server:
    instances: 1
    resourcePerInstance: {gpu: 0, cpu: 4, memoryMB: 8192}
    commands: [python serve.py]
defaults: {virtualCluster: vision}
extras:
  hivedScheduler:
    jobPriorityClass: prod
    taskRoles: {worker: {skuType: K80}, server: {skuType: K80}}
"""
SKUS = {CellTypeName("K80"): SkuSize(gpu=1, cpu_milli=4000, memory_bytes=8192 << 20)}


def written(tmp_path: Path, text: str = JOB) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    return path


def test_a_gang_is_one_job(tmp_path: Path) -> None:
    (job,) = read_openpai(written(tmp_path), SKUS)

    assert (job.id, job.tenant, job.priority, job.max_restarts) == ("mnist", "vision", 100, 3)
    assert [(role.name, role.count, role.device_milli) for role in job.roles] == [
        ("worker", 4, 2000),
        ("server", 1, 1000),
    ]
    assert job.roles[0].device_types == (DeviceType("K80"),)


def test_without_gang_allocation_every_task_is_a_job(tmp_path: Path) -> None:
    jobs = read_openpai(written(tmp_path, JOB + "  gangAllocation: false\n"), SKUS)

    assert [job.id for job in jobs] == [*(f"mnist-worker-{i}" for i in range(4)), "mnist-server-0"]
    assert all(job.tasks == 1 for job in jobs)


def test_the_default_class_is_test(tmp_path: Path) -> None:
    (job,) = read_openpai(written(tmp_path, JOB.partition("extras:")[0]))

    assert job.priority == 10
    assert job.roles[1].device_milli == 0


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("protocolVersion: 2", "protocolVersion: 1", "protocolVersion is 1; only 2 is known"),
        ("jobPriorityClass: prod", "jobPriorityClass: pord", "jobPriorityClass is 'pord'; did you mean 'prod'?"),
        ("skuType: K80}, server", "skuType: K81}, server", "taskRoles.worker.skuType is 'K81'; did you mean 'K80'?"),
        ("instances: 4", "instances: 0", "taskRoles.worker.instances is 0; it must be at least 1"),
        ("{worker: {skuType: K80}, ", "{wroker: {skuType: K80}, ", "unknown task role wroker; did you mean 'worker'?"),
        ("{skuType: K80}, server", "{skuType: K80, pinnedCellId: x}, server", "a skuType and a pinnedCellId; keep one"),
        ("{skuType: K80}, server", "{pinnedCellId: x}, server", "a gang can't be in a pinned cell and elsewhere"),
    ],
)
def test_broken_jobs(before: str, after: str, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, JOB.replace(before, after, 1))

    with pytest.raises(RotaError) as error:
        read_openpai(path, SKUS)

    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)


SUBMITTED = """
protocolVersion: 2
name: my job
type: job
jobRetryCount: -2
prerequisites: [{type: dockerimage, name: image, uri: example/train}]
parameters: {epochs: 3}
secrets: {key: hunter2}
taskRoles:
  worker:
    instances: 2
    completion: {minFailedInstances: -1, minSucceededInstances: 1}
    dockerImage: image
    resourcePerInstance: {gpu: 1, cpu: 2, memoryMB: 512}
    commands:
      - echo $PAI_TASK_INDEX <% $parameters.epochs %>
      - test "<% $secrets.key %>" = hunter2
defaults: {virtualCluster: vision}
extras: {hivedScheduler: {jobPriorityClass: crit}}
"""


def test_it_can_be_submitted_as_the_job_that_it_means(tmp_path: Path) -> None:
    values = read_job_file(written(tmp_path, SUBMITTED))

    script = values["roles"]["worker"].pop("run")
    assert values == {
        "name": "my-job",
        "tenant": "vision",
        "priority": 120,
        "gang": True,
        "max_restarts": 1000,
        "roles": {
            "worker": {
                "count": 2,
                "gpus": 1,
                "cpus": 2.0,
                "memory": 512 << 20,
                "completion": {"min_failed": 2, "min_succeeded": 1},
            }
        },
        "env": {"ROTA_SECRET_key": {"secret": "hunter2"}},
        "image": "example/train",
    }
    assert script.splitlines()[1:] == ["echo $PAI_TASK_INDEX 3", 'test "${ROTA_SECRET_key}" = hunter2']


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("$parameters.epochs", "$parameters.epoch", "is not given under parameters; did you mean 'epochs'?"),
        ("dockerImage: image", "dockerImage: other", "unknown prerequisite: dockerImage other"),
    ],
)
def test_what_cannot_be_submitted_is_refused_by_name(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(RotaError, match=re.escape(said)):
        read_job_file(written(tmp_path, SUBMITTED.replace(old, new)))


def test_a_pinned_cell_becomes_a_label(tmp_path: Path) -> None:
    text = SUBMITTED.replace("jobPriorityClass: crit", "taskRoles: {worker: {pinnedCellId: c1}}")

    assert read_job_file(written(tmp_path, text))["labels"] == {"pinned_cell": "c1"}


def test_roles_in_different_pinned_cells_are_refused(tmp_path: Path) -> None:
    pinned = JOB.replace("{worker: {skuType: K80}, server: {skuType: K80}}", "{worker: {pinnedCellId: c1}}")
    path = written(tmp_path, pinned + "  gangAllocation: false\n")

    with pytest.raises(RotaError, match="roles are in different pinned cells"):
        read_job_file(path)
