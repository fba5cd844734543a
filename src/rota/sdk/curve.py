"""A job's metrics over its whole run in a few hundred points: when there are too many, every other one is dropped."""

from __future__ import annotations

import json
from pathlib import Path

MAX_POINTS = 300
EVERY_S = 1.0

Point = tuple[float, int, dict[str, float]]


class MetricCurve:
    """Points of (time, step, values) at growing intervals, kept in a file over restarts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.points: list[Point] = []
        self._every_s = EVERY_S
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            self.points = [(float(at_s), int(step), dict(values)) for at_s, step, values in kept["points"]][:MAX_POINTS]
            self._every_s = max(float(kept["every_s"]), EVERY_S)
        except (OSError, ValueError, KeyError, TypeError):
            pass

    def add(self, at_s: float, step: int, values: dict[str, float]) -> str | None:
        """Add a point if one is due; return the new content of the file, or None."""
        if self.points and at_s - self.points[-1][0] < self._every_s:
            return None
        self.points.append((at_s, step, dict(values)))
        if len(self.points) > MAX_POINTS:
            self.points = self.points[::2]
            self._every_s *= 2
        return json.dumps({"every_s": self._every_s, "points": self.points}, separators=(",", ":"))
