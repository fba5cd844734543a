"""Pod objects reduced to what the scheduler needs: ownership, requests, phase."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple

from rota.core.errors import RotaError
from rota.core.model.job import WHOLE, DeviceType
from rota.core.model.labels import Requirement, Terms, Toleration
from rota.drivers.kubernetes.api.quantity import plain_number, whole
from rota.drivers.kubernetes.filters.facts import NO_NEEDS, PodFacts, PodNeeds
from rota.drivers.kubernetes.objects.hived_pods import ENABLE, REQUEST, notes_of
from rota.drivers.kubernetes.objects.pod_annotations import (
    GPU,
    GPU_FRACTIONS,
    GPU_MEMORY,
    JOB_ID,
    KEEPS_OUT,
    PREFIX,
    RESOURCE,
)
from rota.drivers.kubernetes.objects.pod_needs import NOWHERE, needs_of, requirements, unsupported
from rota.drivers.kubernetes.objects.pod_resources import other_resources, requests_of
from rota.drivers.kubernetes.settings import ClusterSettings

Json = dict[str, Any]
_USUAL_TAINTS = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
_TRUSTED = frozenset(PREFIX + name for name in ("priority", "tenant", "gpus"))
"""Annotations that only a translation may set; ignored on pods."""


_NAMES = tuple(
    PREFIX + name for name in ("job", "name", "id", "user", "class", "locality", "model", "pinned-cell", "pod-group")
)
"""Annotations and labels that are names or words."""
_FRACTION = re.compile(r"0?\.([0-9]{1,3})", re.ASCII)
LONGEST_NAME_OF_AN_OBJECT = 253
MOST_TYPES = 64
MOST_TASKS = 100_000


class PodPhase(Enum):
    """The phase of a pod."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"

    @property
    def is_over(self) -> bool:
        """Whether the pod has ended."""
        return self in (PodPhase.SUCCEEDED, PodPhase.FAILED)


class PodRequests(NamedTuple):
    """A pod's requests, equal for equivalent pods. A tuple, because there are many."""

    device_milli: int = 0
    cpu_milli: int = 0
    memory_bytes: int = 0
    device_types: tuple[DeviceType, ...] = ()
    device_memory_bytes: int = 0
    requires: Terms = ()
    tolerates: tuple[Toleration, ...] = ()
    needs: PodNeeds = NO_NEEDS
    """What it needs of a node beyond that."""
    refused: str = ""
    """The request that can't be honoured, in words; empty if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOwner:
    """The controller object that creates and replaces a pod."""

    api_version: str
    kind: str
    name: str
    uid: str


@dataclass(slots=True, kw_only=True)
class Pod:
    """One pod. `node` is None until it is bound; `ending` once it is being deleted."""

    uid: str
    namespace: str
    name: str
    is_ours: bool
    phase: PodPhase
    node: str | None
    ending: bool
    wants: PodRequests
    created_s: float
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    owner: PodOwner | None
    priority: int
    grace_s: float
    gated: bool
    preempts: bool
    """Whether other pods may be stopped in its favour (`preemptionPolicy`)."""
    exit_code: int | None

    @property
    def path(self) -> str:
        """The path of the object."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    @property
    def facts(self) -> PodFacts:
        """The pod as the filters see it."""
        return PodFacts(
            uid=self.uid,
            namespace=self.namespace,
            name=self.name,
            labels=self.labels,
            needs=self.wants.needs,
            ending=self.ending,
        )

    @property
    def holds(self) -> bool:
        """Whether it holds resources of a node."""
        return self.node is not None and not self.phase.is_over

    def says(self, name: str) -> str | None:
        """The value of a Rota label or annotation."""
        return self.annotations.get(PREFIX + name) or self.labels.get(PREFIX + name)

    def number(self, name: str) -> int | None:
        """The same, if it is a positive integer."""
        return plain_number(self.says(name)) or None


def pod_of(value: Json, settings: ClusterSettings, running: Container[str] = ()) -> Pod:
    """Parse a pod object; `running` are jobs whose bound pods stay Rota's, whatever scheduler they name."""
    meta, spec = value["metadata"], value["spec"]
    status = value.get("status") or {}
    is_kept = bool(spec.get("nodeName")) and (meta.get("annotations") or {}).get(JOB_ID, "") in running
    is_ours = is_kept or spec.get("schedulerName") == settings.scheduler_name
    annotations, mistake = _notes(meta, settings)
    return Pod(
        uid=meta["uid"],
        namespace=meta["namespace"],
        name=meta["name"],
        is_ours=is_ours,
        phase=PodPhase(status.get("phase") or "Pending"),  # a phase of a later Kubernetes makes the pod unreadable
        node=spec.get("nodeName") or None,
        ending=meta.get("deletionTimestamp") is not None,
        wants=_wants(value, annotations, settings, is_ours, mistake),
        created_s=seconds_of(meta["creationTimestamp"]),
        labels=meta.get("labels") or {},
        annotations=annotations,
        owner=_owner(meta),
        priority=int(annotations.get(PREFIX + "priority") or spec.get("priority") or 0),
        grace_s=float(spec.get("terminationGracePeriodSeconds") or 30),
        gated=bool(spec.get("schedulingGates")),
        preempts=spec.get("preemptionPolicy") != "Never",
        exit_code=_exit_code(status) if is_ours else None,
    )


def _notes(meta: Json, settings: ClusterSettings) -> tuple[dict[str, str], str]:
    """The annotations, with HiveD's translated, and the mistake in them, if any."""
    annotations = {name: value for name, value in (meta.get("annotations") or {}).items() if name not in _TRUSTED}
    wrong = _wrong_name(annotations) or _wrong_name(meta.get("labels") or {})
    if wrong:
        return {name: value for name, value in annotations.items() if name != wrong}, f"{wrong} is too long"
    if not settings.hived_pods or REQUEST not in annotations:
        return annotations, ""
    try:
        return {**annotations, **notes_of(annotations, meta["name"])}, ""
    except RotaError as error:
        return annotations, str(error)


def _wrong_name(notes: Json) -> str:
    """The first of Rota's annotations or labels that is longer than a name can be."""
    for name in _NAMES:
        if len(notes.get(name) or "") > LONGEST_NAME_OF_AN_OBJECT:
            return name
    return ""


def seconds_of(stamp: str) -> float:
    """A Kubernetes time stamp in seconds."""
    return datetime.fromisoformat(stamp).timestamp()


def _owner(meta: Json) -> PodOwner | None:
    for each in meta.get("ownerReferences") or ():
        if each.get("controller"):
            return PodOwner(api_version=each["apiVersion"], kind=each["kind"], name=each["name"], uid=each["uid"])
    return None


def _exit_code(status: Json) -> int | None:
    for each in status.get("containerStatuses") or ():
        ended = (each.get("state") or {}).get("terminated")
        if ended and ended.get("exitCode"):
            return int(ended["exitCode"])
    return None


# -- what it asks for ----------------------------------------------------------------------------


def _wants(value: Json, annotations: Json, settings: ClusterSettings, is_ours: bool, mistake: str) -> PodRequests:
    meta, spec, status = value["metadata"], value["spec"], value.get("status") or {}
    asked = requests_of(spec, status)
    devices = _devices(asked, settings)
    if PREFIX + "gpus" in annotations:
        devices = int(annotations[PREFIX + "gpus"])
    fraction, wrong = _fraction(annotations, settings, devices) if is_ours else (0, "")
    mistake = mistake or wrong
    plain = PodRequests(
        devices * WHOLE or fraction,
        asked.get("cpu", 0),
        asked.get("memory", 0) // 1000,
        needs=needs_of(spec, meta, status, other_resources(asked, (*settings.devices, ENABLE))),
    )
    if not is_ours:
        return plain
    if settings.tenancy == "cells":  # cells guarantee devices; CPUs and memory come with them
        plain = PodRequests(plain.device_milli, needs=plain.needs)
    terms, types = _node_terms(spec, settings)
    kinds = [name for name in settings.devices if asked.get(name)] or [*settings.devices[:1]] * bool(fraction)
    terms, tolerates = _of_kind(kinds, terms, _tolerations(spec), settings)
    if len(kinds) > 1:
        mistake = mistake or f"it requests {' and '.join(kinds)}; request devices of one kind"
    named = annotations.get(GPU, "")
    if named:
        parts = [part.strip() for part in named.split(",", MOST_TYPES) if part.strip()]
        if len(parts) > MOST_TYPES or any(len(part) > LONGEST_NAME_OF_AN_OBJECT for part in parts):
            mistake = mistake or f"{GPU} names more than {MOST_TYPES} types, or one that is too long"
        types = tuple(DeviceType(part[:LONGEST_NAME_OF_AN_OBJECT]) for part in parts[:MOST_TYPES])
    return plain._replace(
        device_types=types if plain.device_milli else (),
        device_memory_bytes=whole(annotations.get(GPU_MEMORY, "0")) if plain.device_milli else 0,
        requires=terms,
        tolerates=tolerates,
        refused=mistake or _refused(spec, annotations),
    )


def _fraction(annotations: Json, settings: ClusterSettings, devices: int) -> tuple[int, str]:
    """The fraction of a device that annotations ask for, in thousandths, and what is wrong about it."""
    named = next((name for name in GPU_FRACTIONS if annotations.get(name)), None)
    if named is None:
        return 0, ""
    match = _FRACTION.fullmatch(annotations[named])
    if match is None or not int(match[1]):
        return 0, f"{named} is {annotations[named][:40]!r}; write a number above 0 and below 1, such as 0.5"
    if devices:
        return 0, f"{named}: it requests {devices} devices as well; ask for one or the other"
    if not settings.fractions:
        return 0, f"{named}: fractions of devices are not switched on (`fractions` of the settings)"
    return int(match[1].ljust(3, "0")), ""


def devices_asked(spec: Json, settings: ClusterSettings) -> int:
    """The number of devices that a pod spec requests."""
    return _devices(requests_of(spec), settings)


def _devices(asked: Mapping[str, int], settings: ClusterSettings) -> int:
    return sum(asked.get(name, 0) for name in settings.devices) // 1000


def _refused(spec: Json, annotations: Json) -> str:
    """A request that Rota does not support and therefore refuses."""
    memory = annotations.get(GPU_MEMORY)
    if memory is not None and not whole(memory):
        return f"{GPU_MEMORY} is {memory[:60]!r}; write it like 40Gi"
    for name in ("tasks", "min-tasks", "max-tasks"):
        value = annotations.get(PREFIX + name)
        if value is not None and not 0 < (plain_number(value) or 0) <= MOST_TASKS:
            return f"{PREFIX}{name} is {str(value)[:60]!r}; write a whole number from 1 to {MOST_TASKS}"
    return unsupported(spec)


def _node_terms(spec: Json, settings: ClusterSettings) -> tuple[Terms, tuple[DeviceType, ...]]:
    """Node selector and required affinity; a named device model becomes a device type."""
    types: tuple[DeviceType, ...] = ()
    common: list[Requirement] = []
    for key, value in sorted((spec.get("nodeSelector") or {}).items()):
        if key == settings.labels.type:
            types = (DeviceType(value),)
        else:
            common.append(Requirement(key, "In", (value,)))
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    asked = affinity.get("nodeSelectorTerms") or ()
    if not asked:
        return ((tuple(common),) if common else ()), types
    terms = [found for term in asked if (found := tuple(requirements(term)))]
    return tuple(tuple(common) + term for term in terms or [NOWHERE]), types


def _of_kind(
    kinds: list[str], terms: Terms, tolerates: tuple[Toleration, ...], settings: ClusterSettings
) -> tuple[Terms, tuple[Toleration, ...]]:
    """Require nodes with the requested kind of device; pods without devices fit any node."""
    if not kinds:
        return terms, (*tolerates, Toleration(KEEPS_OUT, None))
    if kinds[0] == settings.devices[0]:
        return terms, tolerates
    there = Requirement(RESOURCE, "In", (kinds[0],))
    return tuple((*term, there) for term in terms or ((),)), (*tolerates, Toleration(KEEPS_OUT, kinds[0]))


def _tolerations(spec: Json) -> tuple[Toleration, ...]:
    found: dict[Toleration, None] = {}
    for each in spec.get("tolerations") or ():
        key = each.get("key")
        if key in _USUAL_TAINTS:
            continue
        value = each.get("value", "") if each.get("operator", "Equal") == "Equal" else None
        effects = (each["effect"],) if each.get("effect") else ("NoSchedule", "NoExecute")
        if not key:
            found[Toleration(None, None)] = None
            continue
        for effect in effects:
            found[Toleration(f"{key}:{effect}", value)] = None
    return tuple(found)
