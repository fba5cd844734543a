"""AdmissionReview requests answered: an object is refused with its mistakes, or gets its defaults."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from rota.drivers.kubernetes.admission.mistakes import CheckSettings, forged_in, mistakes_in, pod_asks, warnings_in
from rota.drivers.kubernetes.objects.pod_annotations import PREFIX
from rota.drivers.kubernetes.settings import ClusterSettings

Json = dict[str, Any]
MOST_SHOWN = 5
"""Mistakes of one object that are named; kubectl prints them on one line."""
LONGEST_WARNING = 240
"""Characters of a warning; the API server cuts longer ones."""
STOCK = "default-scheduler"


class NotAReview(Exception):
    """The body of a request is not an AdmissionReview."""


def validated(review: Any, settings: ClusterSettings, check: CheckSettings | None = None) -> Json:
    """Return the review's answer: refused with the mistakes that the object has and did not have before."""
    request = _request(review)
    value = _object(request, "object")
    found = mistakes_in(value, settings, check)
    if request.get("operation") == "UPDATE":
        before = _object(request, "oldObject")
        known = set(mistakes_in(before, settings, check)) if found else set()
        found = [each for each in found if each not in known]  # what was let in can still be changed and deleted
        found += forged_in(before, value, settings)
    answer: Json = {"uid": request["uid"], "allowed": not found}
    if found:
        more = f"; and {len(found) - MOST_SHOWN} more" if len(found) > MOST_SHOWN else ""
        message = "; ".join(found[:MOST_SHOWN]) + more
        answer["status"] = {"code": 422, "reason": "Invalid", "message": message}
    odd = warnings_in(value, settings)
    if odd:
        answer["warnings"] = [each[:LONGEST_WARNING] for each in odd[:MOST_SHOWN]]
    return _answer(review, answer)


def defaulted(review: Any, settings: ClusterSettings, *, takes_over: bool = False) -> Json:
    """Return the review's answer with a patch of defaults for a new pod of Rota.

    With `takes_over`, a pod that requests devices and names no scheduler becomes one of Rota's.
    """
    request = _request(review)
    value = _object(request, "object")
    patch = _patch(value, settings, takes_over) if request.get("operation") == "CREATE" else []
    answer: Json = {"uid": request["uid"], "allowed": True}
    if patch:
        answer |= {"patchType": "JSONPatch", "patch": base64.b64encode(orjson.dumps(patch)).decode()}
    return _answer(review, answer)


def _patch(value: Json, settings: ClusterSettings, takes_over: bool) -> list[Json]:
    spec, meta = value.get("spec"), value.get("metadata")
    if value.get("kind") != "Pod" or not isinstance(spec, dict) or not isinstance(meta, dict):
        return []
    made: list[Json] = []
    named = spec.get("schedulerName") or STOCK
    if takes_over and named == STOCK and pod_asks(value, settings):
        made.append({"op": "add", "path": "/spec/schedulerName", "value": settings.scheduler_name})
        named = settings.scheduler_name
    if named != settings.scheduler_name:
        return made
    labels, notes = meta.get("labels"), meta.get("annotations")
    said = {**(labels if isinstance(labels, Mapping) else {}), **(notes if isinstance(notes, Mapping) else {})}
    missing = {PREFIX + name: text for name, text in settings.defaults.items() if PREFIX + name not in said}
    if missing and not isinstance(notes, Mapping):
        made.append({"op": "add", "path": "/metadata/annotations", "value": missing})
    elif missing:
        made += [
            {"op": "add", "path": f"/metadata/annotations/{name.replace('~', '~0').replace('/', '~1')}", "value": text}
            for name, text in missing.items()
        ]
    return made


def _request(review: Any) -> Json:
    request = review.get("request") if isinstance(review, dict) else None
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str):
        raise NotAReview("the body is not an AdmissionReview with a request and its uid")
    return request


def _object(request: Json, field: str) -> Json:
    """Return an object of a request, with the namespace that it goes to."""
    value = request.get(field)
    if not isinstance(value, dict):
        return {}
    kind = request.get("kind")
    meta = value.get("metadata")
    space = {"namespace": request["namespace"]} if isinstance(request.get("namespace"), str) else {}
    named = {"kind": kind.get("kind")} if isinstance(kind, dict) and "kind" not in value else {}
    return {**value, **named, "metadata": {**(meta if isinstance(meta, dict) else {}), **space}}


def _answer(review: Json, answer: Json) -> Json:
    version = review.get("apiVersion")
    return {
        "apiVersion": version if isinstance(version, str) else "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": answer,
    }


Reviewer = Callable[[Any], Json]
