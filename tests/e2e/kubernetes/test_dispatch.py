"""`rota k8s dispatch` with two real API servers: a job goes to the best cluster, and away from a lost one."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import forked
from e2e.kubernetes.bed import Bed
from e2e.kubernetes.hollow import Hollow, node_object
from e2e.kubernetes.replica import Replica, View, job, pod
from managers import eventually
from rota.drivers.kubernetes.objects.owner_jobs import as_held

pytestmark = pytest.mark.slow
Launch = Callable[..., Replica]
Kubelets = Callable[..., Hollow]
Dispatch = Callable[..., None]
Json = dict[str, Any]
JOBS = "/apis/batch/v1/namespaces/default/jobs"


@pytest.fixture
def dispatch(managed: Bed, bed: Bed, tmp_path: Path) -> Iterator[Dispatch]:
    """Starts a dispatcher whose hub and cluster `near` are one control plane, and `far` is the other."""
    made: list[subprocess.Popen[bytes]] = []

    def begin(near: str | None = None, far: str | None = None) -> None:
        admin = {"kubeconfig": str(managed.kubeconfig("admin-token"))}
        there = {"kubeconfig": str(bed.kubeconfig("admin-token")), "site": "b"}
        file = {
            "hub": admin,
            "clusters": {
                "near": {**admin, "site": "a", **({"server": near} if near else {})},
                "far": {**there, **({"server": far} if far else {})},
            },
            "bandwidth": {"a": {"b": 0.5}},
            "lost_after": "3s",
            "every": "0.3s",
        }
        (tmp_path / "clusters.yaml").write_text(yaml.safe_dump(file))
        with (tmp_path / "dispatch.log").open("ab") as log:
            made.append(forked.popen(["k8s", "dispatch", str(tmp_path / "clusters.yaml")], stderr=log))

    yield begin
    for process in made:
        process.terminate()
        assert process.wait(timeout=20) == 0, (tmp_path / "dispatch.log").read_text()[-2000:]


def wanted(name: str, tasks: int, gpus: int, notes: Json | None = None) -> Json:
    made = as_held(job(name, tasks, gpus))
    made["metadata"]["labels"] = {"rota.dev/dispatch": "true"}
    made["metadata"]["annotations"].update(notes or {})
    return made


def said(bed: Bed, name: str, note: str) -> str:
    notes = bed.admin.get(f"{JOBS}/{name}")["metadata"].get("annotations") or {}
    return str(notes.get(f"rota.dev/{note}", ""))


def names(bed: Bed) -> set[str]:
    found = bed.admin.items(f"{JOBS}?labelSelector=rota.dev/dispatched=true")
    alive = [each["metadata"]["name"] for each in found if "deletionTimestamp" not in each["metadata"]]
    return {name.rpartition("-")[0] for name in alive}


def test_jobs_go_where_they_fit_and_where_their_data_is_and_leave_a_lost_cluster(
    managed: Bed, bed: Bed, dispatch: Dispatch, kubelets: Kubelets
) -> None:
    kubelets(managed, nodes=1, gpus=4, beats=True)
    for number in (1, 2):
        bed.admin.make(node_object(f"b{number}", 8))
    managed.admin.make(wanted("at-home", 1, 4, {"rota.dev/data": "a", "rota.dev/data-size": "100G"}))
    managed.admin.make(wanted("either", 1, 4))
    managed.admin.make(wanted("large", 2, 8))
    managed.admin.make(wanted("larger", 64, 8))
    dispatch()

    eventually(lambda: said(managed, "large", "dispatch-state"))
    eventually(lambda: "at-home" in names(managed) and {"either", "large"} <= names(bed))
    assert [said(managed, name, "cluster") for name in ("at-home", "either", "large")] == ["near", "far", "far"]
    assert said(managed, "at-home", "dispatch-why").startswith("near has room for it now; its data is there")
    none = "no cluster can take it: far: fits 2 of 64 tasks of 8 devices; near: fits 0 of 64 tasks of 8 devices"
    eventually(lambda: said(managed, "larger", "dispatch-why") == none)
    copy = next(each for each in bed.admin.items(JOBS) if each["metadata"]["name"].startswith("large-"))
    assert (copy["spec"]["parallelism"], copy["spec"]["completions"]) == (2, 2)
    assert managed.admin.get(f"{JOBS}/large")["spec"]["parallelism"] == 0

    bed.stop_api()
    try:
        eventually(lambda: said(managed, "either", "cluster") == "near")
        assert said(managed, "either", "dispatch-why").startswith("cluster far was lost; near has room")
        assert said(managed, "either", "dispatch-turn") == "2"
        eventually(lambda: "either" in names(managed))
        eventually(lambda: "no cluster can take it" in said(managed, "large", "dispatch-why"))
    finally:
        bed.start_api()
    eventually(lambda: names(bed) == {"large"})  # the copy that was sent elsewhere is deleted, the other is taken up
    assert names(managed) >= {"at-home", "either"}

    managed.admin.delete(f"{JOBS}/large", {"propagationPolicy": "Background"})
    eventually(lambda: names(bed) == set())
    for name in ("at-home", "either"):
        managed.admin.delete(f"{JOBS}/{name}", {"propagationPolicy": "Background"})
    managed.admin.delete(f"{JOBS}/larger", {"propagationPolicy": "Background"})


def test_forecasts_choose_the_cluster_and_its_end_is_reported(
    managed: Bed, bed: Bed, dispatch: Dispatch, launch: Launch, kubelets: Kubelets
) -> None:
    kubelets(managed, nodes=1, gpus=4, beats=True)
    kubelets(bed, nodes=1, gpus=4)
    near, far = launch(managed), launch(bed)
    managed.admin.make(pod("short", 4, notes={"rota.dev/estimate": "20m", "rota.dev/time-limit": "20m"}))
    bed.admin.make(pod("long", 4, notes={"rota.dev/estimate": "9h", "rota.dev/time-limit": "9h"}))
    eventually(lambda: View(managed.admin).node_of("short") and View(bed.admin).node_of("long"))
    made = wanted("soon", 1, 4)
    made["spec"]["template"]["metadata"]["annotations"] = {"hollow/run-s": "0.2"}
    managed.admin.make(made)

    dispatch(near.url, far.url)

    eventually(lambda: said(managed, "soon", "cluster") == "near", within_s=60)
    assert said(managed, "soon", "dispatch-why").startswith("near is expected to start it in 1")
    managed.admin.delete("/api/v1/namespaces/default/pods/short", {"gracePeriodSeconds": 0})
    eventually(lambda: said(managed, "soon", "dispatch-state") == "succeeded", within_s=60)
    managed.admin.delete(f"{JOBS}/soon", {"propagationPolicy": "Background"})
