"""Speed of a job by number of workers, fitted to a few measurements (Peng et al., EuroSys 2018).

With a server next to each worker, a step has a part that is divided among the workers, a constant part, and one that
grows with their number: 1 / speed = divided / w + fixed + growing x w, with no negative coefficient.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np


class SpeedCurve(NamedTuple):
    """The coefficients of a step's time."""

    divided: float
    fixed: float
    growing: float

    def speed(self, workers: int) -> float:
        """Return the work per second with that many workers."""
        step = self.divided / workers + self.fixed + self.growing * workers
        return 1.0 / step if step > 0 else 0.0


def fit_speed(measured: Mapping[int, float]) -> SpeedCurve:
    """Fit the curve to measured speeds by number of workers, by relative errors.

    One measurement gives a linear speedup; a growing part needs at least three.
    """
    from scipy.optimize import nnls

    workers = np.array([count for count, speed in measured.items() if speed > 0], dtype=np.float64)
    speeds = np.array([speed for speed in measured.values() if speed > 0])
    if not len(workers):
        return SpeedCurve(1.0, 0.0, 0.0)
    parts = np.stack([1.0 / workers, np.ones_like(workers), workers], axis=1)[:, : len(workers)] * speeds[:, None]
    found, _ = nnls(parts, np.ones_like(speeds))
    return SpeedCurve(*(float(part) for part in (*found, 0.0, 0.0)[:3]))
