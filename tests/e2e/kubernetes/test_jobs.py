"""Jobs of Kubernetes' own controllers: gangs without a change, created again after preemption or a lost node."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.kubernetes.bed import Bed
from e2e.kubernetes.hollow import Hollow
from e2e.kubernetes.replica import Replica, View, job, pod, rota
from managers import eventually

pytestmark = pytest.mark.slow
Launch = Callable[..., Replica]
Kubelets = Callable[..., Hollow]
Json = dict[str, Any]
TOO_WIDE = "never-fits: needs 10 devices; the cluster can never offer that"


def test_job_is_a_gang_without_a_change_and_its_end_frees_its_devices(
    managed: Bed, seen: View, launch: Launch, kubelets: Kubelets
) -> None:
    kubelets(managed, nodes=2, beats=True)
    launch(managed)
    managed.admin.make(job("first", 4, 4, notes={"hollow/run-s": "2"}))
    eventually(lambda: len(seen.running("first")) == 4)
    managed.admin.make(job("second", 4, 4))

    eventually(lambda: len(seen.running("second")) == 4)
    assert seen.promised_twice() == []
    path = "/apis/batch/v1/namespaces/default/jobs/first"
    eventually(lambda: managed.admin.get(path)["status"].get("succeeded") == 4)


def test_job_that_is_preempted_comes_back_when_there_is_room(
    managed: Bed, seen: View, launch: Launch, kubelets: Kubelets
) -> None:
    managed.admin.make(
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 100}
    )
    kubelets(managed, nodes=1, beats=True)
    launch(managed)
    managed.admin.make(job("low", 2, 4))
    eventually(lambda: len(seen.running("low")) == 2)
    before = {pod["metadata"]["uid"] for pod in seen.running("low")}
    managed.admin.make(job("high", 1, 8, priorityClassName="urgent", notes={"hollow/run-s": "3"}))

    eventually(lambda: len(seen.running("high")) == 1)
    assert seen.running("low") == []
    eventually(lambda: len(seen.running("low")) == 2)
    assert not before & {pod["metadata"]["uid"] for pod in seen.running("low")}


def test_gang_of_a_lost_node_starts_whole_elsewhere(
    managed: Bed, seen: View, launch: Launch, kubelets: Kubelets
) -> None:
    hollow = kubelets(managed, nodes=3, beats=True)
    launch(managed)
    managed.admin.make(job("wide", 2, 8))
    eventually(lambda: len(seen.running("wide")) == 2)
    lost = seen.running("wide")[0]["spec"]["nodeName"]

    hollow.dead.add(lost)

    def is_elsewhere() -> bool:
        pods = seen.running("wide")
        return len(pods) == 2 and lost not in {pod["spec"]["nodeName"] for pod in pods}

    eventually(is_elsewhere, within_s=90)


def test_pod_that_fails_is_tried_again_by_its_job(managed: Bed, seen: View, launch: Launch, kubelets: Kubelets) -> None:
    kubelets(managed, nodes=1, beats=True)
    launch(managed)
    value = job("flaky", 1, 8, notes={"hollow/run-s": "0.5", "hollow/exit": "1"})
    value["spec"]["backoffLimit"] = 1
    managed.admin.make(value)

    def has_failed() -> bool:
        status = managed.admin.get("/apis/batch/v1/namespaces/default/jobs/flaky").get("status", {})
        return any(each["type"] == "Failed" for each in status.get("conditions", ()))

    eventually(has_failed, within_s=60)
    managed.admin.make(job("next", 1, 8))
    eventually(lambda: len(seen.running("next")) == 1)


def test_job_file_is_submitted_to_a_cluster_and_cancelled(
    managed: Bed, seen: View, tmp_path: Path, launch: Launch, kubelets: Kubelets
) -> None:
    kubelets(managed, nodes=2, gpus=4, beats=True)
    launch(managed)
    file = tmp_path / "train.yaml"
    file.write_text(
        "name: bert\nimage: example/bert:1\ncheckpoint: {path: /ckpt, grace: 2s}\n"
        "roles:\n"
        "  worker: {count: 2, gpus: 4, run: python worker.py}\n"
        "  ps: {count: 1, cpus: 2, run: python ps.py}\n"
    )

    made = rota(managed, "submit", str(file))

    assert made.returncode == 0, made.stderr
    name = made.stdout.strip()
    eventually(lambda: len(seen.running(name)) == 3)
    ranks = {pod["metadata"]["annotations"]["rota.dev/seat"] for pod in seen.running(name)}
    assert ranks == {"0", "1", "2"}
    listed = json.loads(rota(managed, "ps", "-o", "json").stdout)
    assert [(each["name"], each["state"], each["gpus"], each["tasks"]) for each in listed] == [
        ("bert", "running", 8, 3)
    ]
    assert rota(managed, "cancel", name).returncode == 0
    eventually(lambda: seen.pods() == {})
    assert managed.admin.items("/apis/batch/v1/namespaces/default/jobs") == []


def test_job_file_without_an_image_is_refused(managed: Bed, tmp_path: Path) -> None:
    file = tmp_path / "train.yaml"
    file.write_text("run: python train.py\n")

    made = rota(managed, "submit", str(file))

    assert (made.returncode, made.stderr) == (
        2,
        f"error: {file}: image is missing: pods run containers, name an image\n",
    )


def test_devices_of_what_was_deleted_are_free_at_once(
    managed: Bed, seen: View, launch: Launch, kubelets: Kubelets
) -> None:
    kubelets(managed, nodes=1, beats=True)
    launch(managed, {"gang_timeout": "10m", "linger": "10m"})
    managed.admin.make(pod("alone", 8))
    eventually(lambda: seen.node_of("alone"))
    managed.admin.make(job("second", 2, 4))
    managed.admin.delete("/api/v1/namespaces/default/pods/alone")
    eventually(lambda: len(seen.running("second")) == 2)

    path = "/apis/batch/v1/namespaces/default/jobs/second"
    managed.admin.delete(path, {"propagationPolicy": "Background"})
    managed.admin.make(pod("third", 8))

    eventually(lambda: seen.node_of("third"))


def test_job_created_again_under_its_name_does_not_wait_for_the_one_before(
    managed: Bed, seen: View, launch: Launch, kubelets: Kubelets
) -> None:
    kubelets(managed, nodes=1, beats=True)
    launch(managed, {"gang_timeout": "10m", "linger": "10m"})
    managed.admin.make(job("again", 2, 4))
    eventually(lambda: len(seen.running("again")) == 2)
    before = {each["metadata"]["uid"] for each in seen.running("again")}

    path = "/apis/batch/v1/namespaces/default/jobs/again"
    managed.admin.delete(path, {"propagationPolicy": "Background"})
    managed.admin.make(job("again", 2, 4))

    eventually(lambda: len({each["metadata"]["uid"] for each in seen.running("again")} - before) == 2)


def test_job_that_is_made_smaller_gives_devices_back_and_one_that_waits_starts(
    managed: Bed, seen: View, launch: Launch, kubelets: Kubelets
) -> None:
    kubelets(managed, nodes=1, beats=True)
    launch(managed, {"gang_timeout": "1s"})
    managed.admin.make(job("runs", 4, 2))
    eventually(lambda: len(seen.running("runs")) == 4, within_s=180)
    managed.admin.make(job("waits", 5, 2))
    eventually(lambda: [seen.waiting_for(name) for name in seen.pods() if name.startswith("waits")] == [TOO_WIDE] * 5)
    kept = {each["metadata"]["uid"] for each in seen.running("runs")}

    managed.admin.patch("/apis/batch/v1/namespaces/default/jobs/runs", {"spec": {"parallelism": 2}})
    managed.admin.patch("/apis/batch/v1/namespaces/default/jobs/waits", {"spec": {"parallelism": 2}})

    eventually(lambda: len(seen.running("waits")) == 2)
    assert len(seen.running("runs")) == 2
    assert {each["metadata"]["uid"] for each in seen.running("runs")} < kept
    assert seen.promised_twice() == []
