"""Why a job waits: a code and its numbers, produced by the code that passed the job over."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rota.core.model.job import WHOLE, DeviceType, JobId, TenantId


class ReasonCode(Enum):
    """The kinds of obstacle. The value is the wire form."""

    DEVICES_BUSY = "devices-busy"
    FRAGMENTED = "fragmented"
    HOST_BUSY = "host-resources-busy"
    NODES_DOWN = "nodes-down"
    NEVER_FITS = "never-fits"
    MEMORY_TOO_SMALL = "device-memory-too-small"
    NO_SUCH_TYPE = "no-such-type"
    BEHIND = "behind-another-job"
    WOULD_DELAY = "would-delay-reservation"
    VACATING = "devices-being-vacated"
    DEPENDENCY = "waits-for-dependency"
    ARRAY_LIMIT = "array-limit"
    RETRY = "waits-to-retry"
    HELD = "held"
    ROUND = "next-round"
    TURN = "waits-for-its-turn"
    NOT_CONSIDERED = "not-yet-considered"
    POLICY_FAILED = "policy-failed"
    QUOTA_USED = "quota-used"
    QUOTA_TOO_SMALL = "quota-too-small"
    USER_LIMIT = "user-limit"
    SHARE_USED = "share-used"
    SHARE_LENT = "share-lent"
    CELLS_SCATTERED = "cells-scattered"
    CELLS_LENT = "cells-lent"
    BAD_HARDWARE = "bad-hardware"
    BETTER_LATER = "better-later"
    NO_MATCHING_NODE = "no-matching-node"
    LABELS = "labels-keep-off"
    BY_HEURISTIC = "placed-by-heuristic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One obstacle: what is needed and available, both in thousandths of devices, and the job that is waited for."""

    code: ReasonCode
    need_milli: int = 0
    free_milli: int = 0
    job: JobId | None = None
    until_s: float | None = None
    owned_milli: int = 0
    tenant: TenantId | None = None
    device_type: DeviceType | None = None
    slice_s: float = 0.0
    """How long the present time slice takes."""
    switch_s: float = 0.0
    """How long the switch to it took."""

    limit: int = 0
    """How many jobs of its array may run at once."""

    note: str = ""
    """What else keeps devices from the job, in words."""

    def sentence(self) -> str:
        """The reason in words, numbers included."""
        return f"{self._obstacle()}; {self.note}" if self.note else self._obstacle()

    def _obstacle(self) -> str:
        need, free = _devices(self.need_milli), _devices(self.free_milli)
        match self.code:
            case ReasonCode.DEVICES_BUSY:
                return f"needs {need}, {free} available now; starts when other jobs end"
            case ReasonCode.FRAGMENTED:
                relax = "" if self.until_s is None else f"; accepts any placement from {self.until_s:.0f} s"
                return f"needs {need} close together; {free} are free but too scattered{relax}"
            case ReasonCode.HOST_BUSY:
                return f"needs {need} with CPUs, memory, network or disk that no node has free now"
            case ReasonCode.NODES_DOWN:
                return f"needs {need}; enough exist only on nodes that are down, drained or held exclusively"
            case ReasonCode.NEVER_FITS:
                largest = f": a task needs more than a node's {_devices(self.owned_milli)}" if self.owned_milli else ""
                return f"needs {need}; the cluster can never offer that{largest}"
            case ReasonCode.MEMORY_TOO_SMALL:
                return f"needs {need} with more memory than any device that it may use; ask for less gpu_memory"
            case ReasonCode.NO_SUCH_TYPE:
                return f"needs {need} of type {self.device_type}, which no node has; name another type"
            case ReasonCode.NO_MATCHING_NODE:
                return f"needs {need}; no schedulable node matches its labels and tolerations"
            case ReasonCode.BEHIND:
                return f"waits behind job {self.job}"
            case ReasonCode.WOULD_DELAY:
                return f"would delay job {self.job}, which has a reservation"
            case ReasonCode.VACATING:
                return f"its {need} are being vacated"
            case ReasonCode.DEPENDENCY:
                return f"waits for job {self.job} to succeed"
            case ReasonCode.ARRAY_LIMIT:
                jobs = "job" if self.limit == 1 else "jobs"
                return f"at most {self.limit} {jobs} of its array may run at once; starts when others of them end"
            case ReasonCode.RETRY:
                return "failed and pauses before the next attempt"
            case ReasonCode.HELD:
                return "held; release it to let it run"
            case ReasonCode.ROUND:
                return "waits for the next round"
            case ReasonCode.TURN:
                why = f", as a switch takes {self.switch_s:.0f} s" if self.switch_s >= 1 else ""
                return f"suspended while job {self.job} has its turn on the same devices, for {self.slice_s:.0f} s{why}"
            case ReasonCode.BETTER_LATER:
                return "waits for a busy device: all jobs together end sooner than on the free ones"
            case ReasonCode.BY_HEURISTIC:
                return "placed by the placement's rule: the learned policy had no placement for all of its tasks"
            case ReasonCode.LABELS:
                return f"needs {need} on the device of its `affinity`, where no room is left that its labels allow"
            case ReasonCode.POLICY_FAILED:
                return "the manager's policy failed and decides nothing; an admin finds the fault in the manager's log"
            case ReasonCode.NOT_CONSIDERED:
                return "not yet considered by the scheduler"
            case _:
                return self._tenancy_sentence(need, free)

    def _tenancy_sentence(self, need: str, free: str) -> str:
        """The obstacle within tenancy, and what would let the job start."""
        owned = _devices(self.owned_milli)
        match self.code:
            case ReasonCode.QUOTA_USED:
                return (
                    f"needs {need}; tenant {self.tenant} may use {owned}, of which {free} are available at this "
                    "priority; starts when jobs of the tenant with the same or a higher priority end"
                )
            case ReasonCode.QUOTA_TOO_SMALL:
                return (
                    f"needs {need}; tenant {self.tenant} owns {owned} where it may run; "
                    "ask for a larger share, or submit it with priority -1"
                )
            case ReasonCode.USER_LIMIT:
                return (
                    f"needs {need}; one user of tenant {self.tenant} may hold {owned}, {free} more now; "
                    "starts when the user's other jobs end"
                )
            case ReasonCode.SHARE_USED:
                return (
                    f"needs {need}; of the share of tenant {self.tenant}, {owned}, {free} are left, and too few are "
                    "idle to borrow; starts when jobs of the tenant end, or when others leave enough idle"
                )
            case ReasonCode.SHARE_LENT:
                return (
                    f"needs {need} of the share of tenant {self.tenant}, which are lent; starts when job "
                    f"{self.job} has used its minimum run time, or when others end"
                )
            case ReasonCode.CELLS_SCATTERED:
                return (
                    f"needs {need} close together; {free} of the {owned} of tenant {self.tenant} are "
                    "available, but in no cells of a fitting shape; starts when neighbouring cells are free, or in "
                    "smaller tasks"
                )
            case ReasonCode.CELLS_LENT:
                return f"its {need} are lent; starts when job {self.job} has left them"
            case ReasonCode.BAD_HARDWARE:
                whose = "there are" if self.tenant is None else f"tenant {self.tenant} owns"
                return (
                    f"needs {need}; {whose} {owned}, of which {free} would be available if all nodes were up, but "
                    "some are down or drained; starts when they are back"
                )
            case _:
                return str(self.code.value)


def _devices(milli: int) -> str:
    amount = milli / WHOLE
    return f"{amount:g} device" + ("" if milli == WHOLE else "s")
