"""Queues, topologies and policies as objects of a real API server: their effect, their status, and rights."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from e2e.kubernetes.bed import Bed, Kube, KubeError, binary
from e2e.kubernetes.hollow import Hollow
from e2e.kubernetes.replica import Replica, View, configure, pod
from managers import eventually

pytestmark = pytest.mark.slow
Launch = Callable[..., Replica]
Kubelets = Callable[..., Hollow]
Json = dict[str, Any]
OBJECTS = "/apis/rota.dev/v1alpha1"


def queue(name: str, namespace: str, **spec: Any) -> Json:
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "rota.dev/v1alpha1", "kind": "Queue", "metadata": meta, "spec": spec}


def whole(kind: str, name: str, **spec: Any) -> Json:
    return {"apiVersion": "rota.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def shared(bed: Bed) -> Iterator[Bed]:
    """A control plane with namespaces for queues, without queues afterwards."""
    for name in ("nlp", "vision"):
        bed.admin.make({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield bed
    for name in ("nlp", "vision", "default"):
        bed.admin.delete(f"{OBJECTS}/namespaces/{name}/queues")
    for plural in ("topologies", "schedulingpolicies"):
        bed.admin.delete(f"{OBJECTS}/{plural}")


def condition(bed: Bed, path: str) -> tuple[str, str]:
    for each in (bed.admin.get(f"{OBJECTS}/{path}").get("status") or {}).get("conditions", ()):
        return each["status"], each["message"]
    return "", ""


def status_of(bed: Bed, path: str) -> Json:
    found: Json = bed.admin.get(f"{OBJECTS}/{path}").get("status") or {}
    return found


def table(bed: Bed, token: str, *args: str) -> list[list[str]]:
    """What `kubectl get` prints, word by word."""
    kubectl = binary("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl")
    command = [str(kubectl), "--kubeconfig", str(bed.kubeconfig(token)), "--cache-dir", "/nonexistent", "get", *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return [line.split() for line in (done.stdout or done.stderr).splitlines()]


def test_queues_share_out_devices_and_show_their_use(shared: Bed, launch: Launch, kubelets: Kubelets) -> None:
    bed, view = shared, View(shared.admin)
    kubelets(bed, nodes=1, gpus=8)
    configure(bed, policy="fifo")
    bed.admin.make(queue("nlp", "nlp", guaranteed={"*": 4}))
    bed.admin.make(queue("vision", "vision", guaranteed={"*": 4}))
    bed.admin.make(queue("lost", "vision", parent="nowhere"))
    launch(bed, options=["--no-leader-election"])
    for number in range(4):
        bed.admin.make(pod(f"p{number}", 2, namespace="nlp"))
    eventually(lambda: len(view.bound("p", "nlp")) == 4)  # four of the eight devices are borrowed
    bed.admin.make(pod("more", 8, namespace="nlp"))

    wanted = {"guaranteed": 4, "used": 8, "borrowed": 4, "waiting": 1, "running": 4}
    eventually(lambda: wanted.items() <= status_of(bed, "namespaces/nlp/queues/nlp").items())
    refused = ("False", "parent is 'nowhere'; known: nlp, vision")
    eventually(lambda: condition(bed, "namespaces/vision/queues/lost") == refused)
    head, *rows = table(bed, "admin-token", "queues", "--all-namespaces")
    assert head[:6] == ["NAMESPACE", "NAME", "GUARANTEED", "USED", "WAITING", "RUNNING"]
    assert ["nlp", "nlp", "4", "8", "1", "4"] in [row[:6] for row in rows]

    # the owner takes back what is lent, though the ConfigMap says nothing of tenants
    bed.admin.make(pod("owner", 4, namespace="vision"))
    eventually(lambda: view.node_of("owner", "vision"))
    eventually(lambda: status_of(bed, "namespaces/vision/queues/vision").get("used") == 4)

    # a change takes effect without a restart, and pods stay in their own namespace's queues
    bed.admin.patch(f"{OBJECTS}/namespaces/nlp/queues/nlp", {"spec": {"limit": {"*": 4}}})
    bed.admin.make(pod("thief", 1, namespace="nlp", labels={"rota.dev/queue": "vision"}))
    words = "refused: rota.dev/queue is 'vision'; namespace nlp has: nlp"
    eventually(lambda: view.waiting_for("thief", "nlp") == words)
    bed.admin.make(pod("limited", 6, namespace="nlp"))
    words = "refused: tenants.nlp.limit is 4; a job of 6 devices can never start there"
    eventually(lambda: view.waiting_for("limited", "nlp") == words)


def test_policy_and_topology_take_effect_and_a_mistake_changes_nothing(
    shared: Bed, launch: Launch, kubelets: Kubelets
) -> None:
    bed = shared
    kubelets(bed, nodes=2, gpus=8)
    configure(bed, policy="fifo")
    replica = launch(bed, options=["--no-leader-election"])
    bed.admin.make(whole("SchedulingPolicy", "default", policy="las", gangTimeout="20s"))
    eventually(lambda: "with policy las" in replica.log.read_text())
    eventually(lambda: condition(bed, "schedulingpolicies/default")[0] == "True")

    bed.admin.patch(f"{OBJECTS}/schedulingpolicies/default", {"spec": {"policy": "lsa"}})
    eventually(lambda: condition(bed, "schedulingpolicies/default")[0] == "False")
    assert "did you mean 'las'?" in condition(bed, "schedulingpolicies/default")[1]
    bed.admin.patch("/api/v1/nodes/n1", {"metadata": {"labels": {"example/block": "b1"}}})
    bed.admin.make(whole("Topology", "blocks", levels=[{"nodeLabel": "example/block"}]))
    places = [{"nodeLabel": "example/block", "places": 1}]
    eventually(lambda: status_of(bed, "topologies/blocks").get("levels") == places)
    assert replica.process is not None
    assert replica.process.poll() is None


def test_users_of_a_namespace_see_its_queues_and_cannot_raise_them(shared: Bed) -> None:
    bed = shared
    bed.admin.make(queue("nlp", "nlp", guaranteed={"*": 4}))
    rbac = "rbac.authorization.k8s.io"
    for name, role in (("user-94", "rota-user"), ("user-95", "rota-queue-admin")):
        bed.admin.make(
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "RoleBinding",
                "metadata": {"name": name, "namespace": "nlp"},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
                "subjects": [{"apiGroup": rbac, "kind": "User", "name": name}],
            }
        )
    path = f"{OBJECTS}/namespaces/nlp/queues"
    user, chief = (Kube(bed.server, f"user-{number}-token", bed.admin.authority) for number in (94, 95))

    def may(kube: Kube, method: str, where: str, body: Json | None = None) -> bool:
        try:
            kube.ask(method, where, body, "application/merge-patch+json" if method == "PATCH" else "application/json")
        except KubeError as error:
            if error.status != 403:
                raise
            return False
        return True

    more = {"spec": {"guaranteed": {"*": 400}}}
    eventually(lambda: may(user, "GET", path) and may(chief, "PATCH", f"{path}/nlp", more))
    assert not may(user, "PATCH", f"{path}/nlp", more)
    assert not may(user, "POST", path, queue("mine", "nlp"))
    assert not may(user, "GET", f"{OBJECTS}/namespaces/vision/queues")
    assert not may(chief, "POST", f"{OBJECTS}/namespaces/vision/queues", queue("mine", "vision"))
    assert not may(chief, "GET", f"{OBJECTS}/schedulingpolicies")
    user.close()
    chief.close()


CONTRADICTIONS = [
    (queue("wrong", "nlp", guaranteed={"*": 4}, limit={"*": 2}), "limit is less than what is guaranteed; raise it"),
    (queue("wrong", "nlp", borrowing=False, limit={"*": 2}), "borrowing is false, so that the guarantee is the limit"),
    (whole("Topology", "wrong", levels=[{"nodeLabel": "a"}, {"nodeLabel": "a"}]), "levels names a node label twice"),
    (whole("SchedulingPolicy", "second", policy="las"), "the name must be default"),
]


@pytest.mark.parametrize(("value", "words"), CONTRADICTIONS, ids=[each[0]["kind"] for each in CONTRADICTIONS])
def test_api_server_itself_refuses_contradictions(shared: Bed, value: Json, words: str) -> None:
    definitions = shared.admin.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/queues.rota.dev")
    if "x-kubernetes-validations" not in repr(definitions):
        pytest.skip("releases before 1.25 have no validation rules")
    with pytest.raises(KubeError, match=words):
        shared.admin.make(value)


def test_api_server_refuses_fields_of_the_wrong_type(shared: Bed) -> None:
    for spec in ({"guaranteed": {"*": -1}}, {"guaranteed": {"*": "many"}}, {"weight": 0}, {"perUser": 0}):
        with pytest.raises(KubeError, match=r"Invalid value|should be greater|must be"):
            shared.admin.make(queue("wrong", "nlp", **spec))
