"""Installs, upgrades and uninstalls Rota through the API server, with server-side apply."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rota import __version__
from rota.core.errors import RotaError
from rota.drivers.kubernetes.admission.registration import SECRET
from rota.drivers.kubernetes.api.client import Api, ApiRefused
from rota.drivers.kubernetes.api.rights import NAME
from rota.drivers.kubernetes.resources.types import CEL_SINCE

Json = dict[str, Any]
Say = Callable[[str], None]
APPLY = "application/apply-patch+yaml"
MANAGER = "rota-install"
SELECTOR = f"app.kubernetes.io/part-of={NAME}"
_GONE, _CONFLICT = 404, 409
WAIT_S = 300.0
OLDEST = (1, 20)
"""The oldest release that Rota supports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectKind:
    """A kind of object of an installation, as its path needs it."""

    version: str
    plural: str
    namespaced: bool = True
    kept: bool = False
    """Whether it stays when Rota is uninstalled: users' objects are in it or depend on it."""

    def path(self, namespace: str, name: str = "") -> str:
        """Return the path of an object, or of the collection."""
        root = f"/api/{self.version}" if "/" not in self.version else f"/apis/{self.version}"
        where = f"/namespaces/{namespace}" if self.namespaced else ""
        return f"{root}{where}/{self.plural}" + (f"/{name}" if name else "")


_RBAC, _REGISTRATION, _MONITORING = (
    "rbac.authorization.k8s.io/v1",
    "admissionregistration.k8s.io/v1",
    "monitoring.coreos.com/v1",
)
KINDS = {
    "ValidatingWebhookConfiguration": ObjectKind(
        version=_REGISTRATION, plural="validatingwebhookconfigurations", namespaced=False
    ),
    "MutatingWebhookConfiguration": ObjectKind(
        version=_REGISTRATION, plural="mutatingwebhookconfigurations", namespaced=False
    ),
    "Ingress": ObjectKind(version="networking.k8s.io/v1", plural="ingresses"),
    "ServiceMonitor": ObjectKind(version=_MONITORING, plural="servicemonitors"),
    "PrometheusRule": ObjectKind(version=_MONITORING, plural="prometheusrules"),
    "Deployment": ObjectKind(version="apps/v1", plural="deployments"),
    "Service": ObjectKind(version="v1", plural="services"),
    "RoleBinding": ObjectKind(version=_RBAC, plural="rolebindings"),
    "Role": ObjectKind(version=_RBAC, plural="roles"),
    "ClusterRoleBinding": ObjectKind(version=_RBAC, plural="clusterrolebindings", namespaced=False),
    "ClusterRole": ObjectKind(version=_RBAC, plural="clusterroles", namespaced=False),
    "ServiceAccount": ObjectKind(version="v1", plural="serviceaccounts"),
    "ConfigMap": ObjectKind(version="v1", plural="configmaps", kept=True),
    "CustomResourceDefinition": ObjectKind(
        version="apiextensions.k8s.io/v1", plural="customresourcedefinitions", namespaced=False, kept=True
    ),
    "Namespace": ObjectKind(version="v1", plural="namespaces", namespaced=False, kept=True),
}
"""In the order of deletion: first what would refuse pods while nothing answers."""


async def release_of(api: Api) -> tuple[int, int]:
    """Return the release of the API server, as (1, 31); what it serves tells that of one that names none."""
    found = await api.get("/version")
    major, minor = ("".join(filter(str.isdigit, str(found.get(name, "")))) for name in ("major", "minor"))
    if major and minor:
        return int(major), int(minor)
    served = {
        f"{group['name']}/{each['version']}"
        for group in (await api.get("/apis"))["groups"]
        for each in group["versions"]
    }
    return CEL_SINCE if "policy/v1" in served and "batch/v1beta1" not in served else OLDEST


async def installed_version(api: Api, namespace: str) -> str | None:
    """Return the version of the Rota in a namespace; None if there is none."""
    try:
        found = await api.get(KINDS["Deployment"].path(namespace, NAME))
    except ApiRefused as error:
        if error.status != _GONE:
            raise
        return None
    return str((found["metadata"].get("labels") or {}).get("app.kubernetes.io/version", "of an unknown version"))


async def install(api: Api, namespace: str, objects: Sequence[Json], say: Say) -> None:
    """Create everything; refused where Rota is installed already."""
    there = await installed_version(api, namespace)
    if there is not None:
        raise RotaError(f"Rota {there} is installed in namespace {namespace}; change it with `rota k8s upgrade`")
    await _apply_all(api, namespace, objects, say)


async def upgrade(api: Api, namespace: str, objects: Sequence[Json], say: Say) -> None:
    """Bring everything to this version, and delete what this version no longer has. The settings stay."""
    there = await installed_version(api, namespace)
    if there is None:
        raise RotaError(f"Rota is not installed in namespace {namespace}; install it with `rota k8s install`")
    say(f"from Rota {there} to {__version__}")
    await _apply_all(api, namespace, objects, say)
    wanted = {(value["kind"], value["metadata"]["name"]) for value in objects}
    for kind, value in await _ours(api, namespace):
        name = value["metadata"]["name"]
        if (kind, name) not in wanted and not KINDS[kind].kept:
            await _delete(api, KINDS[kind].path(namespace, name))
            say(f"{kind} {name} deleted")


async def uninstall(api: Api, namespace: str, say: Say, *, purge: bool = False) -> None:
    """Delete everything; types, settings and namespace only with `purge`. Pods that run go on."""
    found = await _ours(api, namespace)
    if not found:
        raise RotaError(f"Rota is not installed in namespace {namespace}; nothing to uninstall")
    for kind, value in found:
        name = value["metadata"]["name"]
        if KINDS[kind].kept and not purge:
            say(f"{kind} {name} stays")
            continue
        await _delete(api, KINDS[kind].path(namespace, name))
        say(f"{kind} {name} deleted")
    await _delete(api, f"/api/v1/namespaces/{namespace}/secrets/{SECRET}")
    await _delete(api, f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{NAME}")


async def wait_until_available(api: Api, namespace: str, within_s: float = WAIT_S) -> None:
    """Wait until all replicas are available; raises a `RotaError` with the last message if they are not in time."""
    deadline_s = asyncio.get_running_loop().time() + within_s
    while True:
        found = await api.get(KINDS["Deployment"].path(namespace, NAME))
        status, wanted = found.get("status") or {}, found["spec"]["replicas"]
        is_new = status.get("observedGeneration", 0) >= found["metadata"]["generation"]
        if is_new and status.get("updatedReplicas", 0) == status.get("availableReplicas", 0) == wanted:
            return
        if asyncio.get_running_loop().time() > deadline_s:
            said = [each.get("message", "") for each in status.get("conditions") or ()]
            raise RotaError(
                f"{status.get('availableReplicas', 0)} of {wanted} replicas are available after {within_s:.0f} s; "
                f"{'; '.join(filter(None, said)) or 'look at the pods of the deployment'}"
            )
        await asyncio.sleep(1.0)


async def _apply_all(api: Api, namespace: str, objects: Iterable[Json], say: Say) -> None:
    for value in objects:
        kind, name = value["kind"], value["metadata"]["name"]
        if kind not in KINDS:
            raise RotaError(f"{kind} {name} is not a kind that Rota installs")
        say(f"{kind} {name} {await _apply(api, namespace, value)}")


async def _apply(api: Api, namespace: str, value: Json) -> str:
    """Create or change an object; return what was done. The settings and a namespace that exist stay as they are."""
    kind, name = KINDS[value["kind"]], value["metadata"]["name"]
    if (value["kind"], name) == ("ConfigMap", NAME) or value["kind"] == "Namespace":
        try:
            await api.post(kind.path(namespace), value)
        except ApiRefused as error:
            if error.status != _CONFLICT:
                raise
            return "stays"
        return "created"
    try:
        before = (await api.get(kind.path(namespace, name)))["metadata"].get("generation")
        is_there = True
    except ApiRefused as error:
        if error.status != _GONE:
            raise
        is_there, before = False, None
    path = f"{kind.path(namespace, name)}?fieldManager={MANAGER}&force=true"
    try:
        made = await api.patch(path, value, APPLY)
    except ApiRefused as error:
        if error.status == _GONE and kind.version == _MONITORING:
            return "left out: the cluster has no Prometheus operator"
        raise
    if not is_there:
        return "created"
    return "unchanged" if before is not None and made["metadata"].get("generation") == before else "applied"


async def _ours(api: Api, namespace: str) -> list[tuple[str, Json]]:
    """Return the objects of the installation, in the order of deletion."""
    found = []
    for name, kind in KINDS.items():
        try:
            values, _ = await api.everything(kind.path(namespace), labelSelector=SELECTOR)
        except ApiRefused as error:
            if error.status != _GONE:
                raise
            continue
        found += [(name, value) for value in values]
    return found


async def _delete(api: Api, path: str) -> None:
    try:
        await api.delete(path, {"propagationPolicy": "Background"})
    except ApiRefused as error:
        if error.status not in (_GONE, _CONFLICT):
            raise
