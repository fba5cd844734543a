"""Progress that pods report by an annotation: the fraction of the job's steps that are done."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from rota.core.model.job import JobId
from rota.drivers.kubernetes.gangs.gang import Gang, Stage
from rota.drivers.kubernetes.objects.pod_annotations import PROGRESS

_STEPS = re.compile(r"([0-9]{1,15})/([0-9]{1,15})")
_FRACTION = re.compile(r"0(\.[0-9]{1,15})?|1(\.0{1,15})?")


def read_progress(text: str) -> float | None:
    """Return the fraction that an annotation states, as `0.4` or `400/1000`; None for anything else."""
    if _FRACTION.fullmatch(text):
        return float(text)
    steps = _STEPS.fullmatch(text)
    if steps is None or not int(steps[2]):
        return None
    return min(int(steps[1]) / int(steps[2]), 1.0)


def fraction_done(gang: Gang) -> float | None:
    """Return the least fraction that a pod of a running gang states; None if none does."""
    if gang.stage is not Stage.PLACED or not gang.started:
        return None
    pods = (gang.members[uid] for uid in gang.assigned if uid in gang.members)
    found = (read_progress(pod.annotations.get(PROGRESS, "")) for pod in pods)
    return min((done for done in found if done is not None), default=None)


def fractions(gangs: Mapping[JobId, Gang], job_ids: Iterable[JobId]) -> dict[JobId, float]:
    """Return the fractions done of those of the jobs whose pods state it."""
    found = {}
    for job_id in job_ids:
        gang = gangs.get(job_id)
        done = None if gang is None else fraction_done(gang)
        if done is not None:
            found[job_id] = done
    return found
