"""KubeShare: parts of devices are resources with names, requests and limits (Yeh et al., HPDC 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.core.engine.draft import Draft
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import WHOLE, DeviceType, Job
from rota.core.model.placement import Placement
from rota.core.state.job_record import LiveJob
from rota.mechanisms.colocation.declare import label, number, sharing
from rota.mechanisms.colocation.fractional import FractionalPlacement, SharedDevice, apart, lay
from rota.mechanisms.colocation.groups import DeviceGroups, wants_part
from rota.mechanisms.colocation.remarks import lacks_fractions
from rota.mechanisms.colocation.rule import DefaultColocationRule
from rota.mechanisms.declare import SHARES, Knowledge, Traits


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeShareParams:
    """With `elastic`, a job may use what others leave of its device, up to its label `limit` (in devices).

    The published token goes round every 300 ms; here a job's turns come to a part of the device.
    """

    elastic: bool = True


class KubeShare(DefaultColocationRule):
    """First in first out; the device that fits tightest, as labels allow.

    Tasks of one `affinity` go on one device, and wait while it has no room; those of one `anti-affinity` go on
    different ones, those of one `exclusion` on devices where nobody else is.
    """

    turns = True

    def __init__(self, params: KubeShareParams, knowledge: Knowledge) -> None:
        self._params = params

    def shares(self, job: Job) -> bool:
        """Who can have more of a device than it asked for: a job of one task that wants a part of one."""
        return wants_part(job) and job.roles[0].count == 1

    def free(self, live: LiveJob, draft: Draft, guests: DeviceGroups) -> Placement | Reason:
        """For each task that wants a part the tightest device that labels allow, or else one that nobody has."""
        if not any(role.is_fraction for role in live.job.roles):
            return draft.offer(live)
        if not wants_part(live.job):
            return apart(live, draft, 1 if label(live.job, "anti-affinity") is not None else WHOLE)
        if _contradicts_itself(live.job):
            return Reason(code=ReasonCode.NEVER_FITS, need_milli=live.job.gpu_milli)
        return lay(live, draft, guests, lambda laying: self._lay(laying, live, guests), turns=self.shares(live.job))

    def _lay(self, laying: FractionalPlacement, live: LiveJob, guests: DeviceGroups) -> Reason | None:
        """One task of a job: on a device in use if labels allow it, on its like's if it has an affinity."""
        near = _affinity(live.job)
        found = [(key, place) for place in laying.places() if (key := _liking(live, place, near)) is not None]
        for _, place in sorted(found, key=lambda entry: (entry[0], entry[1].at)):
            if laying.put(place):
                return None
        if near is not None and (laying.slots or _has_like(guests, near)):
            return Reason(code=ReasonCode.LABELS, need_milli=live.job.gpu_milli)
        return laying.open()

    def joins(
        self, live: LiveJob, hosts: Sequence[LiveJob], kind: DeviceType, now_s: float
    ) -> tuple[float, ...] | None:
        """Nobody: all parts that can be had were looked at."""
        return None

    def parts(self, jobs: Sequence[LiveJob], now_s: float, room: int, guests: DeviceGroups) -> Sequence[int]:
        """What each asked for, and what is left over shared out evenly up to limits."""
        parts = [min(live.job.roles[0].device_milli, WHOLE) for live in jobs]
        limits = [self._limit(live.job) for live in jobs]
        left = room - sum(parts)
        while self._params.elastic and left > 0:
            open_ = [at for at in range(len(jobs)) if parts[at] < limits[at]]
            if not open_:
                break
            each = max(left // len(open_), 1)
            for at in open_[:left]:
                more = min(each, limits[at] - parts[at])
                parts[at] += more
                left -= more
        return parts

    def _limit(self, job: Job) -> int:
        asked = min(job.roles[0].device_milli, WHOLE)
        return min(max(round(number(job, "limit", 0.0) * WHOLE), asked), WHOLE)


def _affinity(job: Job) -> str | None:
    return label(job, "affinity") if wants_part(job) else None


def _contradicts_itself(job: Job) -> bool:
    """Whether tasks that are to be on one device do not fit on it, or are to be on different ones too."""
    is_apart = label(job, "anti-affinity") is not None and job.roles[0].count > 1
    return _affinity(job) is not None and (job.gpu_milli > WHOLE or is_apart)


def _has_like(guests: DeviceGroups, near: str) -> bool:
    return any(_affinity(holder.job) == near for holders in guests.parts.values() for holder in holders)


def _liking(live: LiveJob, place: SharedDevice, near: str | None) -> tuple[bool, int] | None:
    """The tightest of the devices without affinity first, then the emptiest of the others; None if labels forbid it."""
    holders = [holder.job for holder in place.holders]
    if any(label(holder, "exclusion") != label(live.job, "exclusion") for holder in holders):
        return None
    apart_from = label(live.job, "anti-affinity")
    if apart_from is not None and (place.own or any(label(each, "anti-affinity") == apart_from for each in holders)):
        return None
    affinities = {_affinity(holder) for holder in holders} - {None}
    if near is not None and near not in affinities and not place.own:
        return None
    return (True, -place.left_milli) if affinities else (False, place.left_milli)


kubeshare = sharing(
    "kubeshare",
    KubeShare,
    cites="Yeh et al., HPDC 2020",
    summary="Parts of devices with request, limit, memory and labels, each on the device that fits tightest.",
    params=KubeShareParams,
    differs=(
        "a job that the paper would turn away, since the device of its affinity has no room, waits. `limit` counts for "
        "jobs of a single task, and `affinity` for jobs of one role and fixed size whose tasks want parts of devices; "
        "the parts of any other job begin on devices that nobody else has."
    ),
    traits=Traits(
        scheduling_input="request, limit and labels",
        dimensions="time and space",
        preemption="by token",
        placement="tightest device, in turn",
        intrusiveness="CUDA calls are intercepted",
    ),
    emits=SHARES,
    remarks=lambda params, given: lacks_fractions(given),
)
