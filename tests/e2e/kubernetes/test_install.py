"""`rota k8s install`, `upgrade` and `uninstall` on a real API server; the chart's output applies cleanly to it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

import forked
from drivers.kubernetes.test_install import ROOT, render
from e2e.kubernetes.bed import Bed, KubeError
from e2e.kubernetes.helm import FETCH, Helm, HelmFailed, helm_library
from rota.drivers.kubernetes.install.apply import KINDS
from rota.drivers.kubernetes.install.chart import VALUES
from rota.drivers.kubernetes.install.manifests import InstallOptions, manifests
from rota.drivers.kubernetes.resources.types import without_rules

pytestmark = pytest.mark.slow
Json = dict[str, Any]
NAMESPACE = "elsewhere"
INFO = 1
"""Helm's lowest severity of a message."""
FIRST_WITH_RULES = 25
"""The release since which the server checks rules of types (CEL) itself."""


def k8s(bed: Bed, verb: str, *args: str) -> subprocess.CompletedProcess[str]:
    where = ("--kubeconfig", str(bed.kubeconfig("admin-token")), "-n", NAMESPACE)
    return forked.run(["k8s", verb, *where, *args], timeout=120)


def there(bed: Bed) -> set[tuple[str, str]]:
    """What of an installation exists."""
    found = set()
    for name, kind in KINDS.items():
        if not kind.version.startswith("monitoring"):
            values = bed.admin.items(f"{kind.path(NAMESPACE)}?labelSelector=app.kubernetes.io/part-of=rota")
            found |= {(name, value["metadata"]["name"]) for value in values}
    return found


@pytest.fixture
def empty(bed: Bed) -> Iterator[Bed]:
    """A control plane that gets its own rights and types back afterwards."""
    yield bed
    for value in manifests(InstallOptions(release=(1, bed.minor))):
        if value["kind"] in ("ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"):
            bed.admin.make(value)
    for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"):
        try:
            bed.admin.delete(KINDS[kind].path("", "rota"))
        except KubeError as error:
            if error.status != 404:
                raise


def test_install_upgrade_uninstall(empty: Bed) -> None:
    bed = empty
    before = k8s(bed, "upgrade", "--no-wait")
    assert (before.returncode, before.stderr) == (
        2,
        f"error: Rota is not installed in namespace {NAMESPACE}; install it with `rota k8s install`\n",
    )
    first = k8s(bed, "install", "--no-wait", "--ingress-host", "rota.example", "--monitoring", "--image", "rota:old")
    assert first.returncode == 0, first.stderr
    assert "PrometheusRule rota left out: the cluster has no Prometheus operator" in first.stdout
    options = InstallOptions(namespace=NAMESPACE, ingress_host="rota.example", monitoring=True)
    wanted = {(each["kind"], each["metadata"]["name"]) for each in manifests(options)}
    assert wanted - there(bed) == {("ServiceMonitor", "rota"), ("PrometheusRule", "rota")}
    again = k8s(bed, "install", "--no-wait")
    assert again.returncode == 2
    assert "is installed in namespace elsewhere; change it with `rota k8s upgrade`" in again.stderr

    # the settings are the user's, and stay; what is no longer asked for goes
    settings = f"/api/v1/namespaces/{NAMESPACE}/configmaps/rota"
    bed.admin.patch(settings, {"data": {"rota.yaml": "policy: las\n"}})
    second = k8s(bed, "upgrade", "--no-wait", "--image", "rota:new")
    assert second.returncode == 0, second.stderr
    assert {"ConfigMap rota stays", "Ingress rota deleted", "Deployment rota applied"} <= set(
        second.stdout.splitlines()
    )
    assert bed.admin.get(settings)["data"] == {"rota.yaml": "policy: las\n"}
    deployment = bed.admin.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/rota")
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "rota:new"
    third = k8s(bed, "upgrade", "--no-wait", "--image", "rota:new")
    assert "Deployment rota unchanged" in third.stdout
    late = k8s(bed, "upgrade", "--no-wait", "--replicas", "0")
    assert late.returncode == 2

    queue = {"apiVersion": "rota.dev/v1alpha1", "kind": "Queue", "metadata": {"name": "kept"}, "spec": {}}
    bed.admin.make(queue)
    gone = k8s(bed, "uninstall")
    assert gone.returncode == 0, gone.stderr
    assert {kind for kind, _ in there(bed)} == {"ConfigMap", "CustomResourceDefinition", "Namespace"}
    assert bed.admin.get("/apis/rota.dev/v1alpha1/namespaces/default/queues/kept")
    assert gone.stdout.splitlines()[0] == "ValidatingWebhookConfiguration rota deleted"
    bed.admin.delete("/apis/rota.dev/v1alpha1/namespaces/default/queues/kept")


def test_chart_applies_cleanly_and_a_second_time(empty: Bed) -> None:
    bed = empty
    bed.admin.make({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "charted"}})
    values = {**VALUES, "ingress": {**VALUES["ingress"], "enabled": True}}
    for _ in range(2):
        objects: list[Json] = list(yaml.safe_load_all(render(values, "charted")))
        for value in without_rules(objects) if bed.minor < FIRST_WITH_RULES else objects:
            kind = KINDS[value["kind"]]
            path = kind.path("charted", value["metadata"]["name"])
            bed.admin.ask("PATCH", f"{path}?fieldManager=helm&force=true", value, "application/apply-patch+yaml")
            assert bed.admin.get(path)["metadata"]["name"] == value["metadata"]["name"]
    for value in yaml.safe_load_all(render(values, "charted")):
        if value["kind"] != "CustomResourceDefinition":
            bed.admin.delete(KINDS[value["kind"]].path("charted", value["metadata"]["name"]))


def test_helm_installs_upgrades_and_uninstalls(empty: Bed) -> None:
    """Helm itself, with its own checks of the objects and server-side apply."""
    library = helm_library()
    if library is None:
        pytest.skip(f"Helm is not here; `{FETCH} ~/.cache/rota/helm` fetches it")
    bed, chart = empty, ROOT / "deploy" / "chart"
    for value in bed.admin.items("/apis/apiextensions.k8s.io/v1/customresourcedefinitions"):
        bed.admin.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{value['metadata']['name']}")
    for kind in ("clusterroles", "clusterrolebindings"):
        of_rota = f"/apis/rbac.authorization.k8s.io/v1/{kind}?labelSelector=app.kubernetes.io/part-of=rota"
        bed.admin.delete(of_rota)
    helm = Helm(library, bed.kubeconfig("admin-token"), "helmed")
    assert not [each for each in helm.lint(chart)["Messages"] or [] if each["Severity"] > INFO]
    if bed.minor < FIRST_WITH_RULES:
        with pytest.raises(HelmFailed, match=r"chart requires kubeVersion: >=1\.25\.0-0 which is incompatible"):
            helm.install("rota", chart, {})
        return

    made = helm.install("rota", chart, {"settings": "policy: las\n"})
    assert made["info"]["status"] == "deployed"
    deployment = "/apis/apps/v1/namespaces/helmed/deployments/rota"
    assert bed.admin.get(deployment)["spec"]["replicas"] == 2
    queue = {"apiVersion": "rota.dev/v1alpha1", "kind": "Queue", "metadata": {"name": "kept"}, "spec": {}}
    bed.admin.make(queue)

    helm.upgrade("rota", chart, {"replicas": 3, "ingress": {"enabled": True}})
    assert bed.admin.get(deployment)["spec"]["replicas"] == 3
    assert bed.admin.get("/apis/networking.k8s.io/v1/namespaces/helmed/ingresses/rota")
    helm.uninstall("rota")
    with pytest.raises(KubeError):
        bed.admin.get(deployment)
    assert bed.admin.get("/apis/rota.dev/v1alpha1/namespaces/default/queues/kept")
    bed.admin.delete("/apis/rota.dev/v1alpha1/namespaces/default/queues/kept")
