"""Crux: the job with the most computing per second of communication goes first (Cao et al., SIGCOMM 2024).

Its flows take the least congested of the equal paths, and a higher priority; priorities are compressed to the few
levels that switches know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rota.network.routing import Path, Router
from rota.network.topology import Floats
from rota.network.traffic import JobTraffic


def intensity(traffic: JobTraffic) -> float:
    """Return the computing of one iteration, in device-seconds, per second that its exchange takes alone."""
    work = traffic.demand.compute_s * traffic.devices
    return work / traffic.comm_s if traffic.comm_s > 0 else 0.0


def compressed(intensities: Sequence[float], levels: int) -> list[int]:
    """Return a priority below `levels` for each job, higher for higher intensity, with equally many jobs in each."""
    order = sorted(range(len(intensities)), key=lambda number: (-intensities[number], number))
    priority = [0] * len(intensities)
    if not order:
        return priority
    width = max(len(order) / levels, 1.0)
    top = min(levels, len(order)) - 1
    for place, number in enumerate(order):
        priority[number] = max(top - int(place / width), 0)
    return priority


def least_congested(router: Router, source: int, target: int, load: Mapping[int, float], capacity: Floats) -> Path:
    """Return the shortest path whose busiest link is least loaded; then the one with the least load in all."""
    paths = router.paths(source, target)

    def congestion(path: Path) -> tuple[float, float]:
        busy = [load.get(link, 0.0) / float(capacity[link]) for link in path]
        return max(busy, default=0.0), sum(busy)

    if not paths:
        return router.route(source, target)
    return min(paths, key=lambda path: (*congestion(path), path))
