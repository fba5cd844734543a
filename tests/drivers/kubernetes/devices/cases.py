"""Objects of dynamic resource allocation for tests."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
DRIVER = "gpu.example.com"


def slice_object(node: str, gpus: int = 2, **fields: Any) -> Json:
    """A ResourceSlice with GPUs of a node, of which the first half is on one socket."""
    spec = {
        "driver": DRIVER,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "nodeName": node,
        "devices": [device_object(number, socket=number * 2 // gpus) for number in range(gpus)],
        **fields,
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-gpus"},
        "spec": spec,
    }


def device_object(number: int, *, model: str = "a100", memory: str = "80Gi", socket: int = 0, **fields: Any) -> Json:
    """A device of a slice."""
    return {
        "name": f"gpu-{number}",
        "attributes": {
            "model": {"string": model},
            "index": {"int": number},
            f"{DRIVER}/socket": {"int": socket},
            "driver": {"version": "12.4.0"},
        },
        "capacity": {"memory": {"value": memory}},
        **fields,
    }


def class_object(name: str = "gpu", expression: str = f'device.driver == "{DRIVER}"') -> Json:
    """A DeviceClass."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def request(name: str = "gpus", count: int = 1, *selectors: str, **fields: Any) -> Json:
    """A request for exactly so many devices."""
    exactly: Json = {"deviceClassName": "gpu", "count": count, **fields}
    if selectors:
        exactly["selectors"] = [{"cel": {"expression": each}} for each in selectors]
    return {"name": name, "exactly": exactly}


def claim_object(name: str, *requests: Json, namespace: str = "default", **devices: Any) -> Json:
    """A ResourceClaim."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"},
        "spec": {"devices": {"requests": list(requests or (request(),)), **devices}},
    }


def template_object(name: str, *requests: Json, namespace: str = "default") -> Json:
    """A ResourceClaimTemplate."""
    spec = claim_object(name, *requests)["spec"]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"spec": spec},
    }
