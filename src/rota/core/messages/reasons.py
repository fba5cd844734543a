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
    RETRY = "waits-to-retry"
    HELD = "held"
    ROUND = "next-round"
    NOT_CONSIDERED = "not-yet-considered"
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
    """One obstacle: what is needed, what there is (both in thousandths of devices), and on whom it waits."""

    code: ReasonCode
    need_milli: int = 0
    free_milli: int = 0
    job: JobId | None = None
    until_s: float | None = None
    owned_milli: int = 0
    tenant: TenantId | None = None
    device_type: DeviceType | None = None

    def sentence(self) -> str:
        """The reason in words, numbers included."""
        need, free = _devices(self.need_milli), _devices(self.free_milli)
        match self.code:
            case ReasonCode.DEVICES_BUSY:
                return f"needs {need}, {free} could be had now; starts when other jobs end"
            case ReasonCode.FRAGMENTED:
                relax = "" if self.until_s is None else f"; accepts any placement from {self.until_s:.0f} s"
                return f"needs {need} close together; {free} are free but too scattered{relax}"
            case ReasonCode.HOST_BUSY:
                return f"needs {need} with CPUs, memory, network or disk that no node has free now"
            case ReasonCode.NODES_DOWN:
                return f"needs {need}; enough exist only on nodes that are down, drained or held exclusively"
            case ReasonCode.NEVER_FITS:
                largest = f": a task wants more than a node's {_devices(self.owned_milli)}" if self.owned_milli else ""
                return f"needs {need}; the cluster can never offer that{largest}"
            case ReasonCode.MEMORY_TOO_SMALL:
                return f"needs {need} with more memory than any device has that it may use; ask for less gpu_memory"
            case ReasonCode.NO_SUCH_TYPE:
                return f"needs {need} of type {self.device_type}, of which there is none; name another type"
            case ReasonCode.NO_MATCHING_NODE:
                return (
                    f"needs {need} on nodes with labels that it asks for and taints that it tolerates; none is in use"
                )
            case ReasonCode.BEHIND:
                return f"waits its turn behind job {self.job}"
            case ReasonCode.WOULD_DELAY:
                return f"would delay job {self.job}, which has a reservation"
            case ReasonCode.VACATING:
                return f"its {need} are being vacated"
            case ReasonCode.DEPENDENCY:
                return f"waits for job {self.job} to succeed"
            case ReasonCode.RETRY:
                return "failed and waits before it is tried again"
            case ReasonCode.HELD:
                return "held; release it to let it run"
            case ReasonCode.ROUND:
                return "waits for the next round"
            case ReasonCode.BETTER_LATER:
                return "waits for a device on which the jobs together end sooner than on those that are free"
            case ReasonCode.BY_HEURISTIC:
                return "placed by the placement's rule: the learned policy had no place for all of its tasks"
            case ReasonCode.LABELS:
                return f"needs {need} on the device of its `affinity`, which has no room that its labels allow"
            case ReasonCode.NOT_CONSIDERED:
                return "not yet considered by the scheduler"
            case _:
                return self._tenancy_sentence(need, free)

    def _tenancy_sentence(self, need: str, free: str) -> str:
        """What tenancy says, and what would let the job start."""
        owned = _devices(self.owned_milli)
        match self.code:
            case ReasonCode.QUOTA_USED:
                return (
                    f"needs {need}; tenant {self.tenant} may use {owned}, of which {free} can be had at this priority; "
                    "starts when jobs of the tenant with the same or a higher priority end"
                )
            case ReasonCode.QUOTA_TOO_SMALL:
                return (
                    f"needs {need}; tenant {self.tenant} owns {owned} where it may run; "
                    "ask for a larger share, or submit it with priority -1"
                )
            case ReasonCode.USER_LIMIT:
                return (
                    f"needs {need}; one user of tenant {self.tenant} may hold {owned}, {free} more can be had; "
                    "starts when the user's other jobs end"
                )
            case ReasonCode.SHARE_USED:
                return (
                    f"needs {need}; of the share of tenant {self.tenant}, {owned}, {free} are left, and too few are "
                    "idle to borrow; starts when jobs of the tenant end, or when others leave enough idle"
                )
            case ReasonCode.SHARE_LENT:
                return (
                    f"needs {need} of the share of tenant {self.tenant}, which are lent out; starts when job "
                    f"{self.job} has had its guaranteed run time, or when others end"
                )
            case ReasonCode.CELLS_SCATTERED:
                return (
                    f"needs {need} close together; {free} of the {owned} of tenant {self.tenant} can be had, but in "
                    "no cells of that shape; starts when neighbouring ones end, or in smaller tasks"
                )
            case ReasonCode.CELLS_LENT:
                return f"its {need} are lent out; starts when job {self.job} has left them"
            case ReasonCode.BAD_HARDWARE:
                whose = "there are" if self.tenant is None else f"tenant {self.tenant} owns"
                return (
                    f"needs {need}; {whose} {owned}, of which {free} could be had if all nodes were up, but some are "
                    "down or drained; starts when they are back"
                )
            case _:
                return str(self.code.value)


def _devices(milli: int) -> str:
    amount = milli / WHOLE
    return f"{amount:g} device" + ("" if milli == WHOLE else "s")
