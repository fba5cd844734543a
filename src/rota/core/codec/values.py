"""The core types as plain JSON values and back: the one format of all journals."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rota.core.codec.guarantees import decode_cells, decode_tenants, encode_cells, encode_tenants
from rota.core.messages import events as ev
from rota.core.messages.decisions import Cause, Decision, Lease, Move, Renew, Resize, Resume, Start, Stop, Suspend
from rota.core.messages.events import End, Event
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.cluster import Cluster, Node, NodeTrust
from rota.core.model.job import WHOLE, Checkpoint, Elastic, Job, JobId, Level, Locality, Role
from rota.core.model.labels import Taint, terms_of, tolerations_of
from rota.core.model.placement import Placement, Slot, device_indexes

Json = dict[str, Any]

_EVENT_NAMES: dict[type, str] = {
    ev.JobArrived: "arrived",
    ev.JobCancelled: "cancelled",
    ev.JobHeld: "held",
    ev.JobReleased: "released",
    ev.JobUpdated: "updated",
    ev.CheckpointChanged: "checkpoint-changed",
    ev.JobRequeued: "requeued",
    ev.Started: "started",
    ev.StartFailed: "start-failed",
    ev.Stopped: "stopped",
    ev.Resized: "resized",
    ev.Moved: "moved",
    ev.Suspended: "suspended",
    ev.Resumed: "resumed",
    ev.SpeedChanged: "speed-changed",
    ev.Lapsed: "lapsed",
    ev.WorkDone: "work-done",
    ev.JobEnded: "ended",
    ev.Interrupted: "interrupted",
    ev.NodeLost: "node-lost",
    ev.NodeBack: "node-back",
    ev.NodeDrained: "node-drained",
    ev.NodeUndrained: "node-undrained",
    ev.NodeRated: "node-rated",
    ev.NodeReserved: "node-reserved",
    ev.NodeAdded: "node-added",
    ev.NodeRemoved: "node-removed",
    ev.NodeOccupied: "node-occupied",
    ev.PromisesChanged: "promises-changed",
    ev.TimerFired: "timer",
}
_EVENTS_BY_NAME = {name: kind for kind, name in _EVENT_NAMES.items()}
_EVENT_FIELDS = {kind: tuple(f.name for f in dataclasses.fields(kind)) for kind in _EVENT_NAMES}


def encode_event(event: Event) -> Json:
    """An event as JSON values."""
    kind = type(event)
    value: Json = {"event": _EVENT_NAMES[kind]}
    for name in _EVENT_FIELDS[kind]:
        field = getattr(event, name)
        if _is_usual(name, field):
            continue
        if name == "job":
            field = encode_job(field)
        elif name == "node":
            field = encode_plain(field)
        elif name in ("end", "trust"):
            field = field.value
        elif name == "cells":
            field = encode_cells(field)
        elif name == "tenants":
            field = encode_tenants(field)
        value[name] = field
    return value


def _is_usual(name: str, field: object) -> bool:
    """Whether a field has its default and need not be written."""
    match name:
        case "held":
            return not field
        case "nominal_rate":
            return field == 1.0
        case "retry_s" | "cells" | "tenants" | "job" | "done":
            return field is None
        case _:
            return False


def decode_event(value: Mapping[str, Any]) -> Event:
    """An event from JSON values."""
    fields = dict(value)
    kind = _EVENTS_BY_NAME[fields.pop("event")]
    if "job" in fields:
        fields["job"] = decode_job(fields["job"])
    if "node" in fields:
        fields["node"] = decode_node(fields["node"])
    if "end" in fields:
        fields["end"] = End(fields["end"])
    if "trust" in fields:
        fields["trust"] = NodeTrust(fields["trust"])
    if "taints" in fields:
        fields["taints"] = tuple(Taint(*each) for each in fields["taints"])
    if "cells" in fields:
        fields["cells"] = decode_cells(fields["cells"])
    if "tenants" in fields:
        fields["tenants"] = decode_tenants(fields["tenants"])
    event: Event = kind(**fields)
    return event


def encode_decision(decision: Decision, node_names: Sequence[str]) -> Json:
    """A decision as JSON values, nodes by name."""
    match decision:
        case Start(job_id, placement, lease):
            value: Json = {"order": "start", "job_id": job_id, "on": encode_placement(placement, node_names)}
            return value if lease is None else {**value, "lease": encode_plain(lease)}
        case Renew(job_id, placement, lease):
            on = encode_placement(placement, node_names)
            return {"order": "renew", "job_id": job_id, "on": on, "lease": encode_plain(lease)}
        case Stop(job_id, cause):
            return {"order": "stop", "job_id": job_id, "cause": cause.value}
        case Suspend(job_id):
            return {"order": "suspend", "job_id": job_id}
        case Resize(job_id, placement) | Move(job_id, placement) | Resume(job_id, placement):
            order = type(decision).__name__.lower()
            return {"order": order, "job_id": job_id, "on": encode_placement(placement, node_names)}


def decode_decision(value: Mapping[str, Any], index_by_node: Mapping[str, int]) -> Decision:
    """A decision from JSON values."""
    job_id = JobId(value["job_id"])
    match value["order"]:
        case "start":
            lease = Lease(**value["lease"]) if "lease" in value else None
            return Start(job_id, decode_placement(value["on"], index_by_node), lease)
        case "renew":
            return Renew(job_id, decode_placement(value["on"], index_by_node), Lease(**value["lease"]))
        case "resize":
            return Resize(job_id, decode_placement(value["on"], index_by_node))
        case "move":
            return Move(job_id, decode_placement(value["on"], index_by_node))
        case "resume":
            return Resume(job_id, decode_placement(value["on"], index_by_node))
        case "suspend":
            return Suspend(job_id)
        case _:
            return Stop(job_id, Cause(value["cause"]))


def encode_placement(placement: Placement, node_names: Sequence[str]) -> list[list[Any]]:
    """Slots as [node, devices, tasks, role, thousandths, whether time-sliced, thousandths of memory].

    The last two are left out where they have their defaults: not time-sliced, all of the memory.
    """
    return [
        [node_names[slot.node], device_indexes(slot.devices), slot.tasks, slot.role, slot.milli, *_sharing(slot)]
        for slot in placement
    ]


def _sharing(slot: Slot) -> list[bool | int]:
    if slot.memory_milli != WHOLE:
        return [slot.in_turn, slot.memory_milli]
    return [True] if slot.in_turn else []


def decode_placement(value: Sequence[Sequence[Any]], index_by_node: Mapping[str, int]) -> Placement:
    """Slots from their JSON form."""
    return tuple(
        Slot(index_by_node[node], sum(1 << d for d in devices), tasks, role, milli, *sharing)
        for node, devices, tasks, role, milli, *sharing in value
    )


def encode_reason(reason: Reason) -> Json:
    """A reason as JSON values."""
    value = encode_plain(reason)
    value["code"] = reason.code.value
    return value


def decode_reason(value: Mapping[str, Any]) -> Reason:
    """A reason from JSON values."""
    return Reason(**{**value, "code": ReasonCode(value["code"])})


def encode_job(job: Job) -> Json:
    """A job as JSON values; what is at its default is left out."""
    value = encode_plain(job)
    value["roles"] = [encode_plain(role) for role in job.roles]
    if job.locality is not None:
        value["locality"] = {**encode_plain(job.locality), "level": int(job.locality.level)}
    for name, part in (("elastic", job.elastic), ("checkpoint", job.checkpoint)):
        if part is not None:
            value[name] = encode_plain(part)
    for name, amount in value.get("checkpoint", {}).items():
        if amount == math.inf:
            value["checkpoint"][name] = "inf"  # JSON knows no infinity
    return value


_PARTS: dict[str, Callable[[Any], Any]] = {
    "roles": lambda roles: tuple(_decode_role(role) for role in roles),
    "locality": lambda part: Locality(**{**part, "level": Level(part.get("level", Level.NODE))}),
    "elastic": lambda part: Elastic(**part),
    "checkpoint": lambda part: Checkpoint(**{name: float(amount) for name, amount in part.items()}),
    "depends_on": tuple,
    "labels": lambda labels: tuple((key, value) for key, value in labels),
}


def _decode_role(value: Mapping[str, Any]) -> Role:
    fields = {**value, "device_types": tuple(value.get("device_types", ()))}
    if "requires" in fields:
        fields["requires"] = terms_of(fields["requires"])
    if "tolerates" in fields:
        fields["tolerates"] = tolerations_of(fields["tolerates"])
    return Role(**fields)


def decode_job(value: Mapping[str, Any]) -> Job:
    """A job from JSON values."""
    return Job(**{name: _PARTS[name](part) if name in _PARTS else part for name, part in value.items()})


def encode_cluster(cluster: Cluster) -> list[Json] | Json:
    """The nodes as JSON values, together with the guarantees of tenants, where there are any."""
    nodes = [encode_plain(node) for node in cluster.nodes]
    if cluster.cells is None and cluster.tenants is None:
        return nodes
    return {
        "nodes": nodes,
        "cells": None if cluster.cells is None else encode_cells(cluster.cells),
        "tenants": None if cluster.tenants is None else encode_tenants(cluster.tenants),
    }


def decode_cluster(value: Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> Cluster:
    """A cluster from its JSON values."""
    if not isinstance(value, Mapping):
        return Cluster(nodes=tuple(decode_node(node) for node in value))
    return Cluster(
        nodes=tuple(decode_node(node) for node in value["nodes"]),
        cells=None if value["cells"] is None else decode_cells(value["cells"]),
        tenants=None if value["tenants"] is None else decode_tenants(value["tenants"]),
    )


def decode_node(value: Mapping[str, Any]) -> Node:
    """A node from JSON values."""
    fields = {**value, "sockets": tuple(value.get("sockets", ()))}
    if "labels" in fields:
        fields["labels"] = tuple((key, text) for key, text in fields["labels"])
    if "taints" in fields:
        fields["taints"] = tuple(Taint(*each) for each in fields["taints"])
    return Node(**fields)


def encode_plain(value: Any) -> Json:
    """The fields of a dataclass that are not at their default."""
    plain: Json = {}
    for name, default in _fields_of(type(value)):
        amount = getattr(value, name)
        if default is dataclasses.MISSING or amount != default:
            plain[name] = amount
    return plain


_FIELDS: dict[type, tuple[tuple[str, Any], ...]] = {}


def _fields_of(kind: type) -> tuple[tuple[str, Any], ...]:
    """Names and defaults of the fields that make a value of a type; looked up once."""
    known = _FIELDS.get(kind)
    if known is None:
        known = tuple((field.name, field.default) for field in dataclasses.fields(kind) if field.init)
        _FIELDS[kind] = known
    return known
