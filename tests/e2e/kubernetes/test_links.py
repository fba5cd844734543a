"""A control plane whose settings have a network: pods are bound with ranks by its links, interfaces and turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from e2e.kubernetes.bed import Bed
from e2e.kubernetes.hollow import Hollow
from e2e.kubernetes.replica import Replica, View, gang
from managers import eventually

pytestmark = pytest.mark.slow
NETWORK = {
    "topology": "fat-tree",
    "nodes": ["n1", "n3", "n2", "n4"],
    "per_leaf": 2,
    "spines": 1,
    "oversubscription": 2,
    "link": "8Gbps",
    "between": "cassini",
    "interface": "eth1",
    "models": {"mine": {"compute": "600ms", "bytes": "400MB", "overlap": 0}},
}


def test_pods_are_bound_with_ranks_and_turns_that_outlive_the_scheduler(
    bed: Bed, view: View, launch: Callable[..., Replica], kubelets: Callable[..., Hollow]
) -> None:
    kubelets(bed, nodes=4, gpus=8)
    replica = launch(bed, {"network": NETWORK})

    def bound(name: str, gpus: int) -> list[dict[str, Any]]:
        """Pods of a gang with one on each node, in the order of ranks."""
        for value in gang(name, 4, gpus, notes={"rota.dev/model": "mine"}):
            bed.admin.make(value)
        eventually(lambda: len(view.bound(f"{name}-")) == 4)
        pods = [pod for found, pod in view.pods().items() if found.startswith(f"{name}-")]
        return sorted(pods, key=lambda pod: int(pod["metadata"]["annotations"]["rota.dev/seat"]))

    def terms(pods: list[dict[str, Any]]) -> tuple[float, float]:
        """The turn, which is the same for all pods of a gang."""
        found = {
            tuple(pod["metadata"]["annotations"][f"rota.dev/{key}"] for key in ("shift", "period")) for pod in pods
        }
        assert len(found) == 1
        shift, period = found.pop()
        return float(shift), float(period)

    first = bound("first", 5)
    assert [pod["spec"]["nodeName"] for pod in first] == ["n1", "n3", "n2", "n4"]  # two below each switch
    assert {pod["metadata"]["annotations"]["rota.dev/interface"] for pod in first} == {"eth1"}
    first_s, period_s = terms(first)
    assert first_s == 0.0

    replica.kill()
    launch(bed, {"network": NETWORK})
    second = bound("second", 3)

    assert [pod["spec"]["nodeName"] for pod in second] == ["n1", "n3", "n2", "n4"]
    second_s, other_s = terms(second)
    assert 0.25 * period_s < second_s < 0.75 * period_s
    assert other_s == pytest.approx(period_s, rel=0.06)
