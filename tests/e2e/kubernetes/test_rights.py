"""Rights on a real server: those that are printed are enough, and a missing one is named before anything is done."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drivers.kubernetes.devices.cases import claim_object, class_object, slice_object
from e2e.kubernetes.bed import USERS, Bed
from e2e.kubernetes.hollow import Hollow
from e2e.kubernetes.replica import Replica, configure, job, pod, provisioning_type
from managers import eventually
from rota.core.errors import RotaError
from rota.drivers.kubernetes.api.client import Api, MissingRight
from rota.drivers.kubernetes.api.connection import connect
from rota.drivers.kubernetes.api.rights import Right, all_rights, check_rights, missing_rights
from rota.drivers.kubernetes.install.webhooks import webhook_configurations
from rota.sdk.client import Client

pytestmark = pytest.mark.slow
Launch = Callable[..., Replica]
Kubelets = Callable[..., Hollow]
Json = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
NAMESPACE = "rota-system"
RIGHTS = all_rights(NAMESPACE)


def grant(bed: Bed, user: str, rights: list[Right]) -> None:
    """Let a user do these things and nothing else."""
    for namespace in (None, NAMESPACE):
        kind = "ClusterRole" if namespace is None else "Role"
        where = {} if namespace is None else {"namespace": namespace}
        meta = {"name": user, **where}
        rules = [rule(right) for right in rights if right.namespace == namespace]
        bed.admin.make({"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": meta, "rules": rules})
        role = {"apiGroup": RBAC, "kind": kind, "name": user}
        who = {"apiGroup": RBAC, "kind": "User", "name": user}
        binding = {"apiVersion": f"{RBAC}/v1", "kind": f"{kind}Binding", "metadata": meta}
        bed.admin.make({**binding, "roleRef": role, "subjects": [who]})


def rule(right: Right) -> Json:
    made: Json = {"apiGroups": [right.group], "resources": [right.resource], "verbs": [right.verb]}
    return made if right.name is None else {**made, "resourceNames": [right.name]}


async def missing(kubeconfig: Path | None = None) -> list[Right]:
    api = Api(connect(None, kubeconfig), connections=2)
    try:
        return await missing_rights(api, RIGHTS)
    finally:
        await api.close()


async def check(kubeconfig: Path) -> None:
    api = Api(connect(None, kubeconfig), connections=2)
    try:
        await check_rights(api, RIGHTS)
    finally:
        await api.close()


def test_each_right_that_is_missing_is_named(bed: Bed, caplog: pytest.LogCaptureFixture) -> None:
    assert len(RIGHTS) <= USERS - 2  # other tests give rights to the last two
    for number, right in enumerate(RIGHTS):
        grant(bed, f"user-{number}", [each for each in RIGHTS if each != right])
    last = bed.kubeconfig(f"user-{len(RIGHTS) - 1}-token")
    eventually(lambda: len(asyncio.run(missing(last))) == 1)  # the server takes a moment to heed new rights
    for number, right in enumerate(RIGHTS):
        kubeconfig = bed.kubeconfig(f"user-{number}-token")
        if right.is_optional:
            with caplog.at_level(logging.WARNING):
                asyncio.run(check(kubeconfig))
            assert caplog.records[-1].rights == str(right)  # type: ignore[attr-defined]
        else:
            with pytest.raises(MissingRight, match=f"^a right is missing: {right}; `rota k8s manifests` prints all"):
                asyncio.run(check(kubeconfig))


def test_printed_rights_are_enough(bed: Bed) -> None:
    assert asyncio.run(missing(bed.kubeconfig())) == []


def test_replica_without_a_right_ends_with_its_name(bed: Bed, tmp_path: Path) -> None:
    grant(bed, "user-0", [right for right in RIGHTS if right.resource != "pods/eviction"])
    replica = Replica(bed, tmp_path, kubeconfig=bed.kubeconfig("user-0-token"))
    replica.launch()

    assert replica.process is not None
    assert replica.process.wait(timeout=30) == 2
    assert "error: a right is missing: create pods/eviction everywhere;" in replica.log.read_text()


def test_account_of_a_pod_is_used_where_there_is_no_kubeconfig(
    bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    granted = bed.admin.post(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/rota/token", request)
    (tmp_path / "token").write_text(granted["status"]["token"])
    (tmp_path / "namespace").write_text(NAMESPACE)
    (tmp_path / "ca.crt").write_text(bed.admin.authority.read_text())
    host, _, port = bed.server.removeprefix("https://").partition(":")
    monkeypatch.setattr("rota.drivers.kubernetes.api.connection.IN_POD", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)

    assert connect().namespace == NAMESPACE
    assert asyncio.run(missing()) == []
    (tmp_path / "token").write_text("expired")
    with pytest.raises(RotaError, match="the API server does not recognise the credentials"):
        asyncio.run(missing())


OTHERS = [
    ("jobset.x-k8s.io/v1alpha2", "JobSet"),
    *(("kubeflow.org/v1", f"{kind}Job") for kind in ("PyTorch", "TF", "MPI", "XGBoost", "Paddle", "JAX")),
    ("ray.io/v1", "RayCluster"),
]


def made_by(version: str, kind: str) -> Json:
    """A pod of a controller that the cluster does not have; Rota asks for it all the same."""
    value = pod(f"of-{kind.lower()}", 0, labels={"jobset.sigs.k8s.io/jobset-name": "set"} if kind == "JobSet" else {})
    owner = {"apiVersion": version, "kind": kind, "name": "x", "uid": f"uid-of-{kind}", "controller": True}
    value["metadata"]["ownerReferences"] = [owner]
    return value


def with_volume(name: str, provisioner: str) -> list[Json]:
    """A pod with a claim that waits for it; a volume is there unless one can be made."""
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
    storage = {"storage": "1Gi"}
    common: Json = {"accessModes": ["ReadWriteOnce"], "storageClassName": name}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}}
    mounts = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}}
    there = {**volume, "spec": {**common, "capacity": storage, "hostPath": {"path": "/tmp"}}}
    return [
        {**kind, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"},
        *([there] if provisioner.endswith("/no-provisioner") else []),
        {**claim, "spec": {**common, "resources": {"requests": storage}}},
        pod(f"volume-{name}", 0, volumes=mounts),
    ]


DEVICES = "resource.k8s.io"
FIRST_WITH_DEVICES = 34
"""The release that brought resource.k8s.io/v1."""


MARKS = {("get", "nodes"), ("patch", "nodes"), ("patch", "nodes/status")}
"""Needed where jobs of several tenants fail on a node, which test_node_health.py tries with these rights alone."""


def usable(right: Right, bed: Bed) -> bool:
    """Whether a right can be seen in the audit log: older servers have no claims, and binding one is a check inside."""
    if right.group == DEVICES and bed.minor < FIRST_WITH_DEVICES:
        return False
    return right.resource != "resourceclaims/binding" and (right.verb, right.resource) not in MARKS


def with_claim() -> list[Json]:
    """A pod with a ResourceClaim, and the device for it."""
    value = pod("claims", 0, resourceClaims=[{"name": "gpus", "resourceClaimName": "claimed"}])
    return [class_object(), slice_object("n1"), claim_object("claimed"), value]


def is_use(request: Json, right: Right) -> bool:
    """Whether a request needed a right."""
    about = request.get("objectRef", {})
    resource = "/".join(about[part] for part in ("resource", "subresource") if part in about)
    asked = (request["verb"], resource, about.get("apiGroup", ""))
    is_there = right.namespace in (None, about.get("namespace"))
    return asked == (right.verb, right.resource, right.group) and is_there and right.name in (None, about.get("name"))


def test_every_printed_right_is_used(
    managed: Bed, launch: Launch, kubelets: Kubelets, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubelets(managed, nodes=1, gpus=4, beats=True)
    configure(managed, provisioning={"request": True})
    managed.admin.make(provisioning_type())
    for lease in managed.admin.items(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"):
        name = lease["metadata"]["name"]
        managed.admin.delete(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{name}")
    managed.admin.make(pod("lead", 0, namespace=NAMESPACE, schedulerName="someone-else", nodeName="n1"))
    monkeypatch.setenv("POD_NAME", "lead")
    for value in webhook_configurations(NAMESPACE):
        managed.admin.make(value)
    webhook = ["--admission-port", "0", "--admission-url", "https://127.0.0.1:0", "--certificate-life", "9s"]
    before = len(managed.audited())
    replica = launch(managed, options=["--port", "0", *webhook])

    for version, kind in OTHERS:
        managed.admin.make(made_by(version, kind))
    group = {"apiVersion": "rota.dev/v1alpha1", "kind": "PodGroup", "metadata": {"name": "group"}}
    managed.admin.make({**group, "spec": {"minMember": 1}})
    own = {"apiVersion": "rota.dev/v1alpha1", "metadata": {"name": "default"}}
    for kind in ("Queue", "Topology", "SchedulingPolicy"):
        managed.admin.make({**own, "kind": kind, "spec": {"linger": "5s"} if kind == "SchedulingPolicy" else {}})
    managed.admin.make(pod("grouped", 0, labels={"rota.dev/pod-group": "group"}))
    for note in ("scheduling.k8s.io/group-name", "pod-group-name"):
        managed.admin.make(pod(note.replace(".", "-").replace("/", "-"), 0, notes={note: "theirs"}))
    for name, provisioner in (("there", "kubernetes.io/no-provisioner"), ("made", "example.com/maker")):
        for value in with_volume(name, provisioner):
            managed.admin.make(value)
    for value in with_claim() if managed.minor >= FIRST_WITH_DEVICES else ():
        managed.admin.make(value)
    managed.admin.make(job("ends", 1, 1, notes={"rota.dev/time-limit": "1"}))
    managed.admin.make(pod("waits", 8))
    managed.admin.make(pod("is-told-why", 8))
    managed.admin.make(pod("fills", 3))
    managed.admin.make(pod("grows", 4))
    client = Client(replica.url)
    waiting = eventually(lambda: [each["id"] for each in client.jobs() if each["name"] == "waits"])
    client.act(waiting[0], "cancel")

    asked = "/apis/autoscaling.x-k8s.io/v1/provisioningrequests"
    eventually(lambda: managed.admin.items(asked), within_s=60, every_s=0.3)
    managed.admin.delete("/api/v1/namespaces/default/pods/grows", {"gracePeriodSeconds": 0})

    def unused() -> list[str]:
        requests = managed.audited()[before:]
        known = [right for right in RIGHTS if usable(right, managed)]
        return [str(right) for right in known if not any(is_use(request, right) for request in requests)]

    with contextlib.suppress(AssertionError):
        eventually(lambda: all(each.startswith("watch ") for each in unused()), every_s=0.5)
    replica.stop()  # watches are on record once they have ended
    with contextlib.suppress(AssertionError):
        eventually(lambda: not unused(), within_s=60)
    for value in webhook_configurations(NAMESPACE):
        managed.admin.delete(f"{managed.admin.path_of(value)}/rota")
    for path in ("namespaces/default/queues", "topologies", "schedulingpolicies"):
        managed.admin.delete(f"/apis/rota.dev/v1alpha1/{path}")
    if managed.minor >= FIRST_WITH_DEVICES:
        for path in ("resourceslices", "deviceclasses", "namespaces/default/resourceclaims"):
            managed.admin.delete(f"/apis/{DEVICES}/v1/{path}")
    assert unused() == []
    assert [request for request in managed.audited()[before:] if _is_forbidden(request)] == []


def _is_forbidden(request: Json) -> bool:
    """Whether the printed rights did not suffice for a request."""
    return bool(request.get("responseStatus", {}).get("code") == 403)
