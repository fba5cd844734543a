"""ResourceSlices, DeviceClasses and ResourceClaims of resource.k8s.io/v1 as plain values, and allocations written."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from rota.core.model.labels import Terms
from rota.drivers.kubernetes.devices.cel_syntax import CelError
from rota.drivers.kubernetes.devices.cel_types import quantity_of, version_of
from rota.drivers.kubernetes.devices.device_facts import (
    AllocatedDevice,
    Allocation,
    ClaimRequest,
    DeviceChoice,
    DeviceClaim,
    DeviceId,
    DeviceKind,
    DeviceRule,
    DeviceSlice,
    DeviceTaint,
    DeviceToleration,
    DomainMap,
    NodeScope,
    PoolDevice,
)
from rota.drivers.kubernetes.objects.pod_annotations import NODE_NAME
from rota.drivers.kubernetes.objects.pod_needs import requirements

Json = dict[str, Any]
FINALIZER = "resource.kubernetes.io/delete-protection"
MOST_COUNT = 1024


def slice_of(value: Json) -> DeviceSlice:
    """Parse a ResourceSlice."""
    spec = value["spec"]
    driver, pool = str(spec["driver"]), spec["pool"]
    name = str(pool["name"])
    return DeviceSlice(
        name=str(value["metadata"]["name"]),
        driver=driver,
        pool=name,
        generation=int(pool.get("generation", 0)),
        parts=int(pool.get("resourceSliceCount", 1)),
        devices=tuple(_device(each, spec, driver, name) for each in spec.get("devices") or ()),
        counters=tuple(_counters(spec.get("sharedCounters"), "name")),
    )


def _counters(values: Iterable[Json] | None, key: str) -> Iterable[tuple[str, str, Decimal]]:
    for each in values or ():
        for counter, entry in sorted((each.get("counters") or {}).items()):
            yield str(each[key]), str(counter), quantity_of(str(entry["value"])).amount


def _device(value: Json, spec: Json, driver: str, pool: str) -> PoolDevice:
    shared = value.get("allowMultipleAllocations") is True
    attributes, capacity = DomainMap(), DomainMap()
    for name, entry in (value.get("attributes") or {}).items():
        _put(attributes, str(name), driver, _attribute(entry))
    for name, entry in (value.get("capacity") or {}).items():
        _put(capacity, str(name), driver, quantity_of(str(entry["value"])))
    where = value if spec.get("perDeviceNodeSelection") else spec
    unusable = "is shared by capacity, which is not supported" if shared else ""
    if value.get("bindingConditions"):
        unusable = "has binding conditions, which are not supported"
    return PoolDevice(
        id=DeviceId(driver, pool, str(value["name"])),
        variables={
            "driver": driver,
            "attributes": attributes,
            "capacity": capacity,
            "allowMultipleAllocations": shared,
        },
        scope=NodeScope(
            name=str(where.get("nodeName") or ""),
            terms=_terms(where.get("nodeSelector")),
            everywhere=where.get("allNodes") is True,
        ),
        taints=tuple(
            DeviceTaint(str(each["key"]), str(each.get("value", "")), str(each["effect"]))
            for each in value.get("taints") or ()
        ),
        counters=tuple(_counters(value.get("consumesCounters"), "counterSet")),
        unusable=unusable,
    )


def _put(into: DomainMap, name: str, driver: str, value: object) -> None:
    domain, slash, inner = name.partition("/")
    into.setdefault(domain if slash else driver, {})[inner if slash else name] = value


def _attribute(entry: Json) -> object:
    for kind, types in (("int", int), ("bool", bool), ("string", str)):
        if isinstance(entry.get(kind), types):
            return entry[kind]
    if "version" in entry:
        return version_of(entry["version"])
    raise CelError(f"attribute {entry!r:.60} has no value that is understood")


def _terms(selector: Json | None) -> Terms:
    return tuple(tuple(requirements(term)) for term in (selector or {}).get("nodeSelectorTerms") or ())


def kind_of(value: Json) -> DeviceKind:
    """Parse a DeviceClass."""
    return DeviceKind(name=str(value["metadata"]["name"]), selectors=_selectors(value.get("spec") or {}))


def _selectors(value: Json) -> tuple[str, ...]:
    return tuple(str(each["cel"]["expression"]) for each in value.get("selectors") or ())


def claim_of(value: Json) -> DeviceClaim:
    """Parse a ResourceClaim; what it asks for that is not understood is named in it."""
    meta, status = value["metadata"], value.get("status") or {}
    asked = (value.get("spec") or {}).get("devices") or {}
    requests: list[ClaimRequest] = []
    unsupported = ""
    for each in asked.get("requests") or ():
        choices, words = _choices(each)
        unsupported = unsupported or words
        requests.append(ClaimRequest(name=str(each["name"]), choices=choices))
    rules = []
    for each in asked.get("constraints") or ():
        attribute = each.get("matchAttribute") or each.get("distinctAttribute")
        if not attribute:
            unsupported = unsupported or f"constraint {sorted(each)} is not supported"
            continue
        concerned = frozenset(map(str, each.get("requests") or ()))
        rules.append(DeviceRule(attribute=str(attribute), requests=concerned, is_distinct="matchAttribute" not in each))
    owners = [each for each in meta.get("ownerReferences") or () if each.get("controller")]
    return DeviceClaim(
        namespace=str(meta["namespace"]),
        name=str(meta["name"]),
        uid=str(meta.get("uid", "")),
        requests=tuple(requests),
        rules=tuple(rules),
        allocation=_allocation(status.get("allocation")),
        reserved_for=tuple(str(each["uid"]) for each in status.get("reservedFor") or ()),
        made_for=next((str(each["uid"]) for each in owners if each.get("kind") == "Pod"), ""),
        ending=meta.get("deletionTimestamp") is not None,
        unsupported=unsupported,
    )


def _choices(value: Json) -> tuple[tuple[DeviceChoice, ...], str]:
    """The choices of a request, and what is not supported in them."""
    name = str(value["name"])
    exactly, several = value.get("exactly"), value.get("firstAvailable") or ()
    entries = [(name, exactly)] if exactly else [(f"{name}/{each['name']}", each) for each in several]
    if not entries:
        return (), f"request {name} has neither `exactly` nor `firstAvailable`"
    found = []
    for called, each in entries:
        mode = each.get("allocationMode") or "ExactCount"
        count = int(each.get("count") or 1)
        if each.get("capacity"):
            return (), f"request {called} asks for capacity of a device, which is not supported"
        if mode not in ("ExactCount", "All") or not 0 < count <= MOST_COUNT:
            return (), f"request {called}: allocationMode {mode!r:.40} or count {count} is not supported"
        found.append(
            DeviceChoice(
                name=called,
                kind=str(each.get("deviceClassName") or ""),
                selectors=_selectors(each),
                count=count,
                takes_all=mode == "All",
                is_admin=each.get("adminAccess") is True,
                tolerations=tuple(_toleration(one) for one in each.get("tolerations") or ()),
            )
        )
    return tuple(found), ""


def _toleration(value: Json) -> DeviceToleration:
    exists = value.get("operator") == "Exists"
    return DeviceToleration(
        value.get("key") or None, None if exists else str(value.get("value") or ""), value.get("effect") or None
    )


def _allocation(value: Json | None) -> Allocation | None:
    if not value:
        return None
    terms = _terms(value.get("nodeSelector"))
    return Allocation(
        devices=tuple(
            AllocatedDevice(
                str(each["request"]),
                DeviceId(str(each["driver"]), str(each["pool"]), str(each["device"])),
                each.get("adminAccess") is True,
            )
            for each in (value.get("devices") or {}).get("results") or ()
        ),
        terms=terms,
    )


def allocation_object(allocation: Allocation, claim: Json, classes: dict[str, Json]) -> Json:
    """Return an allocation as the status of a claim holds it; `classes` are DeviceClass objects by name."""
    asked = (claim.get("spec") or {}).get("devices") or {}
    tolerations = {name: each.get("tolerations") for name, each in _entries(asked) if each.get("tolerations")}
    results = []
    for each in allocation.devices:
        result: Json = {"request": each.request, **each.id._asdict()}
        result |= {"adminAccess": True} if each.is_admin else {}
        result |= {"tolerations": tolerations[each.request]} if each.request in tolerations else {}
        results.append(result)
    used = dict.fromkeys(each.request for each in allocation.devices)
    config: list[Json] = []
    for name, entry in _entries(asked):
        spec = (classes.get(str(entry.get("deviceClassName"))) or {}).get("spec") or {}
        if name in used:
            config += [{"source": "FromClass", "requests": [name], **each} for each in spec.get("config") or ()]
    config += [{"source": "FromClaim", **each} for each in asked.get("config") or ()]
    found: Json = {"devices": {"results": results, **({"config": config} if config else {})}}
    terms = _selector_terms(allocation)
    return {**found, **({"nodeSelector": {"nodeSelectorTerms": terms}} if terms else {})}


def _entries(asked: Json) -> Iterable[tuple[str, Json]]:
    for each in asked.get("requests") or ():
        if each.get("exactly"):
            yield each["name"], each["exactly"]
        for one in each.get("firstAvailable") or ():
            yield f"{each['name']}/{one['name']}", one


def _selector_terms(allocation: Allocation) -> list[Json]:
    if allocation.node_name:
        rule = {"key": "metadata.name", "operator": "In", "values": [allocation.node_name]}
        return [{"matchFields": [rule]}]
    found = []
    for term in allocation.terms:
        made: Json = {}
        for each in term:
            is_field = each.key == NODE_NAME
            one: Json = {"key": "metadata.name" if is_field else each.key, "operator": each.operator}
            one |= {"values": list(each.values)} if each.values else {}
            made.setdefault("matchFields" if is_field else "matchExpressions", []).append(one)
        found.append(made)
    return found
