"""Runs an experiment: simulates what is missing in its folder, in several processes, and keeps every result at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rota.core.errors import RotaError, Unavailable
from rota.experiments.comparison_notes import with_comparison_notes
from rota.experiments.points import GridPoint, points_of
from rota.experiments.provenance import provenance
from rota.experiments.results_folder import open_results
from rota.experiments.run_point import PointResult, forget_inputs, run_point
from rota.experiments.worker_processes import WorkerContext
from rota.experiments.workloads import refuse_unknown_trace
from rota.files.cluster import read_cluster
from rota.policies import find_policy
from rota.report.named_metrics import find_metrics
from rota.report.user_metrics import user_metrics
from rota.scenario import Experiment

if TYPE_CHECKING:
    import polars

AHEAD = 3
"""Runs handed to the pool for each process, so that none waits and little is lost on an interruption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentOutcome:
    """What a call gave: the table of all rows, how many were there before, and the runs that failed, with reasons."""

    table: polars.DataFrame
    runs: int
    reused: int
    failed: tuple[tuple[GridPoint, str], ...]
    other_versions: tuple[str, ...]
    """Versions or commits, other than the present one, that made some of the rows."""
    rows: tuple[str, ...]
    """The keys of the rows, in the order of the grid."""


def check_experiment(experiment: Experiment) -> None:
    """Refuse what can't be run before anything is."""
    for policy in experiment.policies:
        declared, options = find_policy(policy)
        declared.read(options)
    for trace in experiment.traces:
        refuse_unknown_trace(trace)
    for cluster in experiment.clusters:
        if not cluster.endswith(".csv"):
            read_cluster(cluster)
    find_metrics(experiment.metrics)
    user_metrics(experiment.own_metrics)


def run_experiment(
    experiment: Experiment,
    out: Path,
    *,
    processes: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> ExperimentOutcome:
    """Run what the folder lacks and return everything; `progress` is called with the runs done and all runs."""
    if processes < 1:
        raise RotaError(f"--processes is {processes}; it must be at least 1")
    forget_inputs()
    check_experiment(experiment)
    points = points_of(experiment)
    origin = provenance()
    with open_results(out) as folder:
        missing = [point for point in points if point.key not in folder.rows]
        reused = len(points) - len(missing)
        failed: list[tuple[GridPoint, str]] = []
        by_key = {point.key: point for point in points}
        if progress is not None:
            progress(reused, len(points))
        for done, result in enumerate(_results(experiment, missing, processes), start=1):
            if result.error is None:
                folder.append(result, origin)
            else:
                failed.append((by_key[result.key], result.error))
            if progress is not None:
                progress(reused + done, len(points))
        keys = tuple(point.key for point in points if point.key in folder.rows)
        rows = with_comparison_notes([folder.rows[key] for key in keys])
        table = folder.write_parquet(rows, {**origin, "experiment": experiment.name, "runs": len(points)})
        others = {
            f"{row.get('rota_version')} {row.get('rota_commit') or ''}".strip()
            for row in (folder.rows[key] for key in keys)
            if (row.get("rota_version"), row.get("rota_commit")) != (origin["rota_version"], origin["rota_commit"])
        }
    return ExperimentOutcome(
        table=table,
        runs=len(points),
        reused=reused,
        failed=tuple(failed),
        other_versions=tuple(sorted(others)),
        rows=keys,
    )


def _results(experiment: Experiment, points: Sequence[GridPoint], processes: int) -> Iterator[PointResult]:
    """Results as they come; the policies of one setting go to the same process one after the other where possible."""
    if processes == 1 or len(points) < 2:
        yield from (run_point(experiment, point) for point in points)
        return
    batches = iter(_batches(points, processes))
    with ProcessPoolExecutor(min(processes, len(points)), mp_context=WorkerContext()) as pool:
        waiting: set[Future[list[PointResult]]] = set()
        try:
            while True:
                while len(waiting) < AHEAD * processes and (batch := next(batches, None)) is not None:
                    waiting.add(pool.submit(_run_batch, experiment, batch))
                if not waiting:
                    return
                finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in finished:
                    yield from future.result()
        except BrokenProcessPool:
            raise Unavailable(
                "a process of the experiment was killed (out of memory?); run the command again to continue, "
                "with fewer --processes"
            ) from None
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _batches(points: Sequence[GridPoint], processes: int) -> list[list[GridPoint]]:
    """Runs of one setting together, as its workload is made once; few where there are few settings."""
    most = max(1, min(6, len(points) // (4 * processes)))
    batches: list[list[GridPoint]] = []
    for point in points:
        last = batches[-1] if batches else []
        if last and len(last) < most and last[0].setting == point.setting:
            last.append(point)
        else:
            batches.append([point])
    return batches


def _run_batch(experiment: Experiment, points: list[GridPoint]) -> list[PointResult]:
    return [run_point(experiment, point) for point in points]
