"""The health of nodes on a cluster: from their conditions, and to their conditions and taints."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from e2e.kubernetes.bed import Bed
from e2e.kubernetes.hollow import Hollow
from e2e.kubernetes.replica import Replica, View, pod
from managers import eventually
from rota.live.health.node_marks import LOOK_S

pytestmark = pytest.mark.slow
Launch = Callable[..., Replica]
Kubelets = Callable[..., Hollow]
FAILS = {"hollow/run-s": "0.1", "hollow/exit": "1"}
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
SUSPECT = {"key": "rota.dev/health", "value": "suspect", "effect": "NoSchedule"}


def nodes_of(replica: Replica) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = httpx.get(f"{replica.url}/api/v1/nodes", timeout=30).json()
    return found


def condition(bed: Bed, node: str, kind: str, status: str) -> None:
    body = {"status": {"conditions": [{"type": kind, "status": status, "reason": "r", "message": "Xid 79"}]}}
    bed.admin.ask("PATCH", f"/api/v1/nodes/{node}/status", body, STRATEGIC)


def test_condition_of_a_node_takes_it_out_of_use_until_it_is_over(
    bed: Bed, view: View, launch: Launch, kubelets: Kubelets
) -> None:
    kubelets(bed, nodes=1, gpus=8)
    (name,) = (each["metadata"]["name"] for each in bed.admin.items("/api/v1/nodes"))
    replica = launch(bed)
    condition(bed, name, "XIDErrors", "True")
    eventually(lambda: nodes_of(replica)[0]["health"] == "bad")
    assert nodes_of(replica)[0]["health_why"] == "condition XIDErrors is True: Xid 79"

    bed.admin.make(pod("a"))
    eventually(lambda: "down, drained" in view.waiting_for("a"))
    condition(bed, name, "XIDErrors", "False")

    eventually(lambda: view.node_of("a") == name)


def test_node_on_which_jobs_of_several_tenants_fail_is_marked_and_cleared_by_hand(
    bed: Bed, view: View, launch: Launch, kubelets: Kubelets
) -> None:
    kubelets(bed, nodes=2, gpus=8)
    first, second = (each["metadata"]["name"] for each in bed.admin.items("/api/v1/nodes"))
    for space in ("vision", "nlp"):
        bed.admin.make({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}})
    replica = launch(bed)

    def node() -> dict[str, Any]:
        return bed.admin.get(f"/api/v1/nodes/{first}")

    def taints() -> list[dict[str, str]]:
        return bed.admin.get(f"/api/v1/nodes/{first}")["spec"].get("taints") or []

    for number in range(4):
        for space in ("vision", "nlp"):
            at: dict[str, Any] = {"nodeSelector": {"kubernetes.io/hostname": first}}
            bed.admin.make(pod(f"bad{number}", namespace=space, notes=FAILS, **at))
            at = {"nodeSelector": {"kubernetes.io/hostname": second}}
            bed.admin.make(pod(f"good{number}", namespace=space, notes={"hollow/run-s": "0.1"}, **at))
    eventually(lambda: SUSPECT in taints(), within_s=60)

    found = [each for each in node()["status"]["conditions"] if each["type"] == "RotaSuspect"]
    assert [(each["status"], each["reason"]) for each in found] == [("True", "JobsFail")]
    assert "failed here" in found[0]["message"]
    eventually(lambda: {each["id"]: each["health"] for each in nodes_of(replica)}[first] == "suspect")
    assert {each["id"]: each["health"] for each in nodes_of(replica)}[second] == "healthy"
    tolerant: dict[str, Any] = {"tolerations": [{"key": SUSPECT["key"], "operator": "Exists"}]}
    at = {"nodeSelector": {"kubernetes.io/hostname": first}}
    bed.admin.make(pod("strict", **at))
    bed.admin.make(pod("bold", **at, **tolerant))
    eventually(lambda: view.node_of("bold") == first)
    assert view.node_of("strict") is None

    replica.kill()
    replica.start()
    eventually(lambda: "failed here" in nodes_of(replica)[0]["health_why"])  # what the one before has marked
    replica.kill()
    bed.admin.ask("PATCH", f"/api/v1/nodes/{first}", {"spec": {"taints": None}}, MERGE)
    replica.start()  # it finds the condition without the taint
    eventually(lambda: view.node_of("strict") == first)
    eventually(
        lambda: (
            [each["status"] for each in node()["status"]["conditions"] if each["type"] == "RotaSuspect"] == ["False"]
        )
    )


def test_pods_that_users_delete_are_no_sign_against_their_node(
    bed: Bed, view: View, launch: Launch, kubelets: Kubelets
) -> None:
    kubelets(bed, nodes=2, gpus=8)
    first, second = (each["metadata"]["name"] for each in bed.admin.items("/api/v1/nodes"))
    for space in ("vision", "nlp"):
        bed.admin.make({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}})
    replica = launch(bed)
    for number in range(4):
        for space in ("vision", "nlp"):
            at: dict[str, Any] = {"nodeSelector": {"kubernetes.io/hostname": first}}
            bed.admin.make(pod(f"deleted{number}", namespace=space, **at))
            at = {"nodeSelector": {"kubernetes.io/hostname": second}}
            bed.admin.make(pod(f"good{number}", namespace=space, notes={"hollow/run-s": "0.1"}, **at))

    def pods() -> list[dict[str, Any]]:
        return [*view.pods("vision").values(), *view.pods("nlp").values()]

    eventually(lambda: len(pods()) == 16 and all(each["status"]["phase"] != "Pending" for each in pods()))
    for space in ("vision", "nlp"):
        for number in range(4):
            bed.admin.delete(f"/api/v1/namespaces/{space}/pods/deleted{number}", {"gracePeriodSeconds": 0})

    eventually(lambda: len(re.findall(r"job=deleted\S+ .*state=cancelled", replica.log.read_text())) == 8)
    bed.admin.make(pod("fails", notes=FAILS, nodeSelector={"kubernetes.io/hostname": second}))
    eventually(lambda: view.pods()["fails"]["status"]["phase"] == "Failed")
    time.sleep(2 * LOOK_S)
    assert not bed.admin.get(f"/api/v1/nodes/{first}")["spec"].get("taints")
