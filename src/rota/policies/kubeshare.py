"""KubeShare: parts of devices are resources with names, requests and limits (Yeh et al., HPDC 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rota.core.live import LiveJob
from rota.core.model import WHOLE, DeviceType, Job
from rota.core.placement import Placement
from rota.core.policy import Draft
from rota.core.reasons import Reason
from rota.mechanisms.declare import Knowledge, Traits
from rota.mechanisms.declare_sharing import label, number, sharing
from rota.mechanisms.guests import may_share
from rota.mechanisms.sharing_rule import PlainRule


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeShareParams:
    """With `elastic`, a job may use what others leave of its device, up to its label `limit` (in devices).

    The published token goes round every 300 ms; here a job's turns come to a part of the device.
    """

    elastic: bool = True


class KubeShare(PlainRule):
    """First in first out; the device that fits tightest, as labels allow.

    Jobs of one `affinity` go on one device while it has room, those of one `anti-affinity` on different ones, those of
    one `exclusion` on devices where nobody else is.
    """

    turns = True
    prefers_company = True

    def __init__(self, params: KubeShareParams, knowledge: Knowledge) -> None:
        self._params = params

    def shares(self, job: Job) -> bool:
        """A part of one device."""
        return may_share(job) and job.roles[0].is_fraction and job.roles[0].count == 1

    def free(self, live: LiveJob, draft: Draft) -> Placement | Reason:
        """A device on which nobody is, for a part of one; else what the allocator offers."""
        role = live.job.roles[0]
        if not self.shares(live.job):
            return draft.offer(live)
        whole = replace(live.job, roles=(replace(role, device_milli=WHOLE),))
        probe = LiveJob(whole, live.seq, live.submitted_s, live.nominal_rate)
        probe.since_s = live.since_s
        return draft.offer(probe)

    def joins(
        self, live: LiveJob, hosts: Sequence[LiveJob], kind: DeviceType, now_s: float
    ) -> tuple[float, ...] | None:
        """By what would be left of the device, where labels allow it; a job with affinity goes to its like first."""
        jobs = [*hosts, live]
        left = WHOLE - sum(each.job.roles[0].device_milli for each in jobs)
        if left < 0 or len({label(each.job, "exclusion") for each in jobs}) > 1:
            return None
        apart, near = label(live.job, "anti-affinity"), label(live.job, "affinity")
        if apart is not None and any(label(host.job, "anti-affinity") == apart for host in hosts):
            return None
        is_near = near is not None and any(label(host.job, "affinity") == near for host in hosts)
        if near is not None and not is_near:
            return None
        return (not is_near, left)

    def parts(self, jobs: Sequence[LiveJob], now_s: float) -> Sequence[int]:
        """What each asked for, and what is left over shared out evenly up to limits."""
        parts = [min(live.job.roles[0].device_milli, WHOLE) for live in jobs]
        limits = [self._limit(live.job) for live in jobs]
        left = WHOLE - sum(parts)
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


kubeshare = sharing(
    "kubeshare",
    KubeShare,
    cites="Yeh et al., HPDC 2020",
    summary="Parts of devices with request, limit, memory and labels, each on the device that fits tightest.",
    params=KubeShareParams,
    differs="Labels count for jobs of a single task; one with an affinity goes elsewhere where its like have no room.",
    traits=Traits(
        scheduling_input="request, limit and labels",
        dimensions="time and space",
        preemption="by token",
        placement="tightest device, in turn",
        intrusiveness="CUDA calls are intercepted",
    ),
)
