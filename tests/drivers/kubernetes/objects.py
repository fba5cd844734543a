"""Objects as an API server answers with them, as far as the driver reads them."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def pod_object(name: str = "p", *, gpus: int = 1, uid: str = "", **more: Any) -> Json:
    """A pod of Rota's; `spec`, `status`, `labels`, `annotations` and `owner` as given."""
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    meta: Json = {
        "uid": uid or f"uid-of-{name}",
        "name": name,
        "namespace": more.pop("namespace", "default"),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": more.pop("labels", {}),
        "annotations": more.pop("annotations", {}),
    }
    if "owner" in more:
        kind, owner = more.pop("owner")
        reference = {
            "apiVersion": "batch/v1",
            "kind": kind,
            "name": owner,
            "uid": f"uid-of-{owner}",
            "controller": True,
        }
        meta["ownerReferences"] = [reference]
    return {
        "metadata": meta,
        "spec": {
            "schedulerName": "rota",
            "containers": [{"resources": resources}],
            **more.pop("spec", {}),
        },
        "status": {"phase": "Pending", **more.pop("status", {})},
    }


def node_object(name: str = "n1", *, gpus: int = 8, ready: bool = True, **more: Any) -> Json:
    """A node; `labels` and `spec` as given."""
    return {
        "metadata": {"name": name, "labels": more.pop("labels", {})},
        "spec": more.pop("spec", {}),
        "status": {
            "allocatable": {"cpu": "63500m", "memory": "1Gi", "nvidia.com/gpu": str(gpus)},
            "conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}],
        },
    }
