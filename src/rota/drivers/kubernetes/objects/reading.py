"""Objects of the cluster as Rota's types, whatever their writers put into them: nothing here raises.

Users write most of what is in a pod. A pod whose annotations or fields make no sense is kept, since it may hold
devices, and is refused with the reason, which it gets as a condition and an event. An object without a name is none.
"""

from __future__ import annotations

import logging
from typing import Any

from rota.core.errors import RotaError
from rota.drivers.kubernetes.objects.nodes import NodeSeen, node_seen
from rota.drivers.kubernetes.objects.pods import LONGEST_NAME_OF_AN_OBJECT, Pod, PodPhase, PodRequests, pod_of
from rota.drivers.kubernetes.settings import ClusterSettings

log = logging.getLogger("rota.drivers.kubernetes")
NONSENSE = (
    ArithmeticError,
    AttributeError,
    IndexError,
    KeyError,
    RecursionError,
    RotaError,
    TypeError,
    ValueError,
)
"""What reading a value of the wrong form raises."""


def read_pod(value: object, settings: ClusterSettings) -> Pod | None:
    """Return a pod; with a reason to refuse it if it makes no sense, and None if it has no name."""
    if any(not _text(value, "metadata", field) for field in ("uid", "namespace", "name")):
        log.warning("an object that is not a pod was left out")
        return None
    try:
        return pod_of(value, settings)  # type: ignore[arg-type]  # whether it is JSON of a pod is found out here
    except NONSENSE as error:
        return _refused(value, settings, f"it can't be read: {type(error).__name__}: {str(error)[:200]}")


def read_node(value: object, settings: ClusterSettings) -> NodeSeen | None:
    """Return a node; None if it makes no sense."""
    if not _text(value, "metadata", "name"):
        return None
    try:
        return node_seen(value, settings)  # type: ignore[arg-type]  # as above
    except NONSENSE as error:
        why = f"{type(error).__name__}: {str(error)[:200]}"
        log.warning("a node can't be read and was left out", extra={"node": name_of(value)[:253], "why": why})
        return None


def name_of(value: object) -> str:
    """Return the name of an object; empty if it has none."""
    return _text(value, "metadata", "name")


def uid_of(value: object) -> str:
    """Return the uid of an object; empty if it has none."""
    return _text(value, "metadata", "uid")


def _refused(value: object, settings: ClusterSettings, why: str) -> Pod:
    """Return the pod that can't be read, with what is certain about it."""
    phase = _text(value, "status", "phase")
    return Pod(
        uid=uid_of(value),
        namespace=_text(value, "metadata", "namespace"),
        name=name_of(value),
        is_ours=_text(value, "spec", "schedulerName") == settings.scheduler_name,
        phase=PodPhase(phase) if phase in PodPhase._value2member_map_ else PodPhase.PENDING,
        node=_text(value, "spec", "nodeName") or None,
        ending=bool(_text(value, "metadata", "deletionTimestamp")),
        wants=PodRequests(refused=why),
        created_s=0.0,
        labels={},
        annotations={},
        owner=None,
        priority=0,
        grace_s=30.0,
        gated=False,
        exit_code=None,
    )


def _text(value: Any, part: str, field: str) -> str:
    inner = value.get(part) if isinstance(value, dict) else None
    found = inner.get(field) if isinstance(inner, dict) else None
    return found if isinstance(found, str) and len(found) <= LONGEST_NAME_OF_AN_OBJECT else ""
