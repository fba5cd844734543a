"""Manifests of Rota: service account, RBAC, the PodGroup type, settings, the deployment."""

from __future__ import annotations

from typing import Any

from rota.drivers.kubernetes.api.rights import NAME, cluster_rules, own_rules
from rota.drivers.kubernetes.objects.pod_annotations import LEADS
from rota.drivers.kubernetes.settings import KEY

Json = dict[str, Any]
_LABELS = {"app.kubernetes.io/name": NAME}
_SETTINGS = """\
# Every field can be changed here without a restart; docs/reference/kubernetes.md lists them all.
policy: priority
tenancy: none
"""


def manifests(namespace: str, image: str, database_secret: str | None = None) -> list[Json]:
    """All objects in the order of creation; the secret holds the database URL under `url`."""
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": _LABELS}},
        pod_group_type(),
        _named("v1", "ServiceAccount", namespace),
        {**_named("rbac.authorization.k8s.io/v1", "ClusterRole"), "rules": cluster_rules()},
        {**_named("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"), **_grants("ClusterRole", namespace)},
        {**_named("rbac.authorization.k8s.io/v1", "Role", namespace), "rules": own_rules()},
        {**_named("rbac.authorization.k8s.io/v1", "RoleBinding", namespace), **_grants("Role", namespace)},
        {**_named("v1", "ConfigMap", namespace), "data": {KEY: _SETTINGS}},
        {
            **_named("v1", "Service", namespace),
            "spec": {
                "selector": {**_LABELS, LEADS: "true"},
                "ports": [{"name": "http", "port": 80, "targetPort": "http"}],
            },
        },
        {**_named("apps/v1", "Deployment", namespace), "spec": _deployment(namespace, image, database_secret)},
    ]


def _named(version: str, kind: str, namespace: str | None = None) -> Json:
    where = {} if namespace is None else {"namespace": namespace}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": NAME, **where, "labels": _LABELS}}


def _grants(kind: str, namespace: str) -> Json:
    return {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}],
    }


def pod_group_type() -> Json:
    """The PodGroup custom resource: a named group of pods that start together."""
    spec = {
        "type": "object",
        "required": ["minMember"],
        "properties": {"minMember": {"type": "integer", "minimum": 1, "description": "Pods that start together."}},
    }
    texts = ("phase", "reason", "message")
    status = {
        "type": "object",
        "properties": {
            **{name: {"type": "string"} for name in texts},
            **{name: {"type": "integer"} for name in ("pods", "running")},
        },
    }
    columns = [("Phase", "string", ".status.phase"), ("Members", "integer", ".spec.minMember")]
    columns += [("Pods", "integer", ".status.pods"), ("Running", "integer", ".status.running")]
    columns += [("Reason", "string", ".status.reason"), ("Age", "date", ".metadata.creationTimestamp")]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "podgroups.rota.dev", "labels": _LABELS},
        "spec": {
            "group": "rota.dev",
            "scope": "Namespaced",
            "names": {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup", "shortNames": ["pg"]},
            "versions": [
                {
                    "name": "v1alpha1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {
                        "openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}},
                    },
                    "additionalPrinterColumns": [
                        {"name": name, "type": kind, "jsonPath": path} for name, kind, path in columns
                    ],
                }
            ],
        },
    }


def _deployment(namespace: str, image: str, database_secret: str | None) -> Json:
    env: list[Json] = [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    args = ["k8s", "run", "--namespace", namespace, "--data", "/data", "--host", "0.0.0.0", "--log-format", "json"]
    if database_secret is not None:
        env.append({"name": "DATABASE", "valueFrom": {"secretKeyRef": {"name": database_secret, "key": "url"}}})
        args += ["--database", "$(DATABASE)"]
    probe = {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 10}
    container = {
        "name": NAME,
        "image": image,
        "command": ["rota"],
        "args": args,
        "env": env,
        "ports": [{"name": "http", "containerPort": 7650}],
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
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "fsGroup": 65532},
        "containers": [container],
        "volumes": [{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}],
    }
    return {
        "replicas": 2,
        "selector": {"matchLabels": _LABELS},
        "template": {"metadata": {"labels": _LABELS}, "spec": spec},
    }
