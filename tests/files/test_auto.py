"""`auto` in job files."""

from __future__ import annotations

import pytest

from rota.core.errors import RotaError
from rota.core.model.job import JobId
from rota.files.auto import autos, settled, unsettled
from rota.files.job import job_file, job_of


def test_auto_without_a_manager_is_the_usual() -> None:
    job = job_of(job_file({"run": "x", "resources": {"gpus": "auto", "memory": "auto", "cpus": 2}}), JobId("1"))

    role = job.roles[0]
    assert (role.device_milli, role.memory_bytes, role.cpu_milli) == (1000, 4 << 30, 2000)


def test_amounts_take_the_place_of_auto_only_and_can_be_taken_back() -> None:
    values = {"run": "x", "roles": {"a": {"memory": "auto", "cpus": 3}, "b": {"memory": "1Gi", "gpus": "auto"}}}

    made = settled(values, {"memory": 5 << 30, "gpus": 2})

    assert autos(values) == ["memory", "gpus"]
    assert made["roles"] == {"a": {"memory": 5 << 30, "cpus": 3}, "b": {"memory": "1Gi", "gpus": 2}}
    told = {
        name: {"given": made_of, "trusted": True, "error": 0.1} for name, made_of in (("memory", 5 << 30), ("gpus", 2))
    }
    assert unsettled({**made, "estimated": told}) == values


@pytest.mark.parametrize(
    ("field", "said"),
    [("gpus", "write it like 4 or 0.5, or auto"), ("memory", "a number of bytes, or auto")],
)
def test_word_that_is_not_auto_is_told_of_it(field: str, said: str) -> None:
    with pytest.raises(RotaError, match=f"resources.{field}: not an? .*: 'automatic'; .*{said}"):
        job_file({"run": "x", "resources": {field: "automatic"}})


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"run": "x", "workers": "auto"}, "workers"),
        ({"run": "x", "resources": {"gpu": "auto"}}, "resources.gpu: it names types of devices; write gpus: auto"),
        ({"run": "x", "resources": {"gpu_memory": "all"}}, "gpu_memory"),
    ],
    ids=["a field that is no amount", "types for their number", "a word that is not auto"],
)
def test_what_can_not_be_left_to_the_manager_is_refused(values: dict[str, object], field: str) -> None:
    with pytest.raises(RotaError, match=field):
        job_file(values)
