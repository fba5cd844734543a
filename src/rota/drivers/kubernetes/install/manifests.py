"""All objects of an installation. `rota k8s install`, the Helm chart and the Kustomize base are made of these alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rota import __version__
from rota.drivers.kubernetes.api.rights import (
    NAME,
    cluster_rules,
    own_rules,
    queue_admin_rules,
    session_rules,
    submit_rules,
    user_rules,
)
from rota.drivers.kubernetes.install.monitoring import monitoring
from rota.drivers.kubernetes.install.webhooks import webhook_configurations
from rota.drivers.kubernetes.objects.pod_annotations import LEADS
from rota.drivers.kubernetes.resources.types import resource_types
from rota.drivers.kubernetes.settings import KEY

Json = dict[str, Any]
RBAC = "rbac.authorization.k8s.io/v1"
SELECTOR = {"app.kubernetes.io/name": NAME}
LABELS = {**SELECTOR, "app.kubernetes.io/part-of": NAME, "app.kubernetes.io/version": __version__}
SETTINGS = """\
# Every field can be changed here without a restart; docs/reference/kubernetes.md lists them all.
policy: priority
tenancy: none
"""
IMAGE = f"rota:{__version__}"
HTTP_PORT, ADMISSION_PORT = 7650, 9443


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallOptions:
    """What differs between installations. Texts may be placeholders of a chart."""

    namespace: str = "rota-system"
    image: str = IMAGE
    replicas: int | str = 2
    database_secret: str = "rota-database"
    """A Secret with the URL of a database under `url`; without it each replica keeps its own records."""
    settings: str = SETTINGS
    ingress_host: str | None = None
    """The host name of the dashboard; None: no Ingress."""
    ingress_class: str | None = None
    tls_secret: str | None = None
    monitoring: bool = False
    """Whether Prometheus' operator and Grafana get their objects."""
    release: tuple[int, int] | None = None
    """The cluster's release, for what older ones do not know; None: a current one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Objects that belong together: a file of the chart. `only_if` names the value that switches them on."""

    name: str
    objects: tuple[Json, ...]
    only_if: str | None = None


def parts(options: InstallOptions) -> list[Part]:
    """Return all parts in the order of creation."""
    space = options.namespace
    found = [
        Part(name="namespace", objects=(_namespace(space),)),
        Part(name="crds", objects=tuple(labelled(each) for each in resource_types(options.release))),
        Part(name="rbac", objects=(*_rights(space), *_user_roles())),
        Part(name="settings", objects=({**_named("v1", "ConfigMap", space), "data": {KEY: options.settings}},)),
        Part(name="services", objects=_services(space)),
        Part(
            name="deployment",
            objects=({**_named("apps/v1", "Deployment", space), "spec": _deployment(options)},),
        ),
        Part(name="admission", objects=tuple(labelled(each) for each in webhook_configurations(space))),
    ]
    if options.ingress_host is not None:
        found.append(Part(name="ingress", objects=(_ingress(options),), only_if="ingress.enabled"))
    if options.monitoring:
        objects = tuple(labelled(each) for each in monitoring(space))
        found.append(Part(name="monitoring", objects=objects, only_if="monitoring.enabled"))
    return found


def manifests(options: InstallOptions) -> list[Json]:
    """Return all objects in the order of creation."""
    return [value for part in parts(options) for value in part.objects]


def labelled(value: Json) -> Json:
    """Return an object with the labels of the installation."""
    meta = value["metadata"]
    return {**value, "metadata": {**meta, "labels": {**(meta.get("labels") or {}), **LABELS}}}


def _named(version: str, kind: str, namespace: str | None = None, name: str = NAME) -> Json:
    where = {} if namespace is None else {"namespace": namespace}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **where, "labels": dict(LABELS)}}


def _namespace(name: str) -> Json:
    made = _named("v1", "Namespace", name=name)
    made["metadata"]["labels"]["rota.dev/admission"] = "off"  # Rota's own pods start without its webhook
    return made


def _rights(namespace: str) -> tuple[Json, ...]:
    return (
        _named("v1", "ServiceAccount", namespace),
        {**_named(RBAC, "ClusterRole"), "rules": cluster_rules()},
        {**_named(RBAC, "ClusterRoleBinding"), **_grants("ClusterRole", namespace)},
        {**_named(RBAC, "Role", namespace), "rules": own_rules()},
        {**_named(RBAC, "RoleBinding", namespace), **_grants("Role", namespace)},
    )


def _user_roles() -> tuple[Json, ...]:
    """Roles that bindings give: Queues and PodGroups to people, and to Rota sessions and submissions in a namespace."""
    viewer = {**_named(RBAC, "ClusterRole", name=f"{NAME}-user"), "rules": user_rules()}
    for role in ("edit", "admin"):
        viewer["metadata"]["labels"][f"rbac.authorization.k8s.io/aggregate-to-{role}"] = "true"
    admin = {**_named(RBAC, "ClusterRole", name=f"{NAME}-queue-admin"), "rules": queue_admin_rules()}
    sessions = {**_named(RBAC, "ClusterRole", name=f"{NAME}-sessions"), "rules": session_rules()}
    submits = {**_named(RBAC, "ClusterRole", name=f"{NAME}-submit"), "rules": submit_rules()}
    return viewer, admin, sessions, submits


def _grants(kind: str, namespace: str) -> Json:
    return {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}],
    }


def _services(namespace: str) -> tuple[Json, ...]:
    """The dashboard, REST and metrics of the leading replica, and the webhook of every replica."""
    http = {"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}
    webhook = {"name": "admission", "port": 443, "targetPort": "admission", "protocol": "TCP"}
    return (
        {**_named("v1", "Service", namespace), "spec": {"selector": {**SELECTOR, LEADS: "true"}, "ports": [http]}},
        {
            **_named("v1", "Service", namespace, f"{NAME}-admission"),
            "spec": {"selector": SELECTOR, "ports": [webhook]},
        },
    )


def _deployment(options: InstallOptions) -> Json:
    secret = {"name": options.database_secret, "key": "url", "optional": True}
    env: list[Json] = [
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "ROTA_DATABASE", "valueFrom": {"secretKeyRef": secret}},
    ]
    args = ["k8s", "run", "--namespace", options.namespace, "--data", "/data", "--host", "0.0.0.0"]
    args += ["--admission-port", str(ADMISSION_PORT), "--log-format", "json"]
    probe: Json = {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 10}
    container = {
        "name": NAME,
        "image": options.image,
        "command": ["rota"],
        "args": args,
        "env": env,
        "ports": [
            {"name": "http", "containerPort": HTTP_PORT, "protocol": "TCP"},
            {"name": "admission", "containerPort": ADMISSION_PORT, "protocol": "TCP"},
        ],
        "livenessProbe": probe,
        "readinessProbe": {**probe, "httpGet": {"path": "/readyz", "port": "http"}},
        "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "tmp", "mountPath": "/tmp"}],
    }
    spec = {
        "serviceAccountName": NAME,
        "priorityClassName": "system-cluster-critical",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "fsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}],
    }
    return {
        "replicas": options.replicas,
        "selector": {"matchLabels": dict(SELECTOR)},
        "template": {"metadata": {"labels": dict(SELECTOR)}, "spec": spec},
    }


def _ingress(options: InstallOptions) -> Json:
    backend = {"service": {"name": NAME, "port": {"name": "http"}}}
    rule = {
        "host": options.ingress_host,
        "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]},
    }
    spec: Json = {"rules": [rule]}
    if options.ingress_class is not None:
        spec["ingressClassName"] = options.ingress_class
    if options.tls_secret is not None:
        spec["tls"] = [{"hosts": [options.ingress_host], "secretName": options.tls_secret}]
    return {**_named("networking.k8s.io/v1", "Ingress", options.namespace), "spec": spec}
