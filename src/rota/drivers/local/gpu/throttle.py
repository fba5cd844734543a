"""How much an opportunistic job may run beside a guaranteed one, so that that one keeps a part of its speed alone.

The loop of AntMan (Xiao et al., OSDI 2020) with a model: the loss of the guaranteed job grows in proportion to the
part of the time in which the other runs. The factor is learned from what is seen, and the part is chosen so that the
loss stays below what is allowed, with a margin. No clock and no processes here: rates go in, a part of the time comes
out.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

FIRST = 0.1
"""The part of the time that an opportunistic job gets before anything is known."""
FLOOR = 0.02
"""It always gets this much, so that the loop sees when the interference has become less."""
STEP_UP = 0.1
CUT = 0.6
MARGIN = 0.8
"""The part of the allowed loss that is aimed at: steps and rates vary from second to second."""
BLEND = 0.4
LEAST_FACTOR = 1e-3
WINDOW_S = 2.5
FORGET = 0.02
"""By how much the speed alone is forgotten at each look: a training becomes slower by itself, too."""


@dataclass(slots=True)
class StepRate:
    """The speed of a job from the steps that it reports, over the last seconds."""

    points: deque[tuple[float, float]] = field(default_factory=deque)

    def add(self, at_s: float, amount: float) -> None:
        """Take in how many steps were done by a moment; a job that starts over begins again."""
        if self.points and amount < self.points[-1][1]:
            self.points.clear()
        if not self.points or at_s > self.points[-1][0]:
            self.points.append((at_s, amount))
        while len(self.points) > 2 and self.points[1][0] <= at_s - WINDOW_S:
            self.points.popleft()

    def clear(self) -> None:
        """Forget the past, after conditions changed."""
        while len(self.points) > 1:
            self.points.popleft()

    @property
    def rate(self) -> float | None:
        """Steps in a second; None until enough was seen."""
        if len(self.points) < 2:
            return None
        (from_s, first), (until_s, last) = self.points[0], self.points[-1]
        return (last - first) / (until_s - from_s)


@dataclass(slots=True)
class DutyControl:
    """Chooses the part of the time in which opportunistic jobs run beside one guaranteed job."""

    bound: float
    """The part of its speed alone that the guaranteed job keeps."""
    duty: float = FIRST
    factor: float | None = None
    """The loss of the guaranteed job for each part of the time in which the others run; None: not known."""
    alone: float | None = None
    """The speed of the guaranteed job alone."""

    def note_alone(self, rate: float) -> None:
        """Take in a speed that was measured while no other job ran."""
        self.alone = rate if self.alone is None else max(rate, self.alone + FORGET * (rate - self.alone))

    def update(self, rate: float) -> float:
        """Take in the speed beside the others at the present part of the time; return the next one."""
        if not self.alone or not math.isfinite(rate):
            return self.duty
        if rate > self.alone:
            self.alone = self.alone + BLEND * (rate - self.alone)
        loss = max(1 - rate / self.alone, 0.0)
        seen = loss / max(self.duty, FLOOR)
        self.factor = seen if self.factor is None else self.factor + BLEND * (seen - self.factor)
        target = (1 - self.bound) * MARGIN / max(self.factor, LEAST_FACTOR)
        if loss > 1 - self.bound:
            self.duty = min(self.duty * CUT, target)
        else:
            self.duty = min(self.duty + STEP_UP, target)
        self.duty = min(max(self.duty, FLOOR), 1.0)
        return self.duty
