"""What went wrong with a task, as drivers report it, and how long to wait before the next attempt."""

from __future__ import annotations

from enum import StrEnum

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 300.0


class FailureCode(StrEnum):
    """What went wrong, as a code for programs; the table of causes in `rota.health` has more."""

    OUT_OF_MEMORY = "out-of-memory"
    GPU_OUT_OF_MEMORY = "gpu-out-of-memory"
    IMPORT = "import-error"
    SYNTAX = "syntax-error"
    MISSING_FILE = "missing-file"
    COMMUNICATION = "communication"
    DEVICE = "device"
    COMMAND = "command"
    SCRATCH = "out-of-scratch"
    CONTAINER = "container"
    IDLE = "idle"
    KILLED = "killed"
    SIGNAL = "signal"
    EXIT = "exit"


def pause_s(failures: int) -> float:
    """Return how long to wait before the next attempt: twice as long after each failure, up to a limit."""
    return float(min(FIRST_PAUSE_S * 2.0 ** (failures - 1), LONGEST_PAUSE_S))
