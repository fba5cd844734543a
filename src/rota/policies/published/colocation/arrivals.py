"""Device time that jobs will request, predicted from the hour before and the same hour of earlier days."""

from __future__ import annotations

from typing import Any

HOUR_S = 3600.0
DAYS = 7
"""Earlier days whose same hour counts."""


class HourlyDemand:
    """Sums what arriving jobs request by the hour, and predicts the present hour."""

    def __init__(self) -> None:
        self._hours: dict[int, float] = {}
        self._first: int | None = None
        self._last_seq = -1

    def arrived(self, seq: int, submitted_s: float, gpu_s: float) -> None:
        """Count a job once, by its sequence number."""
        if seq <= self._last_seq:
            return
        self._last_seq = seq
        hour = int(submitted_s // HOUR_S)
        self._first = hour if self._first is None else min(self._first, hour)
        self._hours[hour] = self._hours.get(hour, 0.0) + gpu_s
        if len(self._hours) > 2 * 24 * DAYS:
            self._hours = {each: sum_ for each, sum_ in self._hours.items() if each >= hour - 24 * DAYS}

    def predicted_gpu_s(self, now_s: float) -> float | None:
        """Return the device-seconds expected to be requested in the present hour; None before an hour has passed."""
        now = int(now_s // HOUR_S)
        if self._first is None or now <= self._first:
            return None
        like = [now - 1, *(now - 24 * day for day in range(1, DAYS + 1))]
        known = [self._hours.get(each, 0.0) for each in like if each >= self._first]
        return sum(known) / len(known)

    @property
    def memory(self) -> Any:
        """All hours, as JSON can hold them."""
        return {"hours": [[hour, gpu_s] for hour, gpu_s in self._hours.items()], "seq": self._last_seq}

    def recall(self, memory: Any) -> None:
        """Restore what `memory` returned."""
        self._hours = {int(hour): gpu_s for hour, gpu_s in memory["hours"]}
        self._first = min(self._hours, default=None)
        self._last_seq = memory["seq"]
