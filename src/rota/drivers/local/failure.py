"""Why a task failed, and whether a retry can help: from exit code, signal, the end of its output and limits.

What outputs say is in the table of `rota.health.causes`; here are the ends that the driver itself knows about.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from rota.core.messages.failures import FailureCode
from rota.health.causes import Blame, CauseOfFailure, Diagnosis, Remedy, diagnose

PROGRAM_ERROR = "semantic-error"
"""The row of the table of causes for exceptions such as `KeyError`."""
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
    code: str
    cause: str
    evidence: str = ""
    """The line of its output, or another sign, that told the cause."""
    blame: Blame = Blame.JOB
    remedy: Remedy = Remedy.NEVER
    tier: int = 1
    """How telling the sign is: 1 most, 4 least."""


_NOT_RUN = re.compile(r"^rota: can't run (?:the task|.{1,300}? in .{1,300}?): (?P<why>[^\n]{1,200})$", re.MULTILINE)
"""What a supervisor writes when a task could not be started."""
_NOT_CONTAINED = re.compile(r"^(?:Error|docker|FATAL): +([^\n]{1,300})$", re.MULTILINE)
"""What runtimes write when they can't start a container."""
_NO_COMMAND = "attempted to invoke a command that was not found"
"""What Podman writes where the container lacks the job's command."""
_NOT_EXECUTED = re.compile(r"^ERROR \(catatonit:\d+\): failed to exec pid1: (?P<why>[^\n]{1,200})\s*\Z", re.MULTILINE)
"""What the first process of a container writes when it can't start the command."""
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
    idle: str = "",
    not_suspended: str = "",
    crowded: bool = False,
    not_contained: bool = False,
    causes: Sequence[CauseOfFailure] | None = None,
) -> Failure:
    """The failure of a task that ended with an exit code or by a signal.

    `asked_memory` is whether its memory limit is what it asked for. `gpu_memory_limit` is by how much it exceeded what
    it asked for, in words, if its supervisor ended it for that; `idle` why, if it did so because nothing
    happened at its terminal. `crowded` is whether suspended jobs held memory of its
    GPUs. `not_contained` is whether its container could not be started.
    """
    if idle:
        return _failure(FailureClass.PERMANENT, FailureCode.IDLE, f"idle: {idle}")
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
    if not_contained and _NO_COMMAND not in end_of_output and (said := _NOT_CONTAINED.findall(end_of_output)):
        return _failure(
            FailureClass.PERMANENT, FailureCode.CONTAINER, f"its container could not be started: {said[-1]}"
        )
    if exit_code == 1 and (refused := _NOT_EXECUTED.search(end_of_output)) is not None:
        return _failure(FailureClass.PERMANENT, FailureCode.COMMAND, _command_fault(refused["why"]) or refused["why"])
    if exit_code in (126, 127) and (cause := _command_fault(end_of_output)) is not None:
        return _failure(FailureClass.PERMANENT, FailureCode.COMMAND, cause)
    found = diagnose(end_of_output, exit_code=exit_code, signal=number, causes=causes)
    if found is not None and crowded and found.cause.name == FailureCode.GPU_OUT_OF_MEMORY:
        says = "out of GPU memory beside suspended jobs, which make room before it is tried again"
        failure = _failure(FailureClass.TRANSIENT, FailureCode.GPU_OUT_OF_MEMORY, says)
        return replace(failure, evidence=found.evidence, blame=Blame.UNKNOWN)
    if found is not None:
        return _of(found, number)
    if number is not None:
        return _unknown(FailureCode.SIGNAL, f"ended by {_signal_name(number)}")
    return _unknown(FailureCode.EXIT, f"exit code {exit_code}")


def _of(found: Diagnosis, number: int | None) -> Failure:
    """The failure that a row of the table of causes means."""
    cause = found.cause
    is_final = cause.remedy in (Remedy.NEVER, Remedy.MORE_MEMORY)
    kind = FailureClass.PERMANENT if is_final else FailureClass.TRANSIENT
    if cause.tier == _SAYS_LITTLE and cause.blame is Blame.JOB:
        kind = FailureClass.UNKNOWN
    says = cause.says
    if number is not None and cause.tier == _SAYS_LITTLE:
        says = (
            f"killed by {_signal_name(number)}"
            if cause.name == FailureCode.KILLED
            else f"{says}: {_signal_name(number)}"
        )
    return Failure(
        kind=kind,
        code=cause.name,
        cause=says,
        evidence=found.evidence,
        blame=cause.blame,
        remedy=cause.remedy,
        tier=cause.tier,
    )


def _signal_name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def _unknown(code: FailureCode, cause: str) -> Failure:
    return Failure(
        kind=FailureClass.UNKNOWN,
        code=code,
        cause=cause,
        evidence=cause,
        blame=Blame.UNKNOWN,
        remedy=Remedy.RETRY,
        tier=5,
    )


def _command_fault(end_of_output: str) -> str | None:
    """Why a command could not be run; None if the output does not say so: the code is then one of the command's own."""
    if (found := _NOT_RUN.search(end_of_output)) is not None:
        return f"it could not be started: {found['why']}"
    return next((cause for pattern, cause in _COMMAND_SIGNS if pattern.search(end_of_output)), None)


_SAYS_LITTLE = 4
"""The tier of signs that name no cause."""


def _failure(kind: FailureClass, code: FailureCode, cause: str) -> Failure:
    memory = code in (FailureCode.OUT_OF_MEMORY, FailureCode.GPU_OUT_OF_MEMORY)
    if kind is FailureClass.TRANSIENT:
        return Failure(kind=kind, code=code, cause=cause, evidence=cause, blame=Blame.NODE, remedy=Remedy.RETRY)
    remedy = Remedy.MORE_MEMORY if memory else Remedy.NEVER
    return Failure(kind=kind, code=code, cause=cause, evidence=cause, remedy=remedy)


def tries_again(failure: Failure, failures: int, max_restarts: int | None) -> bool:
    """Whether a job with so many failures, this one included, is started again.

    What can't get better is not tried again; what surely can is tried a few times unless the job says
    how often; the rest only as often as the job says. An error of the program itself is among the rest: it may depend
    on the data, or on chance.
    """
    match failure.kind:
        case FailureClass.PERMANENT:
            return failure.code == PROGRAM_ERROR and failures <= (max_restarts or 0)
        case FailureClass.TRANSIENT:
            return failures <= (TRANSIENT_TRIES if max_restarts is None else max_restarts)
        case FailureClass.UNKNOWN:
            return failures <= (max_restarts or 0)
