"""Mistakes in Kubernetes objects, in the words that pods, `kubectl apply` and `rota check` show.

Nothing here raises: objects are written by users.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from typing import Any

from rota.core.errors import RotaError
from rota.core.model.job import JobId
from rota.drivers.kubernetes.gangs.gang import Gang, key_of
from rota.drivers.kubernetes.objects.gang_jobs import job_of
from rota.drivers.kubernetes.objects.pod_annotations import KNOWN, PREFIX, WRITTEN
from rota.drivers.kubernetes.objects.reading import NONSENSE, read_pod
from rota.drivers.kubernetes.settings import KEY, ClusterSettings, read_settings

Json = dict[str, Any]
DEEPEST = 12
"""Levels of an object below which no pod template is looked for."""
MOST_TEMPLATES = 64
_NO_UID = "00000000-0000-0000-0000-000000000000"
_NO_TIME = "1970-01-01T00:00:00Z"
CheckSettings = Callable[[ClusterSettings], None]


def mistakes_in(value: Any, settings: ClusterSettings, check: CheckSettings | None = None) -> list[str]:
    """Return why Rota would refuse an object, one line each; `check` examines settings in a ConfigMap further."""
    if not isinstance(value, dict):
        return []
    kind = value.get("kind")
    if kind == "ConfigMap":
        return _of_config_map(value, check)
    if str(value.get("apiVersion")).startswith(PREFIX):
        return _of_resource(value)
    found = []
    for path, pod in _pods_of(value):
        found += [f"{path}: {each}" if path else each for each in _of_pod(pod, settings)]
    return found


def warnings_in(value: Any, settings: ClusterSettings) -> list[str]:
    """Return what is odd about an object, though Rota would take it: annotations and labels with a misspelt name."""
    if not isinstance(value, dict):
        return []
    found: dict[str, None] = {}
    for _, pod in _pods_of(value):
        if not _is_ours(pod, settings):
            continue
        meta = pod["metadata"]
        for name in (*_mapping(meta.get("labels")), *_mapping(meta.get("annotations"))):
            near = difflib.get_close_matches(name, KNOWN, cutoff=0.8) if name.startswith(PREFIX) else []
            if near and name not in KNOWN and len(name) <= 253:
                found[f"{name} is not known and has no effect; did you mean {near[0]!r}?"] = None
    return list(found)


def forged_in(before: Any, after: Any, settings: ClusterSettings) -> list[str]:
    """Return which annotations that Rota wrote with a pod's binding a change of the pod would replace."""
    if not isinstance(before, dict) or before.get("kind") != "Pod" or not _is_ours(before, settings):
        return []
    if not _mapping(before.get("spec")).get("nodeName"):
        return []
    was, now = (_mapping(_mapping(_mapping(value).get("metadata")).get("annotations")) for value in (before, after))
    return [
        f"{name} was written with the pod's binding and can't be changed"
        for name in WRITTEN
        if was.get(name) != now.get(name)
    ]


def pod_asks(value: Any, settings: ClusterSettings) -> bool:
    """Return whether a pod requests devices of a kind that the settings name."""
    spec = value.get("spec") if isinstance(value, dict) else None
    pod = read_pod(_as_pod({"spec": {**_mapping(spec), "schedulerName": settings.scheduler_name}}), settings)
    return pod is not None and pod.wants.device_milli > 0


def _of_resource(value: Json) -> list[str]:
    from rota.drivers.kubernetes.resources.reading import refusal_of

    refused = refusal_of(value)
    return [refused] if refused else []


def _of_config_map(value: Json, check: CheckSettings | None) -> list[str]:
    text = _mapping(value.get("data")).get(KEY)
    if not isinstance(text, str):
        return []
    try:
        settings = read_settings(text, KEY)
        if check is not None:
            check(settings)
    except NONSENSE as error:
        return [str(error)[:1000]]
    return []


def _of_pod(value: Json, settings: ClusterSettings) -> list[str]:
    """Return the reason to refuse a pod: that of its requests, or that of the job it would be."""
    if not _is_ours(value, settings):
        return []
    pod = read_pod(value, settings)
    if pod is None:
        return []
    if pod.wants.refused:
        return [pod.wants.refused]
    gang = Gang(key_of(pod))
    gang.members[pod.uid] = pod
    try:
        job_of(gang, [pod], settings, JobId("job"))
    except RotaError as error:
        return [str(error)]
    except NONSENSE as error:
        return [f"it can't be read: {type(error).__name__}: {str(error)[:200]}"]
    return []


def _is_ours(value: Json, settings: ClusterSettings) -> bool:
    return bool(_mapping(value.get("spec")).get("schedulerName") == settings.scheduler_name)


def _pods_of(value: Json) -> Iterator[tuple[str, Json]]:
    """Yield the pod itself, or the pods that an object's templates describe, with the paths of the templates."""
    if value.get("kind") == "Pod":
        yield "", _as_pod(value)
        return
    for number, (path, template) in enumerate(_templates(value.get("spec"), "spec", 0)):
        if number == MOST_TEMPLATES:
            return
        yield path, _as_pod(template)


def _templates(value: object, path: str, depth: int) -> Iterator[tuple[str, Json]]:
    """Yield every pod template below a value: of a Job, a Deployment, a JobSet, a PyTorchJob, a RayCluster, ..."""
    if depth > DEEPEST:
        return
    if isinstance(value, dict):
        if isinstance(value.get("spec"), dict) and isinstance(value["spec"].get("containers"), list):
            yield path, value
            return
        for name, inner in value.items():
            yield from _templates(inner, f"{path}.{name}", depth + 1)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _templates(inner, f"{path}[{number}]", depth + 1)


def _as_pod(template: Json) -> Json:
    """Return a template, or a pod at admission, with what the API server adds later."""
    meta = _mapping(template.get("metadata"))
    given = {"name": meta.get("name") or "pod", "namespace": meta.get("namespace") or "default"}
    return {
        "metadata": {**meta, **given, "uid": _NO_UID, "creationTimestamp": _NO_TIME},
        "spec": template.get("spec"),
        "status": {},
    }


def _mapping(value: object) -> Json:
    return value if isinstance(value, dict) else {}
