"""A run in few numbers: enough to sketch its completion times and its allocation over time as text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rota.core.state.history import History
from rota.report.series import Floats, Series, cdf, means, thin
from rota.report.timeline import Timeline

POINTS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    """The distribution of completion times, and the fraction of allocated devices over time."""

    jct_s: Floats
    share: Floats
    """The cumulative share of jobs at each of `jct_s`."""
    allocation: Series
    first_s: float
    last_s: float

    def complete_within(self, times_s: Floats) -> Floats:
        """The share of jobs that were complete within each of some times."""
        at = np.searchsorted(self.jct_s, times_s, side="right") - 1
        return np.where(at >= 0, self.share[at], 0.0) if self.share.size else np.zeros_like(times_s)

    def allocation_between(self, edges_s: Floats) -> Floats:
        """The mean fraction of allocated devices between moments."""
        return means(self.allocation, edges_s) if self.allocation.times_s.size else np.zeros(edges_s.size - 1)


def sketch_of(history: History, timeline: Timeline) -> Sketch:
    """The sketch of a run."""
    jct_s = [row.end_s - row.submit_s for row in history.jobs if row.end_s is not None and row.start_s is not None]
    times_s, share = cdf(np.array(jct_s, dtype=np.float64), POINTS)
    held = timeline.devices_in_use()
    allocation = Series(times_s=held.times_s, values=held.values / max(history.devices, 1))
    return Sketch(
        jct_s=times_s,
        share=share,
        allocation=thin(allocation, POINTS),
        first_s=min((row.submit_s for row in history.jobs), default=0.0),
        last_s=timeline.last_s,
    )
