"""A job's speed by number of workers, from a few measurements (Peng et al., EuroSys 2018).

With a server beside each worker, a step takes a part that is divided among the workers, one that stays, and one
that grows with their number: 1 / speed = divided / w + fixed + growing x w, none of them negative.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np


class SpeedCurve(NamedTuple):
    """The parts of a step's time."""

    divided: float
    fixed: float
    growing: float

    def speed(self, workers: int) -> float:
        """Work a second with so many workers."""
        step = self.divided / workers + self.fixed + self.growing * workers
        return 1.0 / step if step > 0 else 0.0


def fit_speed(measured: Mapping[int, float]) -> SpeedCurve:
    """The curve nearest to measured speeds by number of workers, in relative terms.

    From one measurement it is linear, and only from three on may anything grow with the number of workers.
    """
    from scipy.optimize import nnls

    workers = np.array([count for count, speed in measured.items() if speed > 0], dtype=np.float64)
    speeds = np.array([speed for speed in measured.values() if speed > 0])
    if not len(workers):
        return SpeedCurve(1.0, 0.0, 0.0)
    parts = np.stack([1.0 / workers, np.ones_like(workers), workers], axis=1)[:, : len(workers)] * speeds[:, None]
    found, _ = nnls(parts, np.ones_like(speeds))
    return SpeedCurve(*(float(part) for part in (*found, 0.0, 0.0)[:3]))
