"""Why a task failed, and whether a retry can help: derived from exit code, signal and the end of its output."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from enum import Enum

from rota.core.messages.failures import FailureCode

TRANSIENT_TRIES = 3
"""Restarts after a transient failure of a job that does not say how many it wants."""


class FailureClass(Enum):
    """Whether another try can help."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What went wrong, for programs and in words, and of which class it is."""

    kind: FailureClass
    code: FailureCode
    cause: str


_SIGNS: tuple[tuple[re.Pattern[str], Failure], ...] = tuple(
    (re.compile(pattern), Failure(kind=kind, code=code, cause=cause))
    for pattern, kind, code, cause in (
        (
            r"the MPS (?:server|client)|MPS client failed to connect|CUDA_ERROR_MPS_|cudaErrorMps",
            FailureClass.TRANSIENT,
            FailureCode.DEVICE,
            "the MPS server of its GPU failed",
        ),
        (
            r"CUDA out of memory|OutOfMemoryError: CUDA",
            FailureClass.PERMANENT,
            FailureCode.GPU_OUT_OF_MEMORY,
            "out of GPU memory",
        ),
        (
            r"MemoryError|Cannot allocate memory|std::bad_alloc",
            FailureClass.PERMANENT,
            FailureCode.OUT_OF_MEMORY,
            "out of memory",
        ),
        (
            r"Disk quota exceeded",
            FailureClass.PERMANENT,
            FailureCode.SCRATCH,
            "out of scratch space: a disk quota was exceeded",
        ),
        (r"ModuleNotFoundError|ImportError", FailureClass.PERMANENT, FailureCode.IMPORT, "import error"),
        (r"SyntaxError|IndentationError", FailureClass.PERMANENT, FailureCode.SYNTAX, "syntax error"),
        (
            r"FileNotFoundError|No such file or directory",
            FailureClass.PERMANENT,
            FailureCode.MISSING_FILE,
            "missing data or file",
        ),
        (
            r"NCCL (?:error|WARN)|ncclSystemError|ncclRemoteError|Connection (?:refused|reset|timed out)"
            r"|DistBackendError|Gloo.*(?:timeout|closed)|Address already in use|Broken pipe|TimeoutError",
            FailureClass.TRANSIENT,
            FailureCode.COMMUNICATION,
            "communication error",
        ),
        (
            r"CUDA error: (?:uncorrectable|device-side|unspecified|an illegal)|\bXid\b|ECC error|GPU has fallen off",
            FailureClass.TRANSIENT,
            FailureCode.DEVICE,
            "device error",
        ),
    )
)
_NOT_RUN = re.compile(r"^rota: can't run (?:the task|.{1,300}? in .{1,300}?): (?P<why>[^\n]{1,200})$", re.MULTILINE)
"""What a supervisor writes when a task could not be started."""
_COMMAND_SIGNS = (
    (re.compile(r"error while loading shared libraries"), "a shared library of the command was not found"),
    (re.compile(r"not found|No such file or directory"), "the command was not found"),
    (re.compile(r"[Pp]ermission denied|cannot execute|Exec format error"), "the command can't be executed"),
)


def classify(
    exit_code: int | None,
    number: int | None,
    end_of_output: str,
    *,
    memory_limit: bool = False,
    asked_memory: bool = True,
    scratch_limit: bool = False,
    gpu_memory_limit: str = "",
    not_suspended: str = "",
) -> Failure:
    """The failure of a task that ended with an exit code or by a signal.

    `asked_memory` is whether its memory limit is what it asked for. `gpu_memory_limit` is by how much it exceeded what
    it asked for, in words, if its supervisor ended it for that.
    """
    if gpu_memory_limit:
        return _failure(FailureClass.PERMANENT, FailureCode.GPU_OUT_OF_MEMORY, gpu_memory_limit)
    if memory_limit:
        words = "it asked for" if asked_memory else "tasks get that ask for none; ask for what it needs with `memory`"
        return _failure(FailureClass.PERMANENT, FailureCode.OUT_OF_MEMORY, f"out of memory: it used more than {words}")
    if scratch_limit:
        return _failure(
            FailureClass.PERMANENT,
            FailureCode.SCRATCH,
            "out of scratch space: it wrote more to its folders than it may",
        )
    if not_suspended:
        return _failure(
            FailureClass.TRANSIENT, FailureCode.DEVICE, f"it could not be suspended or resumed: {not_suspended}"
        )
    if exit_code in (126, 127) and (cause := _command_fault(end_of_output)) is not None:
        return _failure(FailureClass.PERMANENT, FailureCode.COMMAND, cause)
    for pattern, failure in _SIGNS:
        if pattern.search(end_of_output):
            return failure
    if number in (signal.SIGKILL, signal.SIGBUS):
        return _failure(FailureClass.TRANSIENT, FailureCode.KILLED, f"killed by {signal.Signals(number).name}")
    if number is not None:
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        return _failure(FailureClass.UNKNOWN, FailureCode.SIGNAL, f"ended by {name}")
    return _failure(FailureClass.UNKNOWN, FailureCode.EXIT, f"exit code {exit_code}")


def _command_fault(end_of_output: str) -> str | None:
    """Why a command could not be run; None if the output does not say so: the code is then one of the command's own."""
    if (found := _NOT_RUN.search(end_of_output)) is not None:
        return f"it could not be started: {found['why']}"
    return next((cause for pattern, cause in _COMMAND_SIGNS if pattern.search(end_of_output)), None)


def _failure(kind: FailureClass, code: FailureCode, cause: str) -> Failure:
    return Failure(kind=kind, code=code, cause=cause)


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
