"""Pods that really run: kubelet and containerd of this machine, gangs bound by Rota, output and exit as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from e2e.kubernetes.bed import Bed, NoCluster
from e2e.kubernetes.kubelet import IMAGE, Kubelet
from e2e.kubernetes.replica import Replica, View, gang, pod, rota
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
    container: dict[str, Any] = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", 'echo "devices $DEVICES"; exit $CODE'],
        "env": [{"name": "DEVICES", "valueFrom": note}, {"name": "CODE", "value": "0"}],
        "resources": {"limits": {"nvidia.com/gpu": "2"}},
    }
    for value in gang("real", 2, 2, hostNetwork=True, restartPolicy="Never", containers=[container]):
        bed.admin.make(value)

    def have_succeeded() -> bool:
        return all(each["status"]["phase"] == "Succeeded" for each in view.pods().values())

    eventually(have_succeeded, within_s=60)
    assert [rota(bed, "logs", "real", "--task", task).stdout for task in "01"] == ["devices 0,1\n", "devices 2,3\n"]
    assert "the job has 2 tasks" in rota(bed, "logs", "real", "--task", "2").stderr

    container["env"][1] = {"name": "CODE", "value": "3"}
    bed.admin.make(pod("bad", 1, hostNetwork=True, restartPolicy="Never", containers=[container]))
    followed = rota(bed, "logs", "-f", "bad")
    assert (followed.returncode, followed.stdout, followed.stderr) == (100, "devices 0,1\n", "job bad failed\n")
