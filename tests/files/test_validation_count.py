"""A job file is validated once, however many jobs it stands for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rota.core.errors import RotaError
from rota.drivers.local.driver import LocalDriver
from rota.files.cluster import read_cluster
from rota.files.job import apart, job_file, with_amounts
from rota.files.job_shape import JobFile
from rota.live.estimates.learning import Learning
from rota.live.intake.requests import Requests
from rota.live.loop.boot import Scheduling, boot
from rota.live.workers.forecast_worker import ForecastWorker
from rota.store.database import open_database
from rota.store.records import Records

SINGLE = {"run": "x", "gang": False, "workers": 50, "env": {"A": "1"}, "resources": {"gpus": 0.5, "memory": "1Gi"}}
ROLES = {"run": "x", "gang": False, "roles": {"ps": {"count": 2, "cpus": 3}, "worker": {"count": 3, "gpus": 1}}}
AUTO = {"run": "x", "resources": {"gpus": 1, "memory": "auto"}}


@pytest.fixture
def validations(monkeypatch: pytest.MonkeyPatch) -> list[JobFile]:
    """The job files that were validated."""
    found: list[JobFile] = []
    check = JobFile._check_sizes

    def counted(self: JobFile) -> None:
        found.append(self)
        check(self)

    monkeypatch.setattr(JobFile, "_check_sizes", counted)
    return found


@pytest.mark.parametrize(("values", "tasks"), [(SINGLE, 50), (ROLES, 5)], ids=["workers", "roles"])
def test_tasks_without_gang_are_made_from_one_validated_file(
    values: dict[str, Any], tasks: int, validations: list[JobFile]
) -> None:
    parts = list(apart(values))

    assert (len(parts), len(validations)) == (tasks, 1)
    for part, file in parts:
        again = job_file(part)
        assert file == again
        assert (file.full_size, file.model_dump(by_alias=True)) == (1, again.model_dump(by_alias=True))


def test_amounts_are_validated_without_the_rest(validations: list[JobFile]) -> None:
    file = job_file(AUTO)
    estimated = {"memory": {"given": 5 << 30, "trusted": True}}
    values = {"run": "x", "resources": {"gpus": 1, "memory": 5 << 30}, "labels": {"a": "b"}, "estimated": estimated}

    made = with_amounts(file, values)

    assert len(validations) == 1
    assert made.model_dump() == job_file(values).model_dump()
    with pytest.raises(RotaError, match=r"resources\.memory"):
        with_amounts(file, {**values, "resources": {"memory": -1}})


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize(
    ("values", "tasks"),
    [(AUTO, 1), ({**AUTO, "gang": False, "workers": 50}, 50), (SINGLE, 50)],
    ids=["auto", "auto without gang", "without gang"],
)
def test_manager_validates_a_submitted_file_once(
    values: dict[str, Any], tasks: int, learns: bool, validations: list[JobFile], tmp_path: Path
) -> None:
    async def parts() -> list[tuple[dict[str, Any], JobFile]]:
        records = Records(open_database(f"sqlite:///{tmp_path / 'rota.db'}"))
        scheduling = Scheduling(cluster=read_cluster("gpu=8/4"))
        control = boot(records, scheduling, LocalDriver.contract)
        learning = Learning(records, tmp_path) if learns else None
        requests = Requests(control, records, lambda _: None, ForecastWorker(scheduling, records.url), learning)
        return list(await requests._files.parts(values))

    made = asyncio.run(parts())

    assert (len(made), len(validations)) == (tasks, 1)
    for part, file in made:
        assert file.model_dump() == job_file(part).model_dump()
        assert file.resources.memory == (1 << 30 if values is SINGLE else 4 << 30)
        assert ("memory" in file.estimated) is (learns and values is not SINGLE)
