"""The RBAC rights that Rota needs, exactly, and a check that its identity has them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rota.core.errors import Unavailable
from rota.drivers.kubernetes.api.client import Api, MissingRight

log = logging.getLogger("rota.drivers.kubernetes")
Json = dict[str, Any]
NAME = "rota"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_OF_OTHERS = frozenset(
    {
        *("autoscaling.x-k8s.io", "jobset.x-k8s.io", "kubeflow.org", "ray.io"),
        *("scheduling.run.ai", "scheduling.volcano.sh"),
    }
)
"""API groups of controllers that a cluster may lack; Rota works without them."""
_OBJECTS = ("queues", "topologies", "schedulingpolicies")
_DEVICES = "resource.k8s.io"
"""The group of dynamic resource allocation, which servers before 1.34 do not have."""
_REGISTRATION = "admissionregistration.k8s.io"
_CONFIGURATIONS = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """One permitted action: cluster-wide or in one namespace, optionally on one object."""

    verb: str
    resource: str
    group: str = ""
    namespace: str | None = None
    name: str | None = None

    def __str__(self) -> str:
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        which = "" if self.name is None else f" {self.name!r}"
        where = "everywhere" if self.namespace is None else f"in namespace {self.namespace}"
        return f"{self.verb} {what}{which} {where}"

    @property
    def is_optional(self) -> bool:
        """Whether Rota works without it: for other controllers, claims of devices, objects, autoscalers, suspects."""
        if self.resource.startswith("nodes") and self.verb in ("get", "patch"):  # to mark suspects
            return True
        return self.group in (*_OF_OTHERS, _DEVICES) or self.resource.partition("/")[0] in (*_OBJECTS, "podtemplates")

    @property
    def is_for_admission(self) -> bool:
        """Whether only the admission webhook uses it."""
        return self.group == _REGISTRATION or self.resource == "secrets"

    def review(self) -> Json:
        """The access review that asks the API server for this right."""
        resource, _, part = self.resource.partition("/")
        asked = {"verb": self.verb, "group": self.group, "resource": resource, "subresource": part}
        asked |= {"namespace": self.namespace or "", "name": self.name or ""}
        return {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": asked},
        }


def cluster_rules() -> list[Json]:
    """The cluster-wide rules that Rota uses, exactly."""
    return [
        _rule("", ["nodes"], ["get", "list", "watch", "patch"]),
        _rule("", ["nodes/status"], ["patch"]),
        _rule("", ["pods"], ["get", "list", "watch", "delete"]),
        _rule("", ["pods/binding", "pods/eviction"], ["create"]),
        _rule("", ["pods/status"], ["patch"]),
        _rule("", ["events"], ["create"]),
        _rule("", ["namespaces"], ["list", "watch"]),
        _rule("", ["persistentvolumes", "persistentvolumeclaims"], ["get", "list", "watch", "patch"]),
        _rule("storage.k8s.io", ["storageclasses", "csinodes"], ["list", "watch"]),
        _rule(_DEVICES, ["resourceslices"], ["list", "watch"]),
        _rule(_DEVICES, ["deviceclasses"], ["get", "list", "watch"]),
        _rule(_DEVICES, ["resourceclaims"], ["get", "list", "watch", "patch"]),
        _rule(_DEVICES, ["resourceclaims/status", "resourceclaims/binding"], ["patch"]),
        _rule("batch", ["jobs"], ["get", "delete"]),
        _rule("jobset.x-k8s.io", ["jobsets"], ["get"]),
        _rule("kubeflow.org", ["pytorchjobs", "tfjobs", "mpijobs", "xgboostjobs", "paddlejobs", "jaxjobs"], ["get"]),
        _rule("ray.io", ["rayclusters"], ["get"]),
        _rule("scheduling.volcano.sh", ["podgroups"], ["get"]),
        _rule("scheduling.run.ai", ["podgroups"], ["get"]),
        _rule("rota.dev", ["podgroups"], ["get"]),
        _rule("rota.dev", ["podgroups/status"], ["patch"]),
        _rule("rota.dev", list(_OBJECTS), ["list", "watch"]),
        _rule("rota.dev", [f"{name}/status" for name in _OBJECTS], ["patch"]),
        _rule("autoscaling.x-k8s.io", ["provisioningrequests"], ["create", "delete"]),
        _rule("", ["podtemplates"], ["create", "delete"]),
        {**_rule(_REGISTRATION, list(_CONFIGURATIONS), ["get", "update"]), "resourceNames": [NAME]},
    ]


def own_rules() -> list[Json]:
    """The rules that Rota uses in its own namespace."""
    return [
        {**_rule("", ["configmaps"], ["list", "watch"]), "resourceNames": [NAME]},
        {**_rule("coordination.k8s.io", ["leases"], ["get", "update"]), "resourceNames": [NAME]},
        _rule("coordination.k8s.io", ["leases"], ["create"]),
        _rule("", ["pods"], ["patch"]),
        {**_rule("", ["secrets"], ["get", "update"]), "resourceNames": [f"{NAME}-admission"]},
        _rule("", ["secrets"], ["create"]),
    ]


def user_rules() -> list[Json]:
    """The rules of users that submit pods in a namespace: they see its Queues and make PodGroups, and no more."""
    return [
        _rule("rota.dev", ["queues"], ["get", "list", "watch"]),
        _rule("rota.dev", ["podgroups"], ["get", "list", "watch", "create", "update", "patch", "delete"]),
    ]


def queue_admin_rules() -> list[Json]:
    """The rules of administrators of shares; a RoleBinding limits them to the Queues of its namespace."""
    return [_rule("rota.dev", ["queues"], ["get", "list", "watch", "create", "update", "patch", "delete"])]


def session_rules() -> list[Json]:
    """The rules for sessions in pods; a binding gives them to Rota in a namespace. No other part uses them.

    API servers ask for `get` where a session begins with a WebSocket, and current ones for `create` as well.
    """
    return [
        _rule("", ["pods/exec", "pods/attach", "pods/portforward"], ["get", "create"]),
        _rule("", ["pods/log"], ["get"]),
    ]


def submit_rules() -> list[Json]:
    """The rules for jobs that users submit to Rota itself; a binding gives them to Rota in a namespace."""
    return [_rule("batch", ["jobs"], ["create"]), _rule("", ["secrets"], ["create", "patch"])]


def _rule(group: str, resources: list[str], verbs: list[str]) -> Json:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


def all_rights(namespace: str) -> list[Right]:
    """Every right of the manifests, one by one; `namespace` is Rota's own."""
    everywhere = [right for rule in cluster_rules() for right in _each(rule, None)]
    return everywhere + [right for rule in own_rules() for right in _each(rule, namespace)]


def _each(rule: Json, namespace: str | None) -> Iterator[Right]:
    name = rule.get("resourceNames", [None])[0]
    for resource in rule["resources"]:
        for verb in rule["verbs"]:
            yield Right(verb=verb, resource=resource, group=rule["apiGroups"][0], namespace=namespace, name=name)


def needed_rights(
    namespace: str, *, config_map: str | None, lease: str | None, pod: str | None, admission: bool = False
) -> list[Right]:
    """The rights that a replica with this ConfigMap, Lease and pod uses, and with or without the admission webhook."""
    found = []
    for right in all_rights(namespace):
        if right.is_for_admission:
            found += [right] if admission else []
            continue
        name = {"configmaps": config_map, "leases": lease, "pods": lease and pod}.get(right.resource, right.name)
        if right.namespace is None or name is not None:
            found.append(right if right.name is None else replace(right, name=name))
    return found


async def missing_rights(api: Api, wanted: Sequence[Right]) -> list[Right]:
    """The rights that the connection's identity lacks."""

    async def is_missing(right: Right) -> bool:
        answer = await api.post(REVIEWS, right.review())
        return not answer["status"].get("allowed")

    found = await asyncio.gather(*(is_missing(right) for right in wanted))
    return [right for right, is_gone in zip(wanted, found, strict=True) if is_gone]


async def check_rights(api: Api, wanted: Sequence[Right]) -> None:
    """Refuse to start without a required right, naming it; warn about missing optional ones."""
    try:
        missing = await missing_rights(api, wanted)
    except (Unavailable, MissingRight) as error:
        log.warning("could not check whether all rights are granted", extra={"why": str(error)})
        return
    optional = [str(right) for right in missing if right.is_optional]
    if optional:
        why = (
            "gangs of other controllers count as whole when quiet for `settle`; settings as objects have no effect; "
            "pods with resourceClaims are refused"
        )
        log.warning("rights are missing", extra={"rights": ", ".join(optional), "why": why})
    needed = [str(right) for right in missing if not right.is_optional]
    if needed:
        word = "a right is" if len(needed) == 1 else "rights are"
        raise MissingRight(f"{word} missing: {', '.join(needed)}; `rota k8s manifests` prints all that are needed")
