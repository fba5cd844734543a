"""The custom resource definitions of Rota, with printer columns and, where the release has it, CEL validation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rota.drivers.kubernetes.api.rights import NAME
from rota.drivers.kubernetes.resources.pod_groups import pod_group_type

Json = dict[str, Any]
GROUP, VERSION = "rota.dev", "v1alpha1"
API = f"/apis/{GROUP}/{VERSION}"
CEL_SINCE = (1, 25)
"""The first release that evaluates validation rules of definitions by default."""
LEVELS = 8
_TEXT: Json = {"type": "string", "minLength": 1, "maxLength": 253}
_DURATION: Json = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(s|m|h|d|w)?([0-9]+(s|m|h|d))*$", "maxLength": 32}
_AMOUNTS: Json = {
    "type": "object",
    "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 1_000_000},
    "maxProperties": 64,
}
_CONDITIONS: Json = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
    "items": {
        "type": "object",
        "required": ["type", "status"],
        "properties": {
            name: {"type": "string"} for name in ("type", "status", "reason", "message", "lastTransitionTime")
        },
    },
}
_AGE = ("Age", "date", ".metadata.creationTimestamp")
_ACCEPTED = ("Accepted", "string", '.status.conditions[?(@.type=="Accepted")].status')


def resource_types(release: tuple[int, int] | None = None) -> list[Json]:
    """Return all definitions; for a release before 1.25 without validation rules, which it does not know."""
    has_rules = release is None or release >= CEL_SINCE
    made = [pod_group_type(), _queue(), _topology(), _scheduling_policy()]
    return made if has_rules else [without_rules(each) for each in made]


def _queue() -> Json:
    spec = _object(
        guaranteed=_said(_AMOUNTS, "Devices that it can claim at any time, by device type; `*` stands for any type."),
        limit=_said(_AMOUNTS, "The most devices that it may hold, borrowed ones included, by device type."),
        borrowing=_said({"type": "boolean"}, "false: it never holds more than its guarantee."),
        parent=_said(_TEXT, "The Queue that contains it, by name, in any namespace."),
        weight=_said({"type": "number", "minimum": 0, "exclusiveMinimum": True}, "Its weight against its siblings."),
        perUser=_said({"type": "integer", "minimum": 1}, "The most devices that one of its users may hold."),
    )
    spec["x-kubernetes-validations"] = [
        _rule(
            "!has(self.limit) || !has(self.guaranteed) || "
            "self.guaranteed.all(t, !(t in self.limit) || self.limit[t] >= self.guaranteed[t])",
            "limit is less than what is guaranteed; raise it",
        ),
        _rule(
            "!has(self.borrowing) || self.borrowing || !has(self.limit)",
            "borrowing is false, so that the guarantee is the limit; remove limit, or allow borrowing",
        ),
        _rule("!has(self.weight) || self.weight > 0.0", "weight must be above 0"),
    ]
    whole: Json = {"type": "integer"}
    status = _object(
        guaranteed=whole, used=whole, borrowed=whole, lent=whole, waiting=whole, running=whole, conditions=_CONDITIONS
    )
    columns = [("Guaranteed", "integer", ".status.guaranteed"), ("Used", "integer", ".status.used")]
    columns += [("Waiting", "integer", ".status.waiting"), ("Running", "integer", ".status.running")]
    columns += [("Borrowed", "integer", ".status.borrowed"), ("Parent", "string", ".spec.parent"), _ACCEPTED, _AGE]
    return _definition("Queue", "queues", ["rq"], "Namespaced", spec, status, columns)


def _topology() -> Json:
    level = _object(nodeLabel=_said(_TEXT, "The node label whose value names the place of a node at this level."))
    level["required"] = ["nodeLabel"]
    levels = {"type": "array", "minItems": 1, "maxItems": LEVELS, "items": level}
    spec = _object(
        levels=_said(levels, "Levels above the node, the largest first; the host name may be the last."),
        deviceType=_said(_TEXT, "The node label that names the model of its devices."),
        deviceMemory=_said(_TEXT, "The node label with the memory of one device, in MiB."),
        sockets=_said(_TEXT, "The node label with the devices that are connected to each other: 4-4."),
    )
    spec["x-kubernetes-validations"] = [
        _rule(
            "!has(self.levels) || self.levels.all(a, self.levels.filter(b, b.nodeLabel == a.nodeLabel).size() == 1)",
            "levels names a node label twice",
        )
    ]
    place = _object(nodeLabel={"type": "string"}, places={"type": "integer"})
    status = _object(nodes={"type": "integer"}, levels={"type": "array", "items": place}, conditions=_CONDITIONS)
    columns = [("Nodes", "integer", ".status.nodes"), ("Levels", "string", ".spec.levels[*].nodeLabel")]
    return _definition("Topology", "topologies", [], "Cluster", spec, status, [*columns, _ACCEPTED, _AGE])


def _scheduling_policy() -> Json:
    spec = _object(
        policy=_said(_TEXT, "The policy with its parameters, as in `rota policies`."),
        placement=_TEXT,
        tenancy=_said({"type": "string", "enum": ["none", "quota", "cells"]}, "How guarantees are kept."),
        fairness=_object(halfLife=_DURATION, minRun=_DURATION),
        gangTimeout=_DURATION,
        lostAfter=_DURATION,
        linger=_DURATION,
        settle=_DURATION,
        checkEvery=_DURATION,
        defaults=_said(
            {"type": "object", "additionalProperties": _TEXT, "maxProperties": 16},
            "Annotations without rota.dev/ that pods without them get at admission.",
        ),
        admission=_object(failure={"type": "string", "enum": ["open", "closed"]}),
    )
    status = _object(nodes={"type": "integer"}, conditions=_CONDITIONS)
    columns = [("Policy", "string", ".spec.policy"), ("Tenancy", "string", ".spec.tenancy"), _ACCEPTED, _AGE]
    made = _definition("SchedulingPolicy", "schedulingpolicies", [], "Cluster", spec, status, columns)
    schema = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["x-kubernetes-validations"] = [
        _rule("self.metadata.name == 'default'", "the name must be default: a cluster has one SchedulingPolicy")
    ]
    return made


def _object(**properties: Json) -> Json:
    return {"type": "object", "properties": properties}


def _said(schema: Json, description: str) -> Json:
    return {**schema, "description": description}


def _rule(rule: str, message: str) -> Json:
    return {"rule": rule, "message": message}


def _definition(
    kind: str,
    plural: str,
    short: list[str],
    scope: str,
    spec: Json,
    status: Json,
    columns: Sequence[tuple[str, str, str]],
) -> Json:
    names: Json = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    if short:
        names["shortNames"] = short
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {
            "openAPIV3Schema": {"type": "object", "required": ["spec"], "properties": {"spec": spec, "status": status}}
        },
        "additionalPrinterColumns": [{"name": name, "type": kind, "jsonPath": path} for name, kind, path in columns],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}", "labels": {"app.kubernetes.io/name": NAME}},
        "spec": {"group": GROUP, "scope": scope, "names": names, "versions": [version]},
    }


def without_rules(value: Any) -> Any:
    """Return a definition, or a part of one, without validation rules."""
    if isinstance(value, dict):
        return {name: without_rules(inner) for name, inner in value.items() if name != "x-kubernetes-validations"}
    return [without_rules(inner) for inner in value] if isinstance(value, list) else value
