"""The energy that a task's GPUs took while it ran, by the counters of the GPUs."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.drivers.local.task_runner.files import Json
    from rota.drivers.local.task_runner.nvml import Reading


class GpuEnergy:
    """Differences of the counters from sample to sample; one that goes back was reset, and begins again."""

    def __init__(self) -> None:
        self._last: list[int | None] = []
        self._millijoules = 0
        self._since_s = self._until_s = 0.0
        self._alone = True
        self.is_known = False
        """Whether at least one of the GPUs counts its energy."""

    def add(self, readings: Sequence[Reading], alone: bool, now_s: float) -> None:
        """Take in a sample of all GPUs of the task, always in the same order; none while they are not its own."""
        counts = [each.energy_mj for each in readings]
        if not counts:
            self._last = [None] * len(self._last)
            return
        if not self._last:
            self._since_s = now_s
            self.is_known = any(count is not None for count in counts)
        for before, count in zip(self._last, counts, strict=False):
            if before is not None and count is not None and count > before:
                self._millijoules += count - before
        self._last, self._until_s = counts, now_s
        self._alone = self._alone and alone

    def summary(self) -> Json:
        """Return the energy, the time that it belongs to, and whether the GPUs were the job's alone all the time."""
        return {
            "joules": self._millijoules / 1000,
            "since_s": self._since_s,
            "until_s": self._until_s,
            "alone": self._alone,
            "gpus": len(self._last),
        }
