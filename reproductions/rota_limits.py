"""How short completion can be without knowing single jobs: orders that know the true distribution of their service.

The Gittins index of a job is the largest ratio of the chance to end within some more service to the mean service until
then. Serving the largest index first is the best that can be done on one device without restarts, if nothing is known
of a job but its distribution. Here the distribution is that of the very workload, by number of devices or by tenant
too. A running job's index counts `keep` times. By the real simulator; all slices of Philly at one load.
Run: `ROTA_DATA=... python reproductions/rota_limits.py [LOAD [START...]]`.
"""

from __future__ import annotations

import statistics
import sys
from bisect import bisect_right
from collections.abc import Callable, Hashable

import numpy as np
from rota_ingredients import setting_of  # type: ignore[import-not-found]  # beside this script
from rota_policy import Case  # type: ignore[import-not-found]

from rota.core.model.job import Job
from rota.core.state.job_record import JobView
from rota.drivers.simulator.study import Setting, scheduler, simulate, simulate_with
from rota.mechanisms.ordering.list_scheduler import ListScheduler
from rota.mechanisms.ordering.rule import SimpleRule, Turn, later
from rota.report.metrics import measure
from rota.traces.workload import Workload

STARTS = (0, 10_000, 30_000, 41_000, 65_000)
AGES = np.concatenate([[0.0], np.geomspace(30.0, 1e9, 120)])
LEAST_GROUP = 30
"""Groups of fewer jobs have the distribution of all jobs."""
POLICIES = ("srsf", "rota", "rota:margin=4", "rota:growth=4", "las:rule=geometric", "e-las", "fewest-gpus")


def by_size(job: Job) -> Hashable:
    return job.gpus


def by_tenant(job: Job) -> Hashable:
    return job.gpus, job.tenant


def indices(services: np.ndarray) -> list[float]:
    """Return the Gittins index at each age of `AGES`."""
    sizes = np.sort(services)
    sums = np.concatenate([[0.0], np.cumsum(sizes)])
    found: list[float] = []
    for age in AGES:
        first = int(np.searchsorted(sizes, age, side="right"))
        if first == sizes.size:
            found.append(found[-1] if found else 1.0)
            continue
        ended = np.arange(1, sizes.size - first + 1)
        until = sizes[first:]
        mean = sums[first + 1 :] - sums[first] - ended * age + (until - age) * (sizes.size - first - ended)
        found.append(float(np.max(ended / np.maximum(mean, 1e-9))))
    return found


class Gittins:
    """Orders jobs by the index of their group at the service that they had."""

    def __init__(self, workload: Workload, group: Callable[[Job], Hashable], keep: float) -> None:
        self._group, self._keep = group, keep
        services: dict[Hashable, list[float]] = {}
        for each in workload.submissions:
            services.setdefault(group(each.job), []).append((each.job.work or 0.0) * each.job.gpus)
        everything = indices(np.array([one for some in services.values() for one in some]))
        self._indices = {
            key: indices(np.array(some)) if len(some) >= LEAST_GROUP else everything for key, some in services.items()
        }
        self._ages = AGES.tolist()

    def turn(self, job: JobView, now_s: float) -> Turn:
        """The largest index first."""
        had = job.attained_gpu_s(now_s)
        at = bisect_right(self._ages, had + 1e-6) - 1
        index = self._indices[self._group(job.job)][at] * (self._keep if job.holds else 1.0)
        until_s = float("inf")
        if job.progress_rate and at + 1 < len(self._ages):
            until_s = later(now_s, (self._ages[at + 1] - had) / job.gpus)
        return Turn((-index, not job.holds, job.seq), 0.0, until_s)


def gittins(workload: Workload, setting: Setting, group: Callable[[Job], Hashable], keep: float) -> tuple[float, float]:
    """Return mean completion and worst FTF."""
    _, allocator, _ = scheduler("srsf", setting)
    rule = SimpleRule(of=Gittins(workload, group, keep).turn, preempts=True)
    history, _ = simulate_with(workload, ListScheduler(rule, allocator), allocator, setting)
    found = measure(history)
    return found.avg_jct_s or 0.0, found.worst_finish_time_fairness or 0.0


def main(load: float, starts: tuple[int, ...]) -> None:
    rows: dict[str, list[tuple[float, float]]] = {}
    for start in starts:
        case = Case(name=f"philly from {start}", kind="philly", jobs=4000, load=load, start=start)
        workload = case.workload()
        setting = setting_of(case.cluster(workload))
        for policy in POLICIES:
            found = measure(simulate(workload, policy, setting).history)
            rows.setdefault(f"`{policy}`", []).append((found.avg_jct_s or 0.0, found.worst_finish_time_fairness or 0.0))
        for name, group in (("gang size", by_size), ("gang size and tenant", by_tenant)):
            for keep in (1.0, 2.0, 4.0):
                title = f"Gittins by {name}, running {keep:g} times"
                rows.setdefault(title, []).append(gittins(workload, setting, group, keep))
        print(f"from {start} done", file=sys.stderr, flush=True)
    best = [mean for mean, _ in rows["`srsf`"]]
    print(f"| order | {' | '.join(f'from {start}' for start in starts)} | mean | worst FTF |")
    print(f"|---|{'---:|' * (len(starts) + 2)}")
    for name, pairs in rows.items():
        over = [mean / least for (mean, _), least in zip(pairs, best, strict=True)]
        cells = [f"{one:.3f}" for one in (*over, statistics.mean(over))]
        print(f"| {name} | {' | '.join(cells)} | {max(ftf for _, ftf in pairs):.2f} |")
    unknowing = [pairs for name, pairs in rows.items() if name not in ("`srsf`", "`e-las`")]
    least = [min(pairs[at][0] for pairs in unknowing) / best[at] for at in range(len(starts))]
    print(f"| best of all that know no single job | {' | '.join(f'{one:.3f}' for one in least)} | | |")


if __name__ == "__main__":
    given = sys.argv[1:]
    main(float(given[0]) if given else 2.0, tuple(int(each) for each in given[1:]) or STARTS)
