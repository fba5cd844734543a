"""KubeShare: fractions of devices as first-class resources with requests and limits (Yeh et al., HPDC 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.core.engine.draft import Draft
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import WHOLE, DeviceType, Job
from rota.core.model.placement import Placement
from rota.core.state.job_record import LiveJob
from rota.mechanisms.colocation.declare import colocation, label, number
from rota.mechanisms.colocation.fractional import FractionalPlacement, SharedDevice, on_unshared_devices, place_tasks
from rota.mechanisms.colocation.groups import DeviceGroups, wants_fraction
from rota.mechanisms.colocation.remarks import lacks_fractions
from rota.mechanisms.colocation.rule import DefaultColocationRule
from rota.mechanisms.declare import SHARES, Knowledge, Traits


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeShareParams:
    """With `elastic`, a job may use idle fractions of its device, up to its label `limit` (in devices).

    The published token rotates every 300 ms; here time slices are modelled as a fraction of the device.
    """

    elastic: bool = True


class KubeShare(DefaultColocationRule):
    """First in first out, each task on the device with the tightest fit that its labels allow.

    Tasks of the same `affinity` share one device, and wait while it has no room. Tasks of the same `anti-affinity` go
    on different devices. Tasks of the same `exclusion` share devices with no other tasks.
    """

    time_sliced = True

    def __init__(self, params: KubeShareParams, knowledge: Knowledge) -> None:
        self._params = params

    def is_shareable(self, job: Job) -> bool:
        """Jobs that may exceed their request: those of one task that requests a fraction."""
        return wants_fraction(job) and job.roles[0].count == 1

    def find_free(self, live: LiveJob, draft: Draft, groups: DeviceGroups) -> Placement | Reason:
        """Place each fractional task on the device with the tightest fit that labels allow, else on one without
        holders."""
        if not any(role.is_fraction for role in live.job.roles):
            return draft.offer(live)
        if not wants_fraction(live.job):
            return on_unshared_devices(live, draft, 1 if label(live.job, "anti-affinity") is not None else WHOLE)
        if _is_contradictory(live.job):
            return Reason(code=ReasonCode.NEVER_FITS, need_milli=live.job.gpu_milli)
        return place_tasks(
            live,
            draft,
            groups,
            lambda search: self._place_task(search, live, groups),
            time_sliced=self.is_shareable(live.job),
        )

    def _place_task(self, search: FractionalPlacement, live: LiveJob, groups: DeviceGroups) -> Reason | None:
        """Place one task: on a shared device if labels allow it, on the device of its affinity if there is one."""
        affinity = _affinity(live.job)
        found = [
            (key, device) for device in search.shared_devices() if (key := _rank(live, device, affinity)) is not None
        ]
        for _, device in sorted(found, key=lambda entry: (entry[0], entry[1].at)):
            if search.add(device):
                return None
        if affinity is not None and (search.slots or _has_affinity(groups, affinity)):
            return Reason(code=ReasonCode.LABELS, need_milli=live.job.gpu_milli)
        return search.add_unshared()

    def admit(
        self, live: LiveJob, hosts: Sequence[LiveJob], kind: DeviceType, now_s: float
    ) -> tuple[float, ...] | None:
        """Refuse: `find_free` has tried all devices with free fractions."""
        return None

    def fractions(self, jobs: Sequence[LiveJob], now_s: float, room: int, groups: DeviceGroups) -> Sequence[int]:
        """Give each job its request, and divide the remaining fraction evenly up to the limits."""
        fractions = [min(live.job.roles[0].device_milli, WHOLE) for live in jobs]
        limits = [self._limit(live.job) for live in jobs]
        left = room - sum(fractions)
        while self._params.elastic and left > 0:
            growing = [at for at in range(len(jobs)) if fractions[at] < limits[at]]
            if not growing:
                break
            each = max(left // len(growing), 1)
            for at in growing[:left]:
                more = min(each, limits[at] - fractions[at])
                fractions[at] += more
                left -= more
        return fractions

    def _limit(self, job: Job) -> int:
        asked = min(job.roles[0].device_milli, WHOLE)
        return min(max(round(number(job, "limit", 0.0) * WHOLE), asked), WHOLE)


def _affinity(job: Job) -> str | None:
    return label(job, "affinity") if wants_fraction(job) else None


def _is_contradictory(job: Job) -> bool:
    """Return whether the affinity of a job can never be met: its tasks exceed a device, or repel each other."""
    repels_itself = label(job, "anti-affinity") is not None and job.roles[0].count > 1
    return _affinity(job) is not None and (job.gpu_milli > WHOLE or repels_itself)


def _has_affinity(groups: DeviceGroups, affinity: str) -> bool:
    return any(_affinity(holder.job) == affinity for holders in groups.holders.values() for holder in holders)


def _rank(live: LiveJob, device: SharedDevice, affinity: str | None) -> tuple[bool, int] | None:
    """Rank a device for a task: tightest without affinity first, then emptiest; None if labels forbid it."""
    holders = [holder.job for holder in device.holders]
    if any(label(holder, "exclusion") != label(live.job, "exclusion") for holder in holders):
        return None
    repels = label(live.job, "anti-affinity")
    if repels is not None and (device.own or any(label(each, "anti-affinity") == repels for each in holders)):
        return None
    affinities = {_affinity(holder) for holder in holders} - {None}
    if affinity is not None and affinity not in affinities and not device.own:
        return None
    return (True, -device.left_milli) if affinities else (False, device.left_milli)


kubeshare = colocation(
    "kubeshare",
    KubeShare,
    cites="Yeh et al., HPDC 2020",
    summary="Fractions of devices with request, limit, memory and labels, each on the device with the tightest fit.",
    params=KubeShareParams,
    differs=(
        "a job that the paper would reject because the device of its affinity has no room waits. `limit` applies to "
        "jobs of a single task, and `affinity` to jobs of one role and fixed size whose tasks request fractions; "
        "the fractions of any other job go on devices without other holders."
    ),
    traits=Traits(
        scheduling_input="request, limit and labels",
        dimensions="time and space",
        preemption="by token",
        placement="tightest device, time-sliced",
        intrusiveness="CUDA calls are intercepted",
    ),
    emits=SHARES,
    remarks=lambda params, given: lacks_fractions(given),
)
