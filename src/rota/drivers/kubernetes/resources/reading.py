"""Queue, Topology and SchedulingPolicy objects as a part of the settings. An object that makes no sense is left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from rota.core.errors import RotaError, did_you_mean
from rota.drivers.kubernetes.objects.reading import NONSENSE
from rota.drivers.kubernetes.settings import AdmissionEntry, ClusterSettings, Name
from rota.files.durations import Seconds
from rota.files.shape import FileModel, checked
from rota.files.tenants import Amounts, FairnessEntry, TenantEntry, tenant_plan

Json = dict[str, Any]
ONLY_POLICY = "default"
"""The name of the SchedulingPolicy that is used."""
HOST_LABEL = "kubernetes.io/hostname"


class _Spec(FileModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True, coerce_numbers_to_str=True)


class QueueSpec(_Spec):
    """The spec of a Queue."""

    guaranteed: Amounts = {}
    limit: Amounts = {}
    borrowing: Annotated[bool, Field(strict=True)] = True
    parent: Name | None = None
    weight: Annotated[float, Field(gt=0)] = 1.0
    per_user: Annotated[int, Field(strict=True, ge=1)] | None = None

    def entry(self) -> TenantEntry:
        """Return the tenant that the Queue is."""
        if not self.borrowing and self.limit:
            raise RotaError("borrowing is false, so that the guarantee is the limit; remove limit, or allow borrowing")
        return TenantEntry(
            gpus=self.guaranteed,
            limit=self.limit if self.borrowing else (self.guaranteed or {"*": 0}),
            parent=self.parent,
            weight=self.weight,
            per_user=self.per_user,
        )


class TopologyLevel(_Spec):
    """One level of a Topology."""

    node_label: Name


class TopologySpec(_Spec):
    """The spec of a Topology; levels above the node, the largest first."""

    levels: tuple[TopologyLevel, ...] = ()
    device_type: Name | None = None
    device_memory: Name | None = None
    sockets: Name | None = None

    def labels(self) -> dict[str, str]:
        """Return the node labels to read, by the names of the settings; the widest level is the zone."""
        names = [level.node_label for level in self.levels if level.node_label != HOST_LABEL]
        for name in names:
            if names.count(name) > 1:
                raise RotaError(f"levels names node label {name} twice")
        given = {"type": self.device_type, "memory": self.device_memory, "sockets": self.sockets}
        given |= {"rack": names[min(len(names), 2) - 1] if names else None, "zone": names[0] if names[1:] else None}
        return {name: value for name, value in given.items() if value is not None}


class PolicyFairness(_Spec):
    """The rules between tenants."""

    half_life: Seconds | None = None
    min_run: Seconds | None = None


class SchedulingPolicySpec(_Spec):
    """The spec of a SchedulingPolicy: settings that replace those of the ConfigMap."""

    policy: Name | None = None
    placement: Name | None = None
    tenancy: Name | None = None
    fairness: PolicyFairness | None = None
    gang_timeout: Annotated[Seconds, Field(gt=0)] | None = None
    lost_after: Seconds | None = None
    linger: Seconds | None = None
    settle: Seconds | None = None
    check_every: Annotated[Seconds, Field(gt=0)] | None = None
    defaults: dict[Name, Name] | None = None
    admission: AdmissionEntry | None = None


_SPECS: dict[str, type[QueueSpec] | type[TopologySpec] | type[SchedulingPolicySpec]] = {
    "Queue": QueueSpec,
    "Topology": TopologySpec,
    "SchedulingPolicy": SchedulingPolicySpec,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceKey:
    """Which object: its kind, namespace and name. The namespace is empty for a cluster-wide kind."""

    kind: str
    namespace: str
    name: str


@dataclass(slots=True, kw_only=True)
class Merged:
    """Settings with the objects' part in them, and why objects were left out."""

    settings: ClusterSettings
    refused: dict[ResourceKey, str] = field(default_factory=dict)


def key_of_resource(value: Mapping[str, Any]) -> ResourceKey:
    """Return which object a value is."""
    meta = _metadata(value)
    return ResourceKey(
        kind=str(value.get("kind", "")), namespace=str(meta.get("namespace", "")), name=str(meta.get("name", ""))
    )


def spec_of_resource(value: Mapping[str, Any]) -> QueueSpec | TopologySpec | SchedulingPolicySpec:
    """Return the spec of an object; raises a `RotaError` that names the field."""
    kind = str(value.get("kind"))
    if kind not in _SPECS:
        raise RotaError(f"kind {kind!r} is not one of Rota's; {did_you_mean(kind, _SPECS)}")
    name = (value.get("metadata") or {}).get("name", "")
    found = checked(_SPECS[kind], value.get("spec") or {}, Path(f"{kind} {name}"))
    if isinstance(found, QueueSpec):
        tenant_plan({"queue": found.entry().model_copy(update={"parent": None})}, FairnessEntry())
    elif isinstance(found, TopologySpec):
        found.labels()
    elif name and name != ONLY_POLICY:
        raise RotaError(f"the name is {name!r}; a cluster has one SchedulingPolicy, named {ONLY_POLICY}")
    return found


def refusal_of(value: Mapping[str, Any]) -> str:
    """Return why an object can't be used, on its own; empty if it can, or if it is a PodGroup."""
    if value.get("kind") == "PodGroup":
        return ""
    try:
        spec_of_resource(value)
    except NONSENSE as error:
        return str(error)[:1000].replace("tenants.queue.", "")
    return ""


def merged(base: ClusterSettings, values: Iterable[Mapping[str, Any]]) -> Merged:
    """Return the settings of the ConfigMap with those of the objects on top of them, the older object first."""
    found = Merged(settings=base)
    overlay: Json = {}
    queues: dict[ResourceKey, QueueSpec] = {}
    for value in sorted(values, key=_age):
        key = key_of_resource(value)
        try:
            if not key.name:
                raise RotaError("it has no name")
            spec = spec_of_resource(value)
            match spec:
                case QueueSpec():
                    _add_queue(queues, key, spec)
                case TopologySpec():
                    if "labels" in overlay:
                        raise RotaError("another Topology is older and is used; a cluster has one")
                    overlay["labels"] = {**base.labels.model_dump(), **spec.labels()}
                    overlay["topology"] = tuple(level.node_label for level in spec.levels) or base.topology
                case SchedulingPolicySpec():
                    overlay |= _policy_part(base, spec)
        except NONSENSE as error:
            found.refused[key] = str(error)[:1000].replace("tenants.queue.", "")
    _drop_orphans(queues, set(base.tenants), found.refused)
    if queues:
        overlay["tenants"] = {**base.tenants, **{key.name: spec.entry() for key, spec in queues.items()}}
        overlay["queues"] = _by_namespace(base, queues)
        if base.tenancy == "none":
            overlay.setdefault("tenancy", "quota")
    if overlay:
        found.settings = ClusterSettings.model_validate({**dict(base), **overlay})
    return found


def _metadata(value: Mapping[str, Any]) -> Mapping[str, Any]:
    found = value.get("metadata")
    return found if isinstance(found, Mapping) else {}


def _age(value: Mapping[str, Any]) -> tuple[str, str, str]:
    meta = _metadata(value)
    return str(meta.get("creationTimestamp", "")), str(meta.get("namespace", "")), str(meta.get("name", ""))


def _add_queue(queues: dict[ResourceKey, QueueSpec], key: ResourceKey, spec: QueueSpec) -> None:
    other = next((each for each in queues if each.name == key.name), None)
    if other is not None:
        raise RotaError(f"Queue {key.name} exists already, in namespace {other.namespace}; choose another name")
    queues[key] = spec


def _drop_orphans(queues: dict[ResourceKey, QueueSpec], known: set[str], refused: dict[ResourceKey, str]) -> None:
    """Leave out Queues below one that does not exist or that is below itself."""
    by_name = {key.name: spec for key, spec in queues.items()}
    for key in list(queues):
        seen, above = [key.name], queues[key].parent
        while above is not None and above not in known:
            if above not in by_name:
                others = [name for name in (*by_name, *known) if name != key.name]
                refused[key] = f"parent is {queues[key].parent!r}; {did_you_mean(above, others)}"
                break
            if above in seen:
                refused[key] = f"parent: {above!r} is above itself; Queues must form a tree"
                break
            seen.append(above)
            above = by_name[above].parent
    for key in refused:
        queues.pop(key, None)


def _by_namespace(base: ClusterSettings, queues: Iterable[ResourceKey]) -> dict[str, tuple[str, ...]]:
    found = {name: list(known) for name, known in base.queues.items()}
    for key in queues:
        found.setdefault(key.namespace, []).append(key.name)
    return {name: tuple(dict.fromkeys(known)) for name, known in found.items()}


def _policy_part(base: ClusterSettings, spec: SchedulingPolicySpec) -> Json:
    said = {name: getattr(spec, name) for name in spec.model_fields_set if getattr(spec, name) is not None}
    if spec.fairness is not None:
        named = {name: getattr(spec.fairness, name) for name in spec.fairness.model_fields_set}
        said["fairness"] = base.fairness.model_copy(update=named)
    ClusterSettings.model_validate({**dict(base), **said})
    return said
