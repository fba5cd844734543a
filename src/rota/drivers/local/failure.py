"""Why a task failed, and whether trying again can help: told from exit code, signal and the end of its output."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from enum import Enum

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 300.0
TRANSIENT_TRIES = 3
"""Restarts after a transient failure of a job that does not say how many it wants."""


class FailureClass(Enum):
    """Whether another try can help."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What went wrong, in words, and of which class it is."""

    kind: FailureClass
    cause: str


_SIGNS: tuple[tuple[re.Pattern[str], FailureClass, str], ...] = tuple(
    (re.compile(pattern), kind, cause)
    for pattern, kind, cause in (
        (r"CUDA out of memory|OutOfMemoryError: CUDA", FailureClass.PERMANENT, "out of GPU memory"),
        (r"MemoryError|Cannot allocate memory|std::bad_alloc", FailureClass.PERMANENT, "out of memory"),
        (r"ModuleNotFoundError|ImportError", FailureClass.PERMANENT, "import error"),
        (r"SyntaxError|IndentationError", FailureClass.PERMANENT, "syntax error"),
        (r"FileNotFoundError|No such file or directory", FailureClass.PERMANENT, "missing data or file"),
        (
            r"NCCL (?:error|WARN)|ncclSystemError|ncclRemoteError|Connection (?:refused|reset|timed out)"
            r"|DistBackendError|Gloo.*(?:timeout|closed)|Address already in use|Broken pipe|TimeoutError",
            FailureClass.TRANSIENT,
            "communication error",
        ),
        (
            r"CUDA error: (?:uncorrectable|device-side|unspecified|an illegal)|\bXid\b|ECC error|GPU has fallen off",
            FailureClass.TRANSIENT,
            "device error",
        ),
    )
)
_COMMAND_MISSING = {126: "the command can't be executed", 127: "the command was not found"}


def classify(exit_code: int | None, number: int | None, end_of_output: str, *, memory_limit: bool = False) -> Failure:
    """The failure of a task that ended with an exit code or by a signal."""
    if memory_limit:
        return Failure(kind=FailureClass.PERMANENT, cause="it used more memory than it asked for")
    if exit_code in _COMMAND_MISSING:
        return Failure(kind=FailureClass.PERMANENT, cause=_COMMAND_MISSING[exit_code])
    for pattern, kind, cause in _SIGNS:
        if pattern.search(end_of_output):
            return Failure(kind=kind, cause=cause)
    if number in (signal.SIGKILL, signal.SIGBUS):
        return Failure(kind=FailureClass.TRANSIENT, cause=f"killed by {signal.Signals(number).name}")
    if number is not None:
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        return Failure(kind=FailureClass.UNKNOWN, cause=f"ended by {name}")
    return Failure(kind=FailureClass.UNKNOWN, cause=f"exit code {exit_code}")


def tries_again(failure: Failure, failures: int, max_restarts: int | None) -> bool:
    """Whether a job with so many failures, this one included, is started again.

    What can't get better is not tried again; what surely can is tried a few times unless the job says
    how often; the rest only as often as the job says.
    """
    match failure.kind:
        case FailureClass.PERMANENT:
            return False
        case FailureClass.TRANSIENT:
            return failures <= (TRANSIENT_TRIES if max_restarts is None else max_restarts)
        case FailureClass.UNKNOWN:
            return failures <= (max_restarts or 0)


def pause_s(failures: int) -> float:
    """How long to wait before the next try: twice as long each time."""
    return float(min(FIRST_PAUSE_S * 2.0 ** (failures - 1), LONGEST_PAUSE_S))
