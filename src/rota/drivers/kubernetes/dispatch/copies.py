"""Jobs of the hub, and their copies in clusters: what is written onto both, and what is read back."""

from __future__ import annotations

from typing import Any

from rota.drivers.kubernetes.api.quantity import plain_number, whole
from rota.drivers.kubernetes.dispatch.choice import JobNeeds
from rota.drivers.kubernetes.objects.owner_jobs import held_tasks
from rota.drivers.kubernetes.objects.pod_annotations import HELD, PREFIX
from rota.drivers.kubernetes.objects.pods import devices_asked
from rota.drivers.kubernetes.settings import ClusterSettings

Json = dict[str, Any]
JOBS = "/apis/batch/v1"
WANTED = PREFIX + "dispatch"
"""The label of a Job of the hub that is to be sent to a cluster."""
COPY = PREFIX + "dispatched"
"""The label of a copy."""
ORIGIN = PREFIX + "dispatched-from"
"""On a copy: the uid of the Job of the hub."""
CLUSTER = PREFIX + "cluster"
"""On the Job of the hub: where it is."""
TURN = PREFIX + "dispatch-turn"
"""On both: which sending it is. A copy of an earlier turn is deleted."""
STATE, WHY = PREFIX + "dispatch-state", PREFIX + "dispatch-why"
DATA, DATA_SIZE = PREFIX + "data", PREFIX + "data-size"
"""On the Job of the hub: the site of its data, and how large they are."""
LONGEST = 54
"""Characters of a name that a copy keeps; a Job's name has at most 63."""
ENDED = frozenset({"succeeded", "failed"})
_OF_SERVER = frozenset(
    {"controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"}
)


def notes_of_job(value: Json) -> dict[str, str]:
    """Return the annotations of a Job."""
    return value["metadata"].get("annotations") or {}


def is_held_back(value: Json) -> bool:
    """Whether a Job of the hub makes no pods there: it is suspended or held."""
    return bool(value["spec"].get("suspend")) or held_tasks(value) is not None


def tasks_of_job(value: Json) -> int:
    """Return how many pods a Job would make."""
    return held_tasks(value) or int(value["spec"].get("parallelism") or 1)


def needs_of(value: Json, settings: ClusterSettings) -> JobNeeds:
    """Return what a Job needs."""
    notes = notes_of_job(value)
    return JobNeeds(
        tasks=tasks_of_job(value),
        devices=devices_asked(value["spec"]["template"]["spec"], settings),
        site=notes.get(DATA),
        data_bytes=whole(notes.get(DATA_SIZE, "0")),
    )


def as_file(value: Json, settings: ClusterSettings) -> Json:
    """Return a Job as a job file, for a forecast."""
    needs = needs_of(value, settings)
    template = value["spec"]["template"]
    notes = {**(template["metadata"].get("labels") or {}), **(template["metadata"].get("annotations") or {})}
    found: Json = {
        "name": value["metadata"]["name"],
        "image": str(template["spec"]["containers"][0].get("image", "none")),
        "run": "true",
        "workers": needs.tasks,
        "resources": {"gpus": needs.devices},
        "tenant": value["metadata"]["namespace"],
    }
    for name, field in (("time-limit", "time_limit"), ("estimate", "estimate")):
        if PREFIX + name in notes:
            found[field] = notes[PREFIX + name]
    return found


def copy_of(value: Json, turn: int) -> Json:
    """Return the Job to create in a cluster."""
    meta, spec = value["metadata"], dict(value["spec"])
    for name in ("selector", "suspend", "manualSelector"):
        spec.pop(name, None)
    spec["parallelism"] = tasks_of_job(value)
    template = spec["template"]
    inner = dict(template.get("metadata") or {})
    inner["labels"] = {name: text for name, text in (inner.get("labels") or {}).items() if name not in _OF_SERVER}
    inner.pop("creationTimestamp", None)
    spec["template"] = {**template, "metadata": inner}
    own = (WANTED, CLUSTER, TURN, STATE, WHY, HELD, "kubectl.kubernetes.io/last-applied-configuration")
    notes = {name: text for name, text in notes_of_job(value).items() if name not in own}
    labels = {
        name: text for name, text in (meta.get("labels") or {}).items() if name != WANTED and name not in _OF_SERVER
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"{meta['name'][:LONGEST]}-{meta['uid'][:8]}",  # the hub may be one of the clusters
            "namespace": meta["namespace"],
            "labels": {**labels, COPY: "true"},
            "annotations": {**notes, ORIGIN: meta["uid"], TURN: str(turn)},
        },
        "spec": spec,
    }


def origin_of(copy: Json) -> str:
    """Return the uid of the Job of the hub that a copy is of."""
    return notes_of_job(copy).get(ORIGIN, "")


def turn_of(value: Json) -> int:
    """Return which sending a Job or a copy is of; 0 before the first."""
    return plain_number(notes_of_job(value).get(TURN)) or 0


def state_of_copy(value: Json) -> str:
    """Return what a copy does: waiting, running, succeeded or failed."""
    status = value.get("status") or {}
    for each in status.get("conditions") or ():
        if each["status"] == "True" and each["type"] in ("Complete", "Failed"):
            return "succeeded" if each["type"] == "Complete" else "failed"
    return "running" if status.get("active") else "waiting"
