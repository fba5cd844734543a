"""What users do with `rota --context`, with their own rights: submit, hold, release, ask why and when, cancel."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import forked
from e2e.kubernetes.bed import Bed
from e2e.kubernetes.hollow import Hollow
from e2e.kubernetes.replica import Replica, View, job, pod, rota
from managers import eventually
from rota.drivers.kubernetes.user import ClusterUser

pytestmark = pytest.mark.slow
Launch = Callable[..., Replica]
Kubelets = Callable[..., Hollow]
Json = dict[str, Any]
FILE = """
name: bert
image: example/bert:1
workers: 2
resources: {gpus: 4}
env: {EPOCHS: "3", KEY: {secret: sesame}}
run: python train.py
"""


@pytest.fixture
def train(tmp_path: Path) -> str:
    path = tmp_path / "train.yaml"
    path.write_text(FILE)
    return str(path)


def listed(bed: Bed) -> list[tuple[str, str, str]]:
    user = ClusterUser("test", bed.kubeconfig("admin-token"))
    return [(each["id"], each["name"], each["state"]) for each in user.jobs()]


def test_job_is_held_released_and_keeps_the_name_that_was_printed(
    managed: Bed, seen: View, train: str, launch: Launch, kubelets: Kubelets
) -> None:
    kubelets(managed, nodes=1, beats=True)
    launch(managed)

    name = rota(managed, "submit", "--held", train).stdout.strip()

    assert listed(managed) == [(name, "bert", "held")]
    user = ClusterUser("test", managed.kubeconfig("admin-token"))
    assert (user.job("bert")["gpus"], user.job("bert")["tasks"]) == (8, 2)
    assert seen.pods() == {}
    assert rota(managed, "why", name).stdout == f"job {name} is held\n"
    assert "only a waiting job can be held" in rota(managed, "hold", name).stderr
    assert rota(managed, "release", name).returncode == 0
    eventually(lambda: listed(managed) == [(name, "bert", "running")])
    assert "only a held job can be released" in rota(managed, "release", name).stderr
    assert "only a waiting job can be held" in rota(managed, "hold", name).stderr
    assert rota(managed, "cancel", name).returncode == 0
    eventually(lambda: seen.pods() == {})


def test_name_that_two_jobs_have_is_refused_with_their_ids(managed: Bed, train: str) -> None:
    first, second = (rota(managed, "submit", "--held", train).stdout.strip() for _ in range(2))

    refused = rota(managed, "cancel", "bert")

    assert refused.returncode == 2
    ids = ", ".join(each for each, _, _ in listed(managed))
    assert refused.stderr == f"error: 2 jobs are named 'bert': {ids}; give the id of one\n"
    assert rota(managed, "cancel", first).returncode == 0
    assert listed(managed) == [(second, "bert", "held")]


def test_waiting_job_is_held_so_that_others_go_first(
    managed: Bed, seen: View, launch: Launch, kubelets: Kubelets
) -> None:
    kubelets(managed, nodes=1, beats=True)
    launch(managed, {"policy": "fifo"})
    managed.admin.make(job("first", 1, 8))
    eventually(lambda: seen.bound("first"))
    managed.admin.make(job("second", 1, 8))
    eventually(lambda: [state for _, name, state in listed(managed) if name == "second"] == ["waiting"])
    managed.admin.make(job("third", 1, 8))

    assert rota(managed, "hold", "second").returncode == 0

    eventually(lambda: {name: state for _, name, state in listed(managed)}["second"] == "held")
    assert rota(managed, "cancel", "first").returncode == 0
    eventually(lambda: seen.bound("third"))
    assert rota(managed, "release", "second").returncode == 0
    eventually(lambda: {name: state for _, name, state in listed(managed)}["second"] == "waiting")
    managed.admin.make(pod("alone", 8))
    eventually(lambda: "alone" in {name for _, name, _ in listed(managed)})
    assert "only jobs created by a Job can be held" in rota(managed, "hold", "alone").stderr


def test_secret_is_kept_apart_and_goes_with_its_job(managed: Bed, seen: View, train: str) -> None:
    name = rota(managed, "submit", train).stdout.strip()

    made = managed.admin.get(f"/apis/batch/v1/namespaces/default/jobs/{name}")
    assert "sesame" not in json.dumps(made)
    secret = managed.admin.get(f"/api/v1/namespaces/default/secrets/{name}")
    assert secret["data"] == {"worker.KEY": "c2VzYW1l"}
    assert rota(managed, "cancel", name).returncode == 0
    eventually(
        lambda: name not in {each["metadata"]["name"] for each in managed.admin.items("/api/v1/secrets")}, within_s=60
    )


def test_dry_run_asks_the_server_and_makes_nothing(
    managed: Bed, seen: View, tmp_path: Path, train: str, launch: Launch, kubelets: Kubelets
) -> None:
    kubelets(managed, nodes=1, beats=True)
    replica = launch(managed)

    tried = rota(managed, "submit", "--dry-run", train)

    assert (tried.returncode, tried.stdout) == (
        0,
        "the cluster would admit it; Rota's own server forecasts the start: --server URL\n",
    )
    assert managed.admin.items("/apis/batch/v1/jobs") == []
    asked = forked.run(["submit", "--dry-run", train, "--server", replica.url])
    assert asked.stdout.startswith("expected start: "), asked.stderr
    nowhere = tmp_path / "nowhere.yaml"
    nowhere.write_text(FILE + "tenant: nowhere\n")
    refused = rota(managed, "submit", "--dry-run", str(nowhere))
    assert (refused.returncode, refused.stderr) == (1, 'error: namespaces "nowhere" not found\n')


def test_waiting_job_is_told_when_it_will_start(
    managed: Bed, seen: View, train: str, launch: Launch, kubelets: Kubelets
) -> None:
    kubelets(managed, nodes=1, beats=True)
    launch(managed)
    managed.admin.make(pod("runs", 8, notes={"rota.dev/estimate": "2h"}))
    eventually(lambda: seen.node_of("runs"))
    assert rota(managed, "submit", train).returncode == 0

    user = ClusterUser("test", managed.kubeconfig("admin-token"))
    eventually(lambda: user.job("bert")["tasks"] == 2)
    expected = eventually(lambda: user.why("bert")["expected"], every_s=0.5)

    assert expected["position"] == 1
    told = rota(managed, "why", "bert").stdout
    assert "needs 8 devices" in told
    assert "expected start: " in told


def test_user_of_one_namespace_sees_and_does_what_their_rights_allow(
    managed: Bed, seen: View, tmp_path: Path, train: str, launch: Launch, kubelets: Kubelets
) -> None:
    kubelets(managed, nodes=1, beats=True)
    launch(managed)
    everything = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"}
    who = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "user-39"}
    binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding"}
    managed.admin.make({**binding, "metadata": {"name": "user-39"}, "roleRef": everything, "subjects": [who]})
    managed.admin.make({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "others"}})
    managed.admin.make(pod("theirs", 0, namespace="others"))
    env = {**os.environ, "KUBECONFIG": str(managed.kubeconfig("user-39-token"))}

    def mine(*args: str) -> subprocess.CompletedProcess[str]:
        return forked.run(["--context", "test", *args], env=env)

    made = mine("submit", train)
    assert made.returncode == 0, made.stderr
    user = ClusterUser("test", managed.kubeconfig("user-39-token"))
    eventually(lambda: [each["state"] for each in user.jobs()] == ["running"])
    refused = mine("submit", train, "--tenant", "others")
    assert refused.returncode == 2
    assert 'cannot create resource "jobs" in API group "batch" in the namespace "others"' in refused.stderr
    assert 'cannot list resource "nodes"' in mine("nodes").stderr
