"""A run in few numbers: enough for a line of text that shows its completion times, and one its use of devices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rota.core.state.history import History
from rota.report.series import Floats, Series, cdf, means, thin
from rota.report.timeline import Timeline

POINTS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    """The distribution of completion times, and the part of the devices in use over time."""

    jct_s: Floats
    part: Floats
    """The part of the jobs that was complete within each of `jct_s`."""
    use: Series
    first_s: float
    last_s: float

    def complete_within(self, times_s: Floats) -> Floats:
        """The part of the jobs that was complete within each of some times."""
        at = np.searchsorted(self.jct_s, times_s, side="right") - 1
        return np.where(at >= 0, self.part[at], 0.0) if self.part.size else np.zeros_like(times_s)

    def use_between(self, edges_s: Floats) -> Floats:
        """The mean part of the devices in use between moments."""
        return means(self.use, edges_s) if self.use.times_s.size else np.zeros(edges_s.size - 1)


def sketch_of(history: History, timeline: Timeline) -> Sketch:
    """What remains of a run."""
    jct_s = [row.end_s - row.submit_s for row in history.jobs if row.end_s is not None and row.start_s is not None]
    times_s, part = cdf(np.array(jct_s, dtype=np.float64), POINTS)
    held = timeline.devices_in_use()
    use = Series(times_s=held.times_s, values=held.values / max(history.devices, 1))
    return Sketch(
        jct_s=times_s,
        part=part,
        use=thin(use, POINTS),
        first_s=min((row.submit_s for row in history.jobs), default=0.0),
        last_s=timeline.last_s,
    )
