"""Runs several policies at once, each in its own process."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from ctypes import c_longlong
from pathlib import Path
from typing import Any

from rota.cli.study.runs import Finished, Keep, prepare, run_policy
from rota.drivers.simulator.load import LoadedScenario
from rota.scenario import Scenario

WORTH_A_PROCESS = 4000
"""The number of jobs from which a run takes longer than to start a process for it."""
POLL_S = 0.1

_progress: Any = None


def run_all(
    loaded: LoadedScenario,
    folders: Sequence[Path | None],
    keep: Keep,
    metrics: Sequence[str],
    report: Callable[[int], None],
) -> Iterator[Finished]:
    """Run every policy and yield the results in order; `report` is called with the jobs that have arrived in all."""
    policies = loaded.scenario.policies
    jobs = len(loaded.workload.submissions)
    workers = min(len(policies), os.cpu_count() or 1)
    if workers == 1 or jobs < WORTH_A_PROCESS:
        for index, (policy, folder) in enumerate(zip(policies, folders, strict=True)):
            yield run_policy(
                loaded, policy, keep=keep, metrics=metrics, folder=folder, progress=_after(index * jobs, report)
            )
        return
    yield from _in_processes(loaded.scenario, folders, keep, metrics, workers, report)


def _after(done: int, report: Callable[[int], None]) -> Callable[[int], None]:
    return lambda arrived: report(done + arrived)


def _in_processes(
    scenario: Scenario,
    folders: Sequence[Path | None],
    keep: Keep,
    metrics: Sequence[str],
    workers: int,
    report: Callable[[int], None],
) -> Iterator[Finished]:
    policies = scenario.policies
    context = multiprocessing.get_context("spawn")
    counters: Any = context.Array(c_longlong, len(policies), lock=False)
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_keep_progress, initargs=(counters,)) as pool:
        futures = [
            pool.submit(_work, scenario, policy, folder, keep, metrics, index)
            for index, (policy, folder) in enumerate(zip(policies, folders, strict=True))
        ]
        try:
            for future in futures:
                _wait(future, lambda: report(sum(counters)))
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _wait(future: Future[Finished], tick: Callable[[], None]) -> None:
    while not future.done():
        tick()
        time.sleep(POLL_S)


def _keep_progress(counters: Any) -> None:
    global _progress
    _progress = counters


def _work(
    scenario: Scenario, policy: str, folder: Path | None, keep: Keep, metrics: Sequence[str], index: int
) -> Finished:
    """Run in the other process: read the files again, which is quicker than to send what was read."""

    def count(arrived: int) -> None:
        _progress[index] = arrived

    return run_policy(prepare(scenario), policy, keep=keep, metrics=metrics, folder=folder, progress=count)
