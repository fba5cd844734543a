"""A job file as objects of Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from rota.core.errors import RotaError
from rota.drivers.kubernetes.objects.job_objects import objects_of
from rota.files.job import job_file

FILE: dict[str, Any] = {
    "name": "BERT_base",
    "image": "example/bert:1",
    "workers": 2,
    "resources": {"gpus": 4, "gpu": ["A100", "V100"], "cpus": 2, "memory": "1Gi"},
    "volumes": ["/data:/data:ro", "claim:/ckpt"],
    "checkpoint": {"path": "/ckpt/bert", "grace": "90s"},
    "env": {"EPOCHS": "3"},
    "run": "python train.py",
}


def test_job_asks_for_what_the_file_asks_and_finds_its_devices() -> None:
    (made,) = objects_of(job_file(FILE), "ab12", "nlp")

    spec = made["spec"]["template"]["spec"]
    container = spec["containers"][0]
    env = {each["name"]: each.get("value") or each["valueFrom"]["fieldRef"]["fieldPath"] for each in container["env"]}
    assert (made["metadata"]["name"], made["metadata"]["namespace"]) == ("bert-base-ab12", "nlp")
    assert (made["spec"]["parallelism"], spec["schedulerName"], spec["terminationGracePeriodSeconds"]) == (
        2,
        "rota",
        90,
    )
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "4", "memory": str(1 << 30)}
    assert container["command"] == ["/bin/sh", "-c", "python train.py"]
    assert env["NVIDIA_VISIBLE_DEVICES"] == "metadata.annotations['rota.dev/devices']"
    assert (env["ROTA_CHECKPOINT"], env["EPOCHS"], env["ROTA_TASKS"]) == ("/ckpt/bert", "3", "2")
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/data", "/ckpt"]
    assert spec["volumes"][1]["persistentVolumeClaim"] == {"claimName": "claim"}
    notes = made["spec"]["template"]["metadata"]["annotations"]
    assert notes["rota.dev/gpu"] == "A100,V100"


def test_each_role_is_a_job_of_one_gang() -> None:
    roles = {"worker": {"count": 2, "gpus": 1, "run": "w"}, "ps": {"count": 1, "cpus": 1, "run": "p"}}
    made = objects_of(job_file({"name": "t", "image": "i", "roles": roles}), "u", "default")

    assert [value["metadata"]["name"] for value in made] == ["t-u-worker", "t-u-ps"]
    labels = [value["spec"]["template"]["metadata"]["labels"] for value in made]
    assert {(each["rota.dev/job"], each["rota.dev/tasks"]) for each in labels} == {("t-u", "3")}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"image": None}, "image"),
        ({"resources": {"gpus": 0.5}}, "gpus"),
        ({"depends_on": ["other"]}, "depends_on"),
        ({"priority": 5}, "priority"),
        ({"volumes": ["data"]}, "volumes"),
        ({"checkpoint": {"signal": "SIGUSR1"}}, "checkpoint.signal"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_field_that_pods_can_not_honour_is_refused_by_name(change: dict[str, Any], field: str) -> None:
    with pytest.raises(RotaError, match=field):
        objects_of(job_file({**FILE, **change}), "u", "default")
