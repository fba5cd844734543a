"""The PodGroup type: a named group of pods that start together."""

from __future__ import annotations

from typing import Any

from rota.drivers.kubernetes.api.rights import NAME

Json = dict[str, Any]


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
        "metadata": {"name": "podgroups.rota.dev", "labels": {"app.kubernetes.io/name": NAME}},
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
