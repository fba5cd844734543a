"""Fractions of devices by annotation, and MIG slices as resources, on a real server."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from e2e.kubernetes.bed import Bed
from e2e.kubernetes.hollow import Hollow, node_object
from e2e.kubernetes.replica import Replica, View, pod
from managers import eventually

pytestmark = pytest.mark.slow
Launch = Callable[..., Replica]
Kubelets = Callable[..., Hollow]
HALF = {"rota.dev/gpu-fraction": "0.5"}


def test_halves_share_a_device_and_stay_over_a_restart(
    bed: Bed, view: View, launch: Launch, kubelets: Kubelets
) -> None:
    kubelets(bed, nodes=1, gpus=2)
    replica = launch(bed, {"fractions": True})
    for number in range(2):
        bed.admin.make(pod(f"half-{number}", 0, notes=HALF))
    eventually(lambda: len(view.bound("half")) == 2)
    bed.admin.make(pod("whole", 1))
    eventually(lambda: view.node_of("whole"))
    given = {name: each["metadata"]["annotations"]["rota.dev/devices"] for name, each in view.pods().items()}
    assert given["half-0"] == given["half-1"] != given["whole"]

    replica.kill()
    bed.admin.make(pod("half-2", 0, notes={"gpu-fraction": "0.5"}))
    replica.start()
    view.gets_reason("half-2", "devices-busy")
    bed.admin.delete("/api/v1/namespaces/default/pods/half-1", {"gracePeriodSeconds": 0})
    eventually(lambda: view.node_of("half-2"))
    assert view.pods()["half-2"]["metadata"]["annotations"]["rota.dev/devices"] == given["half-0"]


def test_slices_of_a_device_are_counted_as_the_resources_that_they_are(
    bed: Bed, view: View, launch: Launch, kubelets: Kubelets
) -> None:
    bed.admin.make(node_object("mig", 0, labels={}, **{"nvidia.com/mig-1g.5gb": "2"}))
    kubelets(bed, nodes=0)
    launch(bed)
    for number in range(3):
        value = pod(f"slice-{number}", 0)
        value["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/mig-1g.5gb": "1"}}
        bed.admin.make(value)
    eventually(lambda: len(view.bound("slice")) == 2)
    view.gets_reason("slice-2", "too little nvidia.com/mig-1g.5gb")
