"""Objects of the cluster as Rota's types, whatever their writers put into them: nothing here raises.

Users write most of what is in a pod. A pod whose annotations or fields make no sense is kept, since it may hold
devices, and is refused with the reason, which it gets as a condition and an event. An object without a name is none.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Container
from typing import Any

from rota.core.errors import RotaError
from rota.core.model.job import WHOLE
from rota.drivers.kubernetes.filters.facts import NO_NEEDS
from rota.drivers.kubernetes.objects.nodes import NodeSeen, node_seen
from rota.drivers.kubernetes.objects.pod_resources import requests_of
from rota.drivers.kubernetes.objects.pods import (
    LONGEST_NAME_OF_AN_OBJECT,
    Pod,
    PodPhase,
    PodRequests,
    pod_of,
)
from rota.drivers.kubernetes.settings import ClusterSettings

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_SURROGATE = re.compile("[\ud800-\udfff]")
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


def read_pod(value: object, settings: ClusterSettings, running: Container[str] = ()) -> Pod | None:
    """Return a pod; with a reason to refuse it if it makes no sense, and None if it has no name."""
    if any(not _NAME.fullmatch(_text(value, "metadata", field)) for field in ("uid", "namespace", "name")):
        log.debug("an object that is not a pod was left out")
        return None
    try:
        pod = pod_of(value, settings, running)  # type: ignore[arg-type]  # whether it is JSON of a pod is found out here
        _check(pod)
        return pod
    except NONSENSE as error:
        return _refused(value, settings, f"it can't be read: {type(error).__name__}: {str(error)[:200]}")


def read_node(value: object, settings: ClusterSettings) -> NodeSeen | None:
    """Return a node; None if it makes no sense."""
    if not _text(value, "metadata", "name"):
        return None
    try:
        seen = node_seen(value, settings)  # type: ignore[arg-type]  # as above
        if seen.facts is not None:
            _check_plain((*seen.facts.labels.items(), *seen.facts.taints))
        return seen
    except NONSENSE as error:
        why = f"{type(error).__name__}: {str(error)[:200]}"
        log.debug("a node can't be read and was left out", extra={"node": name_of(value)[:253], "why": why})
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
        wants=_held(value, settings)._replace(refused=why),
        created_s=0.0,
        labels={},
        annotations={},
        owner=None,
        priority=0,
        grace_s=30.0,
        gated=False,
        preempts=True,
        exit_code=None,
    )


def _held(value: Any, settings: ClusterSettings) -> PodRequests:
    """What a pod holds where it runs, whatever else it says; nothing if that can't be read either."""
    try:
        asked = requests_of(value["spec"], value.get("status") or {})
        devices = sum(asked.get(name, 0) for name in settings.devices) // 1000
        return PodRequests(devices * WHOLE, asked.get("cpu", 0), asked.get("memory", 0) // 1000)
    except NONSENSE:
        return PodRequests()


def _check(pod: Pod) -> None:
    """Raise a `TypeError` for fields of another type than they should have; the API server checks most of them."""
    owner, wants = pod.owner, pod.wants
    texts: list[object] = [*pod.labels, *pod.labels.values(), *pod.annotations, *pod.annotations.values()]
    texts += [] if owner is None else [owner.api_version, owner.kind, owner.name, owner.uid]
    texts += [] if pod.node is None else [pod.node]
    texts += wants.device_types
    for term in wants.requires:
        for need in term:
            texts += [need.key, need.operator, *need.values]
    for toleration in wants.tolerates:
        texts += [each for each in (toleration.key, toleration.value) if each is not None]
    if wants.needs is not NO_NEEDS:
        _check_plain(wants.needs)
    for text in texts:
        if not isinstance(text, str) or _SURROGATE.search(text):
            raise TypeError(f"{text!a:.60} is not text")
    if not abs(pod.priority) < 1 << 31 or not 0 <= pod.grace_s < 1e9:
        raise ValueError(f"priority {pod.priority!r:.20} or terminationGracePeriodSeconds {pod.grace_s!r:.20}")


def _check_plain(value: object) -> None:
    """Raise a `TypeError` unless a value consists of texts and whole numbers."""
    if isinstance(value, tuple):
        for each in value:
            _check_plain(each)
    elif not (value is None or isinstance(value, int) or (isinstance(value, str) and not _SURROGATE.search(value))):
        raise TypeError(f"{value!a:.60} is neither text nor a whole number")


def _text(value: Any, part: str, field: str) -> str:
    inner = value.get(part) if isinstance(value, dict) else None
    found = inner.get(field) if isinstance(inner, dict) else None
    if not isinstance(found, str) or len(found) > LONGEST_NAME_OF_AN_OBJECT or _SURROGATE.search(found):
        return ""
    return found
