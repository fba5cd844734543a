"""Why a job waits: a code and its numbers, produced by the code that passed the job over."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rota.core.model import WHOLE, JobId


class ReasonCode(Enum):
    """The kinds of obstacle. The value is the wire form."""

    DEVICES_BUSY = "devices-busy"
    FRAGMENTED = "fragmented"
    HOST_BUSY = "host-resources-busy"
    NODES_DOWN = "nodes-down"
    NEVER_FITS = "never-fits"
    BEHIND = "behind-another-job"
    WOULD_DELAY = "would-delay-reservation"
    VACATING = "devices-being-vacated"
    DEPENDENCY = "waits-for-dependency"
    RETRY = "waits-to-retry"
    HELD = "held"
    ROUND = "next-round"
    NOT_CONSIDERED = "not-yet-considered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One obstacle: what is needed, what there is (both in thousandths of devices), and on whom it waits."""

    code: ReasonCode
    need_milli: int = 0
    free_milli: int = 0
    job: JobId | None = None
    until_s: float | None = None

    def sentence(self) -> str:
        """The reason in words, numbers included."""
        need, free = _devices(self.need_milli), _devices(self.free_milli)
        match self.code:
            case ReasonCode.DEVICES_BUSY:
                return f"needs {need}, {free} could be had now"
            case ReasonCode.FRAGMENTED:
                relax = "" if self.until_s is None else f"; accepts any placement from {self.until_s:.0f} s"
                return f"needs {need} close together; {free} are free but too scattered{relax}"
            case ReasonCode.HOST_BUSY:
                return f"needs {need} with CPUs, memory or network that no node has free now"
            case ReasonCode.NODES_DOWN:
                return f"needs {need}; enough exist only on nodes that are down, drained or held exclusively"
            case ReasonCode.NEVER_FITS:
                return f"needs {need}; the cluster can never offer that"
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
            case ReasonCode.NOT_CONSIDERED:
                return "not yet considered by the scheduler"


def _devices(milli: int) -> str:
    amount = milli / WHOLE
    return f"{amount:g} device" + ("" if milli == WHOLE else "s")
