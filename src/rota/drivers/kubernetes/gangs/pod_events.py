"""Kubernetes Events about pods, as `kubectl describe pod` shows them."""

from __future__ import annotations

from datetime import UTC, datetime

from rota.drivers.kubernetes.api.client import Api, ApiRefused
from rota.drivers.kubernetes.objects.pods import Pod

_LONGEST = 1000


async def post_event(api: Api, pod: Pod, reason: str, message: str, identity: str = "rota") -> None:
    """Write an Event of type Warning about a pod; a namespace that is being deleted takes none."""
    now = stamp()
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{pod.name[:200]}.", "namespace": pod.namespace},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
        },
        "type": "Warning",
        "reason": reason,
        "message": message[:_LONGEST],
        "source": {"component": "rota"},
        "reportingComponent": "rota",
        "reportingInstance": identity,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    try:
        await api.post(f"/api/v1/namespaces/{pod.namespace}/events", event)
    except ApiRefused as error:
        if error.status not in (403, 404):
            raise


def stamp() -> str:
    """The present moment as Kubernetes writes it."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
