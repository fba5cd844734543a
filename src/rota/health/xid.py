"""What to do about an Xid, the number of a critical error of an NVIDIA GPU, after NVIDIA's catalogue."""

from __future__ import annotations

from enum import Enum

from rota.health.node_state import Severity


class XidAction(Enum):
    """The recommended action."""

    RESTART_JOB = "restart the job"
    RESET_GPU = "reset the GPU"
    REBOOT = "reboot the node"
    IGNORE = "ignore"
    FOLLOW_OTHERS = "act on the errors reported with it"
    READ_RECOVERY = "read the GPU's recovery action"
    ASK = "contact support"


_NUMBERS: dict[XidAction, tuple[int, ...]] = {
    XidAction.RESTART_JOB: (13, 31, 32, 94),
    XidAction.RESET_GPU: (46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158),
    XidAction.REBOOT: (79,),
    XidAction.IGNORE: (43, 63, 92, 121),
    XidAction.FOLLOW_OTHERS: (45, 48, 74, *range(144, 151)),
    XidAction.READ_RECOVERY: (154,),
}
_ACTION_BY_XID = {number: action for action, numbers in _NUMBERS.items() for number in numbers}
_SEVERE_ALONE = frozenset({48, 74, *range(144, 151)})
"""Numbers that point to others and yet are severe by themselves: uncorrectable ECC, NVLink."""


def action_for(xid: int) -> XidAction:
    """The recommended action; unknown numbers are a matter of support."""
    return _ACTION_BY_XID.get(xid, XidAction.ASK)


def severity_of(xid: int) -> Severity:
    """What an Xid says about its node: nothing, a suspicion, or that it must be drained."""
    match action_for(xid):
        case XidAction.RESTART_JOB | XidAction.IGNORE:
            return Severity.GOOD
        case XidAction.RESET_GPU | XidAction.REBOOT:
            return Severity.SEVERE
        case XidAction.FOLLOW_OTHERS:
            return Severity.SEVERE if xid in _SEVERE_ALONE else Severity.GOOD
        case XidAction.READ_RECOVERY | XidAction.ASK:
            return Severity.WARNING
