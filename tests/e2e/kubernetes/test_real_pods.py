"""Pods that really run: kubelet and containerd of this machine, gangs bound by Rota, output and exit as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from e2e.kubernetes.bed import Bed, NoCluster
from e2e.kubernetes.kubelet import IMAGE, Kubelet
from e2e.kubernetes.replica import Replica, View, gang
from managers import eventually

pytestmark = pytest.mark.slow


@pytest.fixture
def real(bed: Bed) -> Iterator[Kubelet]:
    try:
        node = Kubelet(bed)
    except NoCluster as error:
        pytest.skip(str(error))
    try:
        node.start()
    except NoCluster as error:
        node.stop()
        pytest.skip(str(error))
    yield node
    node.stop()


def test_gang_really_runs_on_its_devices_and_ends(
    bed: Bed, view: View, real: Kubelet, launch: Callable[..., Replica]
) -> None:
    launch(bed)
    note = {"fieldRef": {"fieldPath": "metadata.annotations['rota.dev/devices']"}}
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", 'echo "devices $DEVICES" > /dev/termination-log'],
        "env": [{"name": "DEVICES", "valueFrom": note}],
        "resources": {"limits": {"nvidia.com/gpu": "2"}},
    }
    for value in gang("real", 2, 2, hostNetwork=True, restartPolicy="Never", containers=[container]):
        bed.admin.make(value)

    def have_succeeded() -> bool:
        return all(pod["status"]["phase"] == "Succeeded" for pod in view.pods().values())

    eventually(have_succeeded, within_s=60)
    said = {
        pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"].strip() for pod in view.pods().values()
    }
    assert said == {"devices 0,1", "devices 2,3"}
