"""What must not happen: leaked devices, a woken leader that follows old plans, settings that stop what runs."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from e2e.kubernetes.bad_weather import BadWeather
from e2e.kubernetes.bed import Bed, KubeError
from e2e.kubernetes.hollow import Hollow
from e2e.kubernetes.replica import Replica, View, configure, gang, pod
from managers import eventually

Json = dict[str, Any]
Launch = Callable[..., Replica]
Kubelets = Callable[..., Hollow]
pytestmark = pytest.mark.slow
NOW = {"gracePeriodSeconds": 0}
POLICIES_SINCE = 30
"""The release that brought policies of admission without a webhook."""
only_in_full = pytest.mark.skipif(
    os.environ.get("ROTA_CHAOS") != "full", reason="a lease has to run out first; `make chaos` waits for that"
)


@pytest.fixture
def weather(bed: Bed) -> Iterator[BadWeather]:
    made = BadWeather(bed.kubeconfig()).start()
    yield made
    made.stop()


def uids(view: View) -> dict[str, str]:
    return {name: each["metadata"]["uid"] for name, each in view.pods().items()}


def all_run(view: View) -> bool:
    pods = view.pods().values()
    return all(
        each["status"]["phase"] == "Running" and "deletionTimestamp" not in each["metadata"] for each in pods
    ) and bool(pods)


def pause(replica: Replica, number: int) -> None:
    assert replica.process is not None
    replica.process.send_signal(number)


def test_pods_deleted_while_they_are_bound_give_their_devices_back(
    bed: Bed, view: View, launch: Launch, kubelets: Kubelets, weather: BadWeather
) -> None:
    kubelets(bed, nodes=2, gpus=8)
    launch(bed, kubeconfig=weather.kubeconfig)
    for late_s in (0.1, 0.2, 0.3, 0.4, 0.5):  # the answer to a bind comes after the deletion, by more or less
        weather.late_s = late_s
        for number in range(16):
            bed.admin.make(pod(f"p{number}", 1))
        eventually(lambda: len(view.bound("p")) == 16, every_s=0.01)
        for name in view.pods():
            bed.admin.delete(f"/api/v1/namespaces/default/pods/{name}", NOW)
    weather.late_s = 0.0
    for each in gang("whole", 16, 1):
        bed.admin.make(each)

    eventually(lambda: len(view.bound("whole")) == 16, within_s=120)


def test_leader_that_was_paused_does_not_follow_its_old_plans(
    bed: Bed, view: View, launch: Launch, kubelets: Kubelets
) -> None:
    kubelets(bed, nodes=1, gpus=8)
    configure(bed, gang_timeout="3s")
    replica = launch(bed, options=["--port", "0"])
    pods = gang("g", 4, 1)
    for value in pods:
        bed.admin.make(value)
    eventually(lambda: len(view.bound("g")) == 4 and all_run(view))
    before = uids(view)

    bed.admin.delete("/api/v1/namespaces/default/pods/g-3", NOW)
    time.sleep(0.5)  # the deletion is noticed, and the gang may be incomplete for three seconds
    pause(replica, signal.SIGSTOP)
    bed.admin.make(pods[3])
    time.sleep(12.0)  # longer than the gang may be incomplete, and than the leader may act without a renewal
    pause(replica, signal.SIGCONT)

    eventually(lambda: len(view.bound("g")) == 4 and all_run(view), within_s=120)
    time.sleep(4.0)
    assert {name: uid for name, uid in uids(view).items() if name != "g-3"} == {
        name: uid for name, uid in before.items() if name != "g-3"
    }


@only_in_full
def test_leader_that_wakes_after_another_took_over_writes_nothing(
    bed: Bed, view: View, tmp_path: Path, launch: Launch, kubelets: Kubelets
) -> None:
    kubelets(bed, nodes=2, gpus=8)
    configure(bed, gang_timeout="3s")
    first = launch(bed, options=["--port", "0", "--identity", "first"])
    second = Replica(bed, tmp_path / "second", options=["--port", "0", "--identity", "second"])
    second.launch()
    pods = gang("g", 4, 1)
    for value in pods:
        bed.admin.make(value)
    eventually(lambda: len(view.bound("g")) == 4 and all_run(view))
    try:
        bed.admin.delete("/api/v1/namespaces/default/pods/g-3", NOW)
        time.sleep(0.5)
        pause(first, signal.SIGSTOP)
        bed.admin.make(pods[3])
        eventually(lambda: "rota schedules" in second.log.read_text(), within_s=60)
        eventually(lambda: len(view.bound("g")) == 4 and all_run(view), within_s=120)
        before = uids(view)
        pause(first, signal.SIGCONT)
        assert first.process is not None
        assert first.process.wait(timeout=30) != 0
        time.sleep(2.0)
        assert uids(view) == before
        assert all_run(view)
        assert view.promised_twice() == []
    finally:
        second.stop()


@pytest.mark.parametrize("change", [{"devices": ["example.com/none"]}, {"scheduler_name": "another"}])
def test_change_of_settings_stops_nothing_that_runs(
    bed: Bed, view: View, launch: Launch, kubelets: Kubelets, change: Json
) -> None:
    kubelets(bed, nodes=1, gpus=8)
    configure(bed)
    replica = launch(bed, options=["--port", "0"])

    def has_begun(term: int) -> bool:
        return replica.log.read_text().count("rota schedules") >= term

    for value in gang("g", 4, 1):
        bed.admin.make(value)
    eventually(lambda: len(view.bound("g")) == 4 and all_run(view))
    before = uids(view)
    for turn, settings in enumerate(({**change}, {}, {**change}, {}), 2):
        configure(bed, **settings)
        eventually(partial(has_begun, turn), within_s=120)
        time.sleep(1.0)
        assert uids(view) == before
        assert all_run(view)

    bed.admin.make(pod("small", 4))
    bed.admin.make(pod("large", 8))
    eventually(lambda: view.node_of("small"))
    assert view.node_of("large") is None
    assert view.promised_twice() == [], replica.log.read_text()[-3000:]
    for name in before:
        bed.admin.delete(f"/api/v1/namespaces/default/pods/{name}", NOW)
    bed.admin.delete("/api/v1/namespaces/default/pods/small", NOW)
    eventually(lambda: view.node_of("large"), within_s=120)
    assert replica.process is not None
    assert replica.process.poll() is None


def budget_version(bed: Bed) -> str:
    """The version of PodDisruptionBudgets that this release serves."""
    return "policy/v1beta1" if bed.minor < 25 else "policy/v1"


def test_disruption_budget_holds_and_the_pod_says_so(bed: Bed, view: View, launch: Launch, kubelets: Kubelets) -> None:
    kubelets(bed, nodes=1, gpus=8)
    launch(bed)
    bed.admin.make(
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 100}
    )
    bed.admin.make(
        {
            "apiVersion": budget_version(bed),
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "kept", "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}},
        }
    )
    bed.admin.make(pod("kept", 8, labels={"app": "kept"}))
    eventually(lambda: all_run(view))
    bed.admin.make(pod("urgent", 8, priorityClassName="urgent"))

    def events() -> list[str]:
        found = bed.admin.items("/api/v1/namespaces/default/events")
        return [each["message"] for each in found if each["reason"] == "EvictionDelayed"]

    eventually(events, within_s=40)
    assert "deletionTimestamp" not in view.pods()["kept"]["metadata"]
    bed.admin.delete(f"/apis/{budget_version(bed)}/namespaces/default/poddisruptionbudgets/kept")
    eventually(lambda: view.node_of("urgent"), within_s=40)
    bed.admin.delete("/apis/scheduling.k8s.io/v1/priorityclasses/urgent")


@pytest.mark.parametrize("code", ["Forbidden", "Invalid"])
def test_policy_of_the_cluster_that_keeps_a_pod_delays_its_eviction_only(
    bed: Bed, view: View, launch: Launch, kubelets: Kubelets, code: str
) -> None:
    if bed.minor < POLICIES_SINCE:
        pytest.skip(f"release 1.{bed.minor} has no ValidatingAdmissionPolicy")
    kubelets(bed, nodes=2, gpus=8)
    name = f"guarded-{code.lower()}"
    policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]}
    keeps = {
        "expression": "!object.metadata.name.startsWith('guarded')",
        "message": "it cannot be evicted",
        "reason": code,
    }
    about = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "kept"}}
    spec: Json = {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]}, "validations": [keeps]}
    bed.admin.post(f"{policies}ies", {**about, "kind": "ValidatingAdmissionPolicy", "spec": spec})
    spec = {"policyName": "kept", "validationActions": ["Deny"]}
    bed.admin.post(f"{policies}ybindings", {**about, "kind": "ValidatingAdmissionPolicyBinding", "spec": spec})
    urgent = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 100,
    }
    bed.admin.make(urgent)
    try:
        launch(bed)
        bed.admin.make(pod(name, 8, nodeSelector={"kubernetes.io/hostname": "n1"}))
        eventually(lambda: all_run(view))
        eventually(lambda: refuses_eviction(bed, name))
        bed.admin.make(pod("urgent", 8, priorityClassName="urgent", nodeSelector={"kubernetes.io/hostname": "n1"}))
        delayed = eventually(lambda: delay_of(bed, name), within_s=40)
        assert "when the cluster allows it" in delayed
        bed.admin.make(pod("other", 8))
        eventually(lambda: view.node_of("other") == "n2")
        assert "deletionTimestamp" not in view.pods()[name]["metadata"]
    finally:
        bed.admin.delete(f"{policies}ybindings/kept")
        bed.admin.delete(f"{policies}ies/kept")
    eventually(lambda: view.node_of("urgent") == "n1", within_s=60)
    bed.admin.delete("/apis/scheduling.k8s.io/v1/priorityclasses/urgent")


def refuses_eviction(bed: Bed, name: str) -> bool:
    """Whether the server keeps a pod from being evicted; it only seems to try."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}
    try:
        bed.admin.post(f"/api/v1/namespaces/default/pods/{name}/eviction?dryRun=All", body)
    except KubeError as error:
        return error.status in (403, 422)
    return False


def delay_of(bed: Bed, name: str) -> str:
    """What the Event about a delayed eviction of a pod says; empty if there is none."""
    for each in bed.admin.items("/api/v1/namespaces/default/events"):
        if (each["reason"], each["involvedObject"]["name"]) == ("EvictionDelayed", name):
            return str(each["message"])
    return ""


def test_claims_of_pods_whose_deletion_was_never_seen_are_repaired(
    bed: Bed, view: View, launch: Launch, kubelets: Kubelets, weather: BadWeather
) -> None:
    kubelets(bed, nodes=1, gpus=8)
    replica = launch(bed, {"check_every": "1s"}, kubeconfig=weather.kubeconfig)
    bed.admin.make(pod("first", 8))
    eventually(lambda: all_run(view))
    weather.hides_deletions = True
    bed.admin.delete("/api/v1/namespaces/default/pods/first", NOW)
    bed.admin.make(pod("second", 8))

    eventually(lambda: view.node_of("second"), within_s=120)
    metrics = httpx.get(f"{replica.url}/metrics").text
    assert "rota_kubernetes_repairs_total 1.0" in metrics
