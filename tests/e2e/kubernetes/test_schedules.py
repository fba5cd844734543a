"""Rota on a real API server: pods are bound with their devices, gangs whole, and say why they wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from e2e.kubernetes.bed import Bed
from e2e.kubernetes.hollow import Hollow, node_object
from e2e.kubernetes.replica import Replica, View, gang, pod
from managers import eventually

pytestmark = pytest.mark.slow
Launch = Callable[..., Replica]
Kubelets = Callable[..., Hollow]


def test_pod_is_bound_with_its_devices_in_one_write(bed: Bed, view: View, launch: Launch, kubelets: Kubelets) -> None:
    kubelets(bed, nodes=1)
    launch(bed)
    bed.admin.make(pod("one", 2))

    eventually(lambda: view.pods()["one"]["status"]["phase"] == "Running")

    made = view.pods()["one"]
    assert made["spec"]["nodeName"] == "n1"
    assert made["metadata"]["annotations"]["rota.dev/devices"] == "0,1"


def test_gang_waits_for_its_last_pod_and_says_so(bed: Bed, view: View, launch: Launch, kubelets: Kubelets) -> None:
    kubelets(bed, nodes=2)
    launch(bed)
    pods = gang("train", 4, 4)
    for value in pods[:3]:
        bed.admin.make(value)

    view.gets_reason("train-0", "gang-incomplete: 3 of 4 pods exist; all start together")
    assert view.bound("train") == {}
    bed.admin.make(pods[3])
    eventually(lambda: len(view.bound("train")) == 4)
    assert view.promised_twice() == []


def test_gang_that_does_not_fit_holds_nothing_and_tells_why(
    bed: Bed, view: View, launch: Launch, kubelets: Kubelets
) -> None:
    kubelets(bed, nodes=2)
    launch(bed)
    for value in gang("large", 3, 8):
        bed.admin.make(value)

    view.gets_reason("large-2", "never-fits: needs 24 devices")
    bed.admin.make(pod("small", 8))
    eventually(lambda: view.node_of("small"))
    assert view.bound("large") == {}
    events = bed.admin.items("/api/v1/namespaces/default/events")
    assert any(each["reason"] == "FailedScheduling" and "24 devices" in each["message"] for each in events)


def test_pods_of_others_are_respected(bed: Bed, view: View, launch: Launch, kubelets: Kubelets) -> None:
    kubelets(bed, nodes=1)
    other = pod("other", 6, schedulerName="someone-else", nodeName="n1")
    bed.admin.make(other)
    launch(bed)
    bed.admin.make(pod("four", 4))

    view.gets_reason("four", "devices-busy: needs 4 devices, 2 devices available now")
    bed.admin.delete("/api/v1/namespaces/default/pods/other", {"gracePeriodSeconds": 0})
    eventually(lambda: view.node_of("four"))


def test_node_takes_no_more_pods_than_it_says(bed: Bed, view: View, launch: Launch, kubelets: Kubelets) -> None:
    bed.admin.make(node_object("small", 8, pods="3"))
    kubelets(bed, nodes=0)
    bed.admin.make(pod("other", 0, schedulerName="someone-else", nodeName="small"))
    launch(bed)
    bed.admin.make(pod("first", 1))
    eventually(lambda: view.node_of("first"))
    for value in gang("pair", 2, 0):
        bed.admin.make(value)
    eventually(lambda: view.waiting_for("pair-0"))
    assert view.bound("pair") == {}

    bed.admin.make(node_object("more", 0, pods="2"))

    eventually(lambda: view.bound("pair") == {"pair-0": "more", "pair-1": "more"})
    bed.admin.make(pod("second", 1))
    eventually(lambda: view.node_of("second"))
    bed.admin.make(pod("third", 1))
    eventually(lambda: view.waiting_for("third"))
    bed.admin.delete("/api/v1/namespaces/default/pods/other", {"gracePeriodSeconds": 0})
    eventually(lambda: view.node_of("third"))


def test_devices_of_another_kind_are_not_mistaken_for_the_usual_one(
    bed: Bed, view: View, launch: Launch, kubelets: Kubelets
) -> None:
    kubelets(bed, nodes=1, gpus=2)
    devices: dict[str, Any] = {"amd.com/gpu": "2"}
    bed.admin.make(node_object("other", 0, **devices))
    launch(bed)
    for name, kind in (("first", "amd.com/gpu"), ("second", "amd.com/gpu"), ("third", "nvidia.com/gpu")):
        value = pod(name, 0)
        value["spec"]["containers"][0]["resources"] = {"limits": {kind: "2"}}
        bed.admin.make(value)
    bed.admin.make(pod("plain", 0, nodeSelector={"kubernetes.io/hostname": "other"}))

    eventually(lambda: set(view.bound("")) == {"first", "third", "plain"})
    assert (view.node_of("first"), view.node_of("third"), view.node_of("plain")) == ("other", "n1", "other")
    view.gets_reason("second", "devices-busy: needs 2 devices")
