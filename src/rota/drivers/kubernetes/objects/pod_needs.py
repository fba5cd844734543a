"""The constraints of a pod spec as the filters take them, and those that can't be honoured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rota.core.model.labels import Operator, Requirement, Terms
from rota.drivers.kubernetes.filters.facts import (
    ANY_ADDRESS,
    NO_NEEDS,
    AffinityTerm,
    ClaimNeed,
    HostPort,
    PodNeeds,
    SpreadConstraint,
)
from rota.drivers.kubernetes.filters.selectors import Selector, selector_of
from rota.drivers.kubernetes.objects.pod_annotations import NODE_NAME

Json = dict[str, Any]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_ATTACHED = frozenset(
    {
        "awsElasticBlockStore",
        "azureDisk",
        "cinder",
        "fc",
        "gcePersistentDisk",
        "iscsi",
        "photonPersistentDisk",
        "portworxVolume",
        "quobyte",
        "rbd",
        "scaleIO",
        "storageos",
        "vsphereVolume",
    }
)
"""Inline volumes that have to be attached, which nothing reports to a scheduler."""
NOWHERE = (Requirement(NODE_NAME, "DoesNotExist"),)
"""An affinity with empty terms, which matches no node."""


def needs_of(spec: Json, meta: Json, status: Json, amounts: tuple[tuple[str, int], ...]) -> PodNeeds:
    """Return what a pod needs of a node; `NO_NEEDS` itself for most pods."""
    affinity = spec.get("affinity") or {}
    near = _terms(affinity.get("podAffinity"), meta)
    away = _terms(affinity.get("podAntiAffinity"), meta)
    spread = tuple(_spread(spec, meta))
    ports = tuple(_ports(spec))
    volumes = tuple(_volumes(spec, meta))
    claims = tuple(_claims(spec, status))
    if not (amounts or near or away or spread or ports or volumes or claims):
        return NO_NEEDS
    return PodNeeds(
        amounts=amounts,
        ports=ports,
        affinity=near,
        anti_affinity=away,
        spread=spread,
        volumes=volumes,
        claims=claims,
        node_terms=node_terms(spec) if spread else (),
        tolerates=tuple(_tolerations(spec)) if any(each.honours_taints for each in spread) else (),
    )


def unsupported(spec: Json) -> str:
    """Return the part of a spec that can't be honoured, in words; empty if there is none."""
    for volume in spec.get("volumes") or ():
        for kind in volume:
            if kind in _ATTACHED:
                return f"volume {volume.get('name')} is of kind {kind}; use a PersistentVolumeClaim instead"
    for each in spec.get("topologySpreadConstraints") or ():
        if each.get("whenUnsatisfiable") == "DoNotSchedule" and not _number(each.get("maxSkew"), 1):
            return f"topologySpreadConstraints: maxSkew is {each.get('maxSkew')!r:.40}"
    if "schedulingGroup" in spec or "workloadRef" in spec:
        return "its Workload is not understood; group its pods with rota.dev/job or a PodGroup"
    return ""


def node_terms(spec: Json) -> Terms:
    """Return the node selector and the required node affinity."""
    common = [Requirement(key, "In", (value,)) for key, value in sorted((spec.get("nodeSelector") or {}).items())]
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}
    asked = required.get("nodeSelectorTerms") or ()
    if not asked:
        return (tuple(common),) if common else ()
    terms = [found for term in asked if (found := tuple(requirements(term)))]
    return tuple(tuple(common) + term for term in terms or [NOWHERE])


def requirements(term: Json) -> Iterable[Requirement]:
    """Yield the requirements of a node selector term; raise a `ValueError` for one that can't be evaluated."""
    for each in term.get("matchExpressions") or ():
        yield _requirement(str(each["key"]), each)
    for each in term.get("matchFields") or ():  # metadata.name is the only supported field
        yield _requirement(NODE_NAME, each)


def _requirement(key: str, value: Json) -> Requirement:
    operator = Operator(value["operator"])
    values = tuple(map(str, value.get("values") or ()))
    if operator in (Operator.ABOVE, Operator.BELOW) and len(values) != 1:
        raise ValueError(f"operator {operator.value} needs one value")
    return Requirement(key, operator.value, values)


def _terms(value: Json | None, meta: Json) -> tuple[AffinityTerm, ...]:
    found = []
    for each in (value or {}).get(_REQUIRED) or ():
        selector = selector_of(each.get("labelSelector"))
        labels = meta.get("labels") or {}
        if selector is not None:
            selector = selector.and_equal(labels, tuple(each.get("matchLabelKeys") or ()))
            selector = _and_unequal(selector, labels, each.get("mismatchLabelKeys") or ())
        found.append(
            AffinityTerm(
                topology_key=str(each["topologyKey"]),
                selector=selector,
                namespaces=tuple(each.get("namespaces") or ()),
                namespace_selector=selector_of(each.get("namespaceSelector")),
            )
        )
    return tuple(found)


def _and_unequal(selector: Selector, labels: Mapping[str, str], keys: Iterable[str]) -> Selector:
    values = [{"key": key, "operator": "NotIn", "values": [labels[key]]} for key in keys if key in labels]
    more = selector_of({"matchExpressions": values})
    return selector if more is None else Selector((*selector.rules, *more.rules))


def _spread(spec: Json, meta: Json) -> Iterable[SpreadConstraint]:
    for each in spec.get("topologySpreadConstraints") or ():
        if each.get("whenUnsatisfiable") != "DoNotSchedule":
            continue
        selector = selector_of(each.get("labelSelector"))
        if selector is not None:
            selector = selector.and_equal(meta.get("labels") or {}, tuple(each.get("matchLabelKeys") or ()))
        yield SpreadConstraint(
            max_skew=_number(each.get("maxSkew"), 1),
            topology_key=str(each["topologyKey"]),
            selector=selector,
            min_domains=_number(each.get("minDomains"), 1) or 1,
            honours_affinity=each.get("nodeAffinityPolicy", "Honor") == "Honor",
            honours_taints=each.get("nodeTaintsPolicy", "Ignore") == "Honor",
        )


def _number(value: object, least: int) -> int:
    """A number of at least so much; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= least else 0


def _ports(spec: Json) -> Iterable[HostPort]:
    sidecars = [each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"]
    found: dict[HostPort, None] = {}
    for container in (*spec["containers"], *sidecars):
        for each in container.get("ports") or ():
            number = each.get("hostPort") or (each.get("containerPort") if spec.get("hostNetwork") else 0)
            if number:
                found[HostPort(int(number), each.get("protocol") or "TCP", each.get("hostIP") or ANY_ADDRESS)] = None
    return found


def _volumes(spec: Json, meta: Json) -> Iterable[str]:
    for each in spec.get("volumes") or ():
        if each.get("persistentVolumeClaim"):
            yield str(each["persistentVolumeClaim"]["claimName"])
        elif each.get("ephemeral"):
            yield f"{meta['name']}-{each['name']}"


def _claims(spec: Json, status: Json) -> Iterable[ClaimNeed]:
    made = {each["name"]: each.get("resourceClaimName") for each in status.get("resourceClaimStatuses") or ()}
    for each in spec.get("resourceClaims") or ():
        name = str(each["name"])
        if name in made and made[name] is None:
            continue  # its template makes no claim
        yield ClaimNeed(name, str(each.get("resourceClaimName") or made.get(name) or ""))


def _tolerations(spec: Json) -> Iterable[tuple[str | None, str | None, str | None]]:
    for each in spec.get("tolerations") or ():
        is_equal = each.get("operator", "Equal") == "Equal"
        yield each.get("key") or None, each.get("value", "") if is_equal else None, each.get("effect") or None
