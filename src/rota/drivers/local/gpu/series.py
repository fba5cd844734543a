"""Samples over time in bounded space: fine for the last minutes, coarser the longer ago they were taken."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rota.drivers.local.gpu.sensors import FIELDS, Values, mean_of

STEPS = ((0.0, 600.0), (10.0, 10_800.0))
"""Width of an interval and how far back it is kept, in seconds: every sample for 10 minutes, 10 s for three hours."""
LAST_STEP_S = 60.0
MOST_LAST = 1440
"""Intervals of the last step: when there are more, two become one of twice the width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesPoint:
    """The mean of some samples, from the first on; the largest of memory and temperature."""

    at_s: float
    samples: int
    values: Values


@dataclass(slots=True)
class _Interval:
    """Samples of an interval that is not over."""

    number: int
    parts: list[SeriesPoint] = field(default_factory=list)


class SampleSeries:
    """The samples of one GPU; each moment is in one step only."""

    def __init__(self) -> None:
        self._steps: list[deque[SeriesPoint]] = [deque() for _ in range(len(STEPS) + 1)]
        self._open: list[_Interval | None] = [None] * (len(STEPS) + 1)
        self._last_step_s = LAST_STEP_S

    def add(self, at_s: float, values: Values) -> None:
        """Take in a sample, later than all before."""
        self._steps[0].append(SeriesPoint(at_s=at_s, samples=1, values=values))
        for step, (_, keep_s) in enumerate(STEPS):
            points = self._steps[step]
            while points and points[0].at_s < at_s - keep_s:
                self._merge(step + 1, points.popleft())

    def points(self) -> list[SeriesPoint]:
        """Return all points, oldest first."""
        found: list[SeriesPoint] = []
        for step in range(len(self._steps) - 1, -1, -1):
            found.extend(self._steps[step])
            interval = self._open[step]
            if interval is not None and interval.parts:
                found.append(_merged(interval.parts))
        return found

    def mean_since(self, from_s: float, name: str) -> float | None:
        """Return the mean of a value since a moment; None if that is not known."""
        place = FIELDS.index(name)
        total, count = 0.0, 0
        for point in reversed(self.points()):
            if point.at_s < from_s:
                break
            value = point.values[place]
            if value is not None:
                total, count = total + point.samples * value, count + point.samples
        return total / count if count else None

    def encode(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "last_step_s": self._last_step_s,
            "steps": [
                [[point.at_s, point.samples, *map(_short, point.values)] for point in self._with_open(step)]
                for step in range(len(self._steps))
            ],
        }

    @classmethod
    def decode(cls, value: dict[str, Any]) -> SampleSeries:
        """Return the series that was encoded; a point of other fields than today's is left out."""
        made = cls()
        made._last_step_s = float(value["last_step_s"])
        for step, points in enumerate(value["steps"][: len(made._steps)]):
            for at_s, samples, *values in points:
                if len(values) == len(FIELDS):
                    made._steps[step].append(SeriesPoint(at_s=float(at_s), samples=int(samples), values=tuple(values)))
        return made

    def _with_open(self, step: int) -> list[SeriesPoint]:
        interval = self._open[step]
        return [*self._steps[step], *([_merged(interval.parts)] if interval is not None and interval.parts else [])]

    def _merge(self, step: int, point: SeriesPoint) -> None:
        """Take a point from the step before into the interval of this step that it falls into."""
        width_s = STEPS[step][0] if step < len(STEPS) else self._last_step_s
        number = int(point.at_s // width_s)
        interval = self._open[step]
        if interval is not None and interval.number != number:
            self._steps[step].append(_merged(interval.parts))
            interval = None
            if step == len(STEPS) and len(self._steps[step]) > MOST_LAST:
                self._coarsen()
        if interval is None:
            interval = self._open[step] = _Interval(number)
        interval.parts.append(point)

    def _coarsen(self) -> None:
        """Make two intervals of the last step one."""
        points = list(self._steps[-1])
        pairs = [points[index : index + 2] for index in range(0, len(points), 2)]
        self._steps[-1] = deque(_merged(pair) for pair in pairs)
        self._last_step_s *= 2


def _merged(parts: Sequence[SeriesPoint]) -> SeriesPoint:
    if len(parts) == 1:
        return parts[0]
    values = mean_of([(part.samples, part.values) for part in parts])
    return SeriesPoint(at_s=parts[0].at_s, samples=sum(part.samples for part in parts), values=values)


def _short(value: float | None) -> float | None:
    """A value with the digits that say something, so that files stay small."""
    return None if value is None else round(value, 1) if abs(value) < 1e6 else float(int(value))
