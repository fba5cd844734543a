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

FIRST = 0.2
"""The part of the time that an opportunistic job gets before anything is known."""
FLOOR = 0.02
"""It always gets this much, so that the loop sees when the interference has become less."""
STEP_UP = 0.2
CUT = 0.6
MARGIN = 0.7
"""The part of the allowed loss that is aimed at: steps and rates vary from second to second."""
KEPT = 0.8
"""How much what was seen before weighs at each look."""
BLEND = 0.4
LEAST_FACTOR = 1e-3
WINDOW_S = 12.0


@dataclass(slots=True)
class StepRate:
    """The speed of a job from the steps that it reports, over the last seconds."""

    points: deque[tuple[float, float]] = field(default_factory=deque)
    from_s: float = -math.inf

    def add(self, at_s: float, amount: float) -> None:
        """Take in how many steps were done by a moment; a job that starts over begins again."""
        if self.points and amount < self.points[-1][1]:
            self.points.clear()
        if at_s > (self.points[-1][0] if self.points else self.from_s):
            self.points.append((at_s, amount))
        while len(self.points) > 2 and self.points[1][0] <= at_s - WINDOW_S:
            self.points.popleft()

    def clear(self, now_s: float) -> None:
        """Forget what was before this moment, after conditions changed."""
        self.points.clear()
        self.from_s = now_s

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
    alone: float | None = None
    """The speed of the guaranteed job alone."""
    loss_seen: float = 0.0
    duty_seen: float = 0.0
    """Sums over what was seen: losses times parts of the time, and squares of the parts."""

    @property
    def factor(self) -> float:
        """The loss of the guaranteed job for each part of the time in which the others run: by least squares.

        A loss that was seen while the others ran a lot says more than one that was seen while they hardly ran, which
        is mostly noise.
        """
        return max(self.loss_seen / self.duty_seen, LEAST_FACTOR) if self.duty_seen else LEAST_FACTOR

    def note_alone(self, rate: float) -> None:
        """Take in a speed that was measured while no other job ran; a mean, since speeds vary by themselves."""
        self.alone = rate if self.alone is None else self.alone + BLEND * (rate - self.alone)

    def update(self, rate: float) -> float:
        """Take in the speed beside the others at the present part of the time; return the next one.

        A loss while the others hardly run is not their doing: a training becomes slower by itself, too.
        """
        if not self.alone or not math.isfinite(rate):
            return self.duty
        if self.duty <= FLOOR:
            self.note_alone(rate)
        loss, allowed = max(1 - rate / self.alone, -1.0), 1 - self.bound
        self.loss_seen = KEPT * self.loss_seen + loss * self.duty
        self.duty_seen = KEPT * self.duty_seen + self.duty**2
        target = allowed * MARGIN / self.factor
        if loss > 2 * allowed:
            self.duty = min(self.duty * CUT, target)
        else:
            self.duty = min(self.duty + STEP_UP, target)
        self.duty = min(max(self.duty, FLOOR), 1.0)
        return self.duty
