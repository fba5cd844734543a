"""Tenants by count: namespaces are tenants, borrow what others leave idle, and have what is theirs when they ask."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from e2e.kubernetes.bed import Bed
from e2e.kubernetes.hollow import Hollow
from e2e.kubernetes.replica import Replica, View, job, pod
from managers import eventually

pytestmark = pytest.mark.slow
Launch = Callable[..., Replica]
Kubelets = Callable[..., Hollow]
SHARES = {"tenancy": "quota", "policy": "fifo", "tenants": {"nlp": {"gpus": 4}, "vision": {"gpus": 4, "limit": 6}}}


def running(view: View, namespace: str, prefix: str = "") -> int:
    return sum(
        each["status"]["phase"] == "Running" and "deletionTimestamp" not in each["metadata"]
        for name, each in view.pods(namespace).items()
        if name.startswith(prefix)
    )


def test_namespaces_have_their_shares_and_borrow_what_is_idle(managed: Bed, launch: Launch, kubelets: Kubelets) -> None:
    seen = View(managed.admin)
    for name in ("nlp", "vision", "guests"):
        managed.admin.make({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    kubelets(managed, nodes=1, beats=True)
    launch(managed, SHARES)
    for number in range(4):
        managed.admin.make(job(f"job-{number}", 1, 2, namespace="nlp"))
    eventually(lambda: running(seen, "nlp") == 4)  # four of eight devices are borrowed

    managed.admin.make(job("owner", 2, 2, namespace="vision"))

    eventually(lambda: running(seen, "vision") == 2)
    eventually(lambda: running(seen, "nlp") == 2)
    managed.admin.make(pod("guest", 1, namespace="guests"))
    managed.admin.make(job("more", 1, 4, namespace="vision"))
    waits = eventually(lambda: [name for name in seen.pods("vision") if name.startswith("more")])[0]
    seen.gets_reason(waits, "quota-used: needs 4 devices; tenant vision may use 6", "vision")
    seen.gets_reason("guest", "share-used: needs 1 device", "guests")
    assert seen.promised_twice() == []


def test_shares_larger_than_the_cluster_is_now(bed: Bed, view: View, launch: Launch, kubelets: Kubelets) -> None:
    kubelets(bed, nodes=1, gpus=4)
    launch(bed, {**SHARES, "tenants": {"default": {"gpus": 12}}})
    bed.admin.make(pod("small", 4))
    eventually(lambda: view.node_of("small"))
