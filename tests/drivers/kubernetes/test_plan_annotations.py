"""Pods of a job that names a model, or brings a plan, get it as annotations and from there as variables."""

from __future__ import annotations

import json
from typing import Any

from builders import cluster, node
from drivers.kubernetes.objects import pod_object
from rota.core.model.job import JobId
from rota.core.model.placement import Slot
from rota.drivers.kubernetes.gangs.gang import Gang, key_of
from rota.drivers.kubernetes.objects.binding_annotations import assign_slots, binding_note
from rota.drivers.kubernetes.objects.gang_jobs import job_of
from rota.drivers.kubernetes.objects.job_objects import objects_of
from rota.drivers.kubernetes.objects.pods import pod_of
from rota.drivers.kubernetes.settings import ClusterSettings
from rota.files.job import job_file
from rota.planner.parallel.deployment import planned_speed

USUAL = ClusterSettings()
NODES = cluster(node("n1", 8, device_type="a100"), node("n2", 8, device_type="a100")).nodes


def notes(annotations: dict[str, str]) -> list[dict[str, str]]:
    """What two pods of eight devices each, on two nodes, are annotated with."""
    values = [
        pod_object(f"w-{at}", gpus=8, owner=("Job", "train"), annotations={"rota.dev/tasks": "2", **annotations})
        for at in range(2)
    ]
    pods = [pod_of(value, USUAL) for value in values]
    gang = Gang(key_of(pods[0]), members={pod.uid: pod for pod in pods})
    gang.job = job_of(gang, pods, USUAL, JobId("train-1"))
    assign_slots(gang, (Slot(0, 0xFF), Slot(1, 0xFF)), NODES.__getitem__)
    return [binding_note(gang, slot.task, pod) for slot, pod in zip(gang.slots, pods, strict=True)]


def test_pods_get_the_plan_for_the_devices_of_their_gang() -> None:
    first, second = notes({"rota.dev/model": "gpt-7.5b"})

    best = planned_speed("gpt-7.5b", "a100", 16, 2)
    assert best.plan is not None
    plan = json.loads(first["rota.dev/plan"])
    assert (plan["tensor"], plan["pipeline"], plan["data"]) == (best.plan.tensor, best.plan.pipeline, best.plan.data)
    assert first["rota.dev/plan-arguments"].split() == list(best.arguments)
    assert second["rota.dev/torchrun"] == "--nnodes=2 --node-rank=1 --nproc-per-node=8"


def test_plan_of_the_pod_is_kept() -> None:
    first, _ = notes({"rota.dev/plan": '{"tensor": 3}'})

    assert first["rota.dev/plan"] == '{"tensor": 3}'
    assert first["rota.dev/torchrun"].startswith("--nnodes=2 --node-rank=0")
    assert "rota.dev/plan-arguments" not in first


def test_other_jobs_get_no_plan() -> None:
    for model in ({}, {"rota.dev/model": "resnet50"}, {"rota.dev/model": "gpt-7.5b:tensor=x"}):
        assert not any(name in note for note in notes(model) for name in ("rota.dev/plan", "rota.dev/plan-arguments"))


def _pod(**fields: Any) -> tuple[dict[str, str], dict[str, str]]:
    """The annotations and the variables that come from annotations, of a job file's pods."""
    file = {"image": "example/train:1", "run": "true", "resources": {"gpus": 8}, **fields}
    template = objects_of(job_file(file), "ab12", "nlp")[0]["spec"]["template"]
    env = template["spec"]["containers"][0]["env"]
    paths = {each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in env if "valueFrom" in each}
    return template["metadata"]["annotations"], paths


def test_job_file_with_a_model_asks_for_the_variables() -> None:
    annotations, paths = _pod(model="gpt-7.5b")

    assert annotations["rota.dev/model"] == "gpt-7.5b"
    assert paths["ROTA_PLAN"] == "metadata.annotations['rota.dev/plan']"
    assert paths["ROTA_PLAN_ARGUMENTS"] == "metadata.annotations['rota.dev/plan-arguments']"
    assert paths["ROTA_TORCHRUN"] == "metadata.annotations['rota.dev/torchrun']"


def test_job_file_with_a_plan_of_its_own_brings_it() -> None:
    annotations, paths = _pod(plan={"tensor": 3})

    assert json.loads(annotations["rota.dev/plan"]) == {"tensor": 3}
    assert "ROTA_PLAN" in paths
    assert "ROTA_PLAN" not in _pod()[1]
