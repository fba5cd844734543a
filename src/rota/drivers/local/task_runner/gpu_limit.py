"""The GPU memory that a task asked for, kept by watching it: a warning first, then the end of the task."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.drivers.local.task_runner.files import Json

GIB = 2**30
MIB = 2**20


class GpuMemoryLimit:
    """Compares what a task holds of one GPU with what it asked for, and gives it some time to free the rest."""

    def __init__(self, limit_bytes: int, grace_s: float, slack_bytes: int = 0) -> None:
        self._limit_bytes = limit_bytes
        self._slack_bytes = slack_bytes
        self._grace_s = grace_s
        self._over_since_s: float | None = None
        self._most_bytes = 0
        self.excess = ""
        """Why the task is to be ended, once its time is over."""

    def check(self, used_bytes: int, now_s: float) -> str:
        """Take in a sample; return a warning for the task if this is the first one above the limit, else nothing."""
        if used_bytes <= self._limit_bytes + self._slack_bytes:
            self._over_since_s, self._most_bytes = None, 0
            return ""
        self._most_bytes = max(self._most_bytes, used_bytes)
        if self._over_since_s is None:
            self._over_since_s = now_s
            if self._grace_s > 0:
                return (
                    f"uses {amount(used_bytes)} of GPU memory; it asked for {amount(self._limit_bytes)} (gpu_memory) "
                    f"and is ended in {self._grace_s:g} s unless it frees the rest"
                )
        if now_s - self._over_since_s >= self._grace_s:
            self.excess = f"used {amount(self._most_bytes)} of GPU memory; it asked for {amount(self._limit_bytes)}"
        return ""


def amount(count: int) -> str:
    """Return bytes in the unit in which people write them, with one digit where it says something."""
    unit, name = (GIB, "GiB") if count >= GIB else (MIB, "MiB")
    return f"{count / unit:.1f}".removesuffix(".0") + f" {name}"


def gpu_limit_of(task: Json) -> GpuMemoryLimit | None:
    """Return the limit in a task's order; None if it has none."""
    order = task.get("gpu_memory")
    if not order:
        return None
    return GpuMemoryLimit(int(order["bytes"]), float(order["grace_s"]), int(order.get("slack_bytes", 0)))
