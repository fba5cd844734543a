"""The webhook configurations as they are installed: open, without a certificate. The webhook completes them itself."""

from __future__ import annotations

from typing import Any

from rota.drivers.kubernetes.admission.registration import ALWAYS_OPEN
from rota.drivers.kubernetes.admission.server import DEFAULT, TAKE_OVER, VALIDATE
from rota.drivers.kubernetes.api.rights import NAME

Json = dict[str, Any]
REGISTRATION = "admissionregistration.k8s.io/v1"
TAKEN_OVER = "rota.dev/takes-over"
"""The label of a namespace whose pods with devices become Rota's."""
TIMEOUT_S = 5
_WRITES = ["CREATE", "UPDATE"]
_PODS = [("", "v1", ["pods"])]
_TEMPLATES = [
    ("batch", "v1", ["jobs"]),
    ("apps", "v1", ["deployments", "statefulsets", "replicasets"]),
    ("jobset.x-k8s.io", "*", ["jobsets"]),
    ("kubeflow.org", "*", ["pytorchjobs", "tfjobs", "mpijobs", "xgboostjobs", "paddlejobs", "jaxjobs"]),
    ("ray.io", "*", ["rayclusters", "rayjobs"]),
]
_OWN = [("rota.dev", "*", ["queues", "topologies", "schedulingpolicies"])]


def webhook_configurations(namespace: str) -> list[Json]:
    """Return the configurations for a Rota in this namespace."""
    everywhere = _outside(namespace)
    taken = {"matchExpressions": [*everywhere["matchExpressions"], _expression(TAKEN_OVER, "In", "true")]}
    own = {"matchLabels": {"app.kubernetes.io/name": NAME}}
    validating = [
        _webhook("pods.rota.dev", namespace, VALIDATE, _rules([*_PODS, *_TEMPLATES], _WRITES), everywhere),
        _webhook("objects.rota.dev", namespace, VALIDATE, _rules(_OWN, _WRITES), {}),
        _webhook(ALWAYS_OPEN, namespace, VALIDATE, _rules([("", "v1", ["configmaps"])], _WRITES), {}, own),
    ]
    mutating = [
        _webhook("take-over.rota.dev", namespace, TAKE_OVER, _rules(_PODS, ["CREATE"]), taken),
        _webhook("defaults.rota.dev", namespace, DEFAULT, _rules(_PODS, ["CREATE"]), everywhere),
    ]
    return [
        _configuration("ValidatingWebhookConfiguration", validating),
        _configuration("MutatingWebhookConfiguration", mutating),
    ]


def _configuration(kind: str, webhooks: list[Json]) -> Json:
    return {"apiVersion": REGISTRATION, "kind": kind, "metadata": {"name": NAME}, "webhooks": webhooks}


def _webhook(
    name: str, namespace: str, path: str, rules: list[Json], spaces: Json, objects: Json | None = None
) -> Json:
    service = {"name": f"{NAME}-admission", "namespace": namespace, "path": path, "port": 443}
    return {
        "name": name,
        "clientConfig": {"service": service},
        "rules": rules,
        "failurePolicy": "Ignore",
        "matchPolicy": "Equivalent",
        "namespaceSelector": spaces,
        "objectSelector": objects or {},
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_S,
        "admissionReviewVersions": ["v1"],
    }


def _rules(resources: list[tuple[str, str, list[str]]], operations: list[str]) -> list[Json]:
    return [
        {"apiGroups": [group], "apiVersions": [version], "resources": names, "operations": operations, "scope": "*"}
        for group, version, names in resources
    ]


def _outside(namespace: str) -> Json:
    """Select all namespaces but Rota's own and the cluster's: they have to start while no webhook answers."""
    return {
        "matchExpressions": [
            _expression("rota.dev/admission", "NotIn", "off"),
            _expression("kubernetes.io/metadata.name", "NotIn", namespace, "kube-system"),
        ]
    }


def _expression(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, "values": list(values)}
