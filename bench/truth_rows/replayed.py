"""Forecasts of workloads that are replayed in the simulator as if live: public traces, and the live rows' own jobs.

What the simulator plays is deterministic, so that the error of a forecast is that of its assumptions. Where these are
replaced by the truth, what remains of the error is the floor that no better assumption goes below.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from forecast_replay import RECENT, Replay, Scored, of_trace

from rota.core.engine.engine import Engine
from rota.core.model.cluster import Cluster
from rota.core.model.job import Checkpoint, Elastic, Job, JobId, Role
from rota.drivers.simulator.study import Setting, oversized
from rota.forecast.arrivals import Arrivals
from rota.forecast.chance import normal_at, normal_beyond, uniforms
from rota.forecast.durations import RunTimes
from rota.forecast.predict import Assumptions
from rota.live.truth.attribution import KnownArrivals, TrueJob
from rota.live.truth.calibration import RangeCalibration
from rota.live.truth.scores import percentile
from rota.perf.speed.model import Costs
from rota.store.forecasts import StoredRange
from rota.traces.formats import read_trace
from rota.traces.workload import Submission
from truth_rows.live import DEFAULT_ROWS, commit
from truth_rows.workload import DECLARED_BIAS, DECLARED_SPREAD, KINDS, SPREAD, random_jobs

Json = dict[str, Any]
POLICIES = ("fifo", "fifo:backfill=true", "las")
WINDOW = 250
TRACES = (
    ("Philly", "philly/philly.csv", tuple(range(5_000, 80_000, 9_000)), 8),
    ("Philly by Tiresias", "tiresias/philly10000_tiresias.csv", tuple(range(800, 9_800, 900)), 8),
    ("Blox", "blox/blox_synth_1000.csv", (150, 400, 650), 4),
)
"""Name, file, how many jobs are before each window, and each how many-th job of it is forecast.

Those before a window that have ended are its past.
"""
SCARCITY = 0.9
"""Devices of a cluster relative to what the jobs of its window would use on average if none had to wait."""
PER_NODE = 8
PAST, MEASURED, AFTER = 32, 64, 24
ENDLESS = 400
"""Jobs to come where it is not known how many."""
LIVE_COSTS = Costs(load_s=0.02, checkpoint_s=0.06, resize_s=0.15, checkpoint_interval_s=math.inf)
"""What starts, stops and resizes cost live, roughly."""


class Known(Replay):
    """A replay whose forecasts know the true run times, or the true later arrivals."""

    __slots__ = ()

    def assumed(self, engine: Engine, setting: Setting, arrived: int) -> Assumptions:
        """Replace what is known by the truth."""
        found = super().assumed(engine, setting, arrived)
        if self.knows_process:
            first = self.submissions[0].job
            arrivals = TrueProcess(
                engine.state.now_s,
                like=first,
                is_declared=first.estimate_s is not None,
                left=len(self.submissions) - arrived if self.knows_end else ENDLESS,
            )
            found = replace(found, times=TrueTimes(), arrivals=arrivals)
        if self.knows_durations:
            by_id = {each.job.id: each.target for each in self.submissions}
            found = replace(found, true_work=lambda job: by_id.get(job.id))
        if self.knows_arrivals:
            later = [_true(each) for each in self.submissions[arrived:]]
            found = replace(found, arrivals=KnownArrivals(later, exact=self.knows_durations))
        return found


class TrueTimes(RunTimes):
    """The distribution from which the run times of the live rows' jobs are drawn, given what they declare."""

    def draw(self, run: int, job: Job, command: str = "", *, done_s: float = 0.0) -> float:
        """Return the work of a job in one run, known to exceed what it has done."""
        centre, precision = math.log(KINDS[job.name]), 1.0 / SPREAD**2
        if job.estimate_s:
            believed = 1.0 / DECLARED_SPREAD**2
            declared = math.log(job.estimate_s / DECLARED_BIAS)
            centre = (centre * precision + declared * believed) / (precision + believed)
            precision += believed
        width = 1.0 / math.sqrt(precision)
        _, place = uniforms(run, job.id)
        if done_s <= 0:
            return math.exp(centre + width * normal_at(place))
        return math.exp(centre + width * normal_beyond((math.log(done_s) - centre) / width, place))


class TrueProcess(Arrivals):
    """The process by which the live rows' jobs arrive, and how many are left."""

    def __init__(self, now_s: float, *, like: Job, is_declared: bool, left: int) -> None:
        super().__init__()
        self._left = left
        self._from_s = now_s
        self._elastic = like.elastic is not None
        self._is_declared = is_declared

    def draw(self, run: int, times: RunTimes, most: int) -> Sequence[Submission]:
        """Return later submissions of one run."""
        source = "declared" if self._is_declared else "history"
        seed = round(1e6 * self._from_s) * 7919 + run
        drawn = as_submissions(source, seed, elastic=self._elastic, count=self._left)
        return [
            replace(
                each, job=replace(each.job, id=JobId(f"later-{each.job.id}")), submit_s=self._from_s + each.submit_s
            )
            for each in drawn[:most]
        ]


def _true(each: Submission) -> TrueJob:
    return TrueJob(job=each.job, submit_s=each.submit_s, start_s=None, end_s=None, work_s=each.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Which assumptions are replaced by the truth."""

    name: str
    durations: bool = False
    arrivals: bool = False
    process: bool = False
    """Whether the distributions from which the jobs are drawn are known, but not what is drawn."""
    end: bool = True
    """Whether it is part of that how many jobs are to come."""


VARIANTS = (
    Variant(name="as forecast"),
    Variant(name="run times known", durations=True),
    Variant(name="arrivals known", arrivals=True),
    Variant(name="the random process known", process=True),
    Variant(name="the process known but for its end", process=True, end=False),
    Variant(name="both known", durations=True, arrivals=True),
)


def figures_of(replays: Sequence[Sequence[Scored]], is_measured: Callable[[Scored], bool] = lambda _: True) -> Json:
    """Return coverage, before and after calibration, and errors of the starts that had to be waited for.

    Each replay has a calibration of its own. Forecasts that are not measured only teach it.
    """
    known = [[each for each in scored if each.wait_s > 0 and each.forecast.usual_s is not None] for scored in replays]
    told = [each for scored in known for each in scored if is_measured(each)]
    held = [each.forecast.start.holds(each.start_s) for each in told if each.forecast.start is not None]
    errors = [each.error for each in told]
    return {
        "forecasts": len(told),
        "coverage": sum(held) / len(held) if held else None,
        "calibrated": sum(_calibrated(scored, is_measured) for scored in known) / len(told) if told else None,
        "median_error": percentile(errors, 0.5),
        "p90_error": percentile(errors, 0.9),
        "singles": [
            {"replay": number, **_single(each)}
            for number, scored in enumerate(known)
            for each in scored
            if is_measured(each)
        ],
    }


def ends_of(replays: Sequence[Sequence[Scored]]) -> Json:
    """Return coverage and errors of the ends, of jobs that started at once as well."""
    told = [(each, each.forecast.end) for scored in replays for each in scored]
    ends = [(each, span, span.median_s) for each, span in told if span is not None and span.median_s is not None]
    errors = [abs(middle_s - each.end_s) / max(each.end_s - each.submit_s, 1e-9) for each, _, middle_s in ends]
    return {
        "ends": len(ends),
        "ends_coverage": sum(span.holds(each.end_s) for each, span, _ in ends) / len(ends) if ends else None,
        "ends_median_error": percentile(errors, 0.5),
    }


def _single(each: Scored) -> Json:
    """Return one forecast and what came, for a closer look and to put rows together."""
    span = each.forecast.start
    return {
        "job": each.job_id,
        "made_s": each.submit_s,
        "started_s": each.start_s,
        "waited_s": each.wait_s,
        "median_s": None if span is None else span.median_s,
        "low_s": None if span is None else span.low_s,
        "high_s": None if span is None else span.high_s,
    }


def _calibrated(told: Sequence[Scored], is_measured: Callable[[Scored], bool]) -> int:
    """Return how many measured starts lie in ranges that are stretched by what was seen until each was made."""
    calibration = RangeCalibration()
    held = 0
    moments = [(each.submit_s, 1, at) for at, each in enumerate(told)]
    moments += [(each.start_s, 0, at) for at, each in enumerate(told)]
    for _, is_made, at in sorted(moments):
        each = told[at]
        span = each.forecast.start
        assert span is not None
        assert span.median_s is not None
        if is_made:
            given = calibration.stretch(each.submit_s, span.median_s, span.low_s, span.high_s)
            is_late = given.high_s is not None and each.start_s > given.high_s
            is_early = each.start_s < (given.low_s or 0.0)
            held += is_measured(each) and not is_late and not is_early
        else:
            low_s = span.low_s if span.low_s is not None else each.submit_s
            seen = StoredRange(
                median_s=span.median_s, low_s=low_s, high_s=span.high_s, given_low_s=low_s, given_high_s=span.high_s
            )
            calibration.see(each.submit_s, seen, each.start_s)
    return held


def trace_rows(runs: int, processes: int) -> Iterator[Json]:
    """Replay windows of the public traces of `$ROTA_DATA`, each under three policies."""
    data = os.environ.get("ROTA_DATA")
    if not data:
        raise SystemExit("set ROTA_DATA to the folder of the public traces")
    about = {"runs": runs, "commit": commit()}
    rows = [(name, policy) for name, *_ in TRACES for policy in POLICIES]
    windows = [
        _Window(name=name, file=Path(data) / file, skip=skip, every=every, policy=policy, runs=runs)
        for name, file, skips, every in TRACES
        for policy in POLICIES
        for skip in skips
    ]
    with ProcessPoolExecutor(max_workers=processes) as pool:
        told = zip(windows, pool.map(_window_scores, windows), strict=True)
        for (name, policy), found in zip(rows, groupby(told, lambda each: (each[0].name, each[0].policy)), strict=True):
            scored = [scores for _, scores in found[1]]
            devices = [count for count, _ in scored]
            replays = [scores for _, scores in scored]
            cluster = f"{min(devices)} to {max(devices)}"
            yield {
                "trace": name,
                "policy": policy,
                "devices": cluster,
                **figures_of(replays),
                **ends_of(replays),
                **about,
            }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """A part of a trace that is replayed under a policy."""

    name: str
    file: Path
    skip: int
    every: int
    policy: str
    runs: int


def _window_scores(window: _Window) -> tuple[int, list[Scored]]:
    """Replay a window; return how many devices its cluster has, and the scored forecasts."""
    submissions = of_trace(window.file, WINDOW, window.skip)
    cluster = fitting_cluster(submissions)
    misfits = {job.id for job, _ in oversized(submissions, Setting(cluster=cluster))}
    kept = [each for each in submissions if each.job.id not in misfits]
    replay = Replay(
        submissions=kept,
        policy=window.policy,
        cluster=cluster,
        runs=window.runs,
        every=window.every,
        warm_up=len(kept) // 6,
        before=_before(window.file, window.skip),
        of_all=True,
    )
    return cluster.devices, list(replay.scores())


def _before(path: Path, skip: int) -> list[Submission]:
    """Return the jobs before a window, at times relative to its begin."""
    found = read_trace(path).submissions[max(skip - RECENT, 0) : skip + 1]
    begun_s = found[-1].submit_s
    return [
        Submission(
            job=replace(each.job, work=None, depends_on=()),
            submit_s=each.submit_s - begun_s,
            hidden_work=each.target,
        )
        for each in found[:-1]
    ]


def fitting_cluster(submissions: Sequence[Submission]) -> Cluster:
    """Return nodes of 8 devices on which jobs have to wait: fewer than they would use if none had to."""
    changes = [(each.submit_s, each.job.gpus) for each in submissions]
    changes += [(each.submit_s + each.target, -each.job.gpus) for each in submissions]
    last_s = submissions[-1].submit_s
    used, held, before_s = 0.0, [], 0.0
    for at_s, gpus in sorted(changes):
        if at_s <= last_s:
            held.append((used, at_s - before_s))
            used, before_s = used + gpus, at_s
    mean = math.fsum(devices * for_s for devices, for_s in held) / max(last_s, 1.0)
    nodes = max(math.ceil(SCARCITY * mean / PER_NODE), 1)
    return Cluster.uniform(("gpu", nodes * PER_NODE, PER_NODE))


def floor_rows(runs: int, seeds: Sequence[int], processes: int, wanted: Collection[int] = ()) -> Iterator[Json]:
    """Replay the jobs of the live rows, with other seeds, as forecast and with assumptions replaced by the truth."""
    about = {"seeds": list(seeds), "runs": runs, "commit": commit()}
    rows = [
        (policy, source, variant)
        for number, (policy, source) in enumerate(DEFAULT_ROWS, start=1)
        for variant in VARIANTS
        if not wanted or number in wanted
    ]
    with ProcessPoolExecutor(max_workers=processes) as pool:
        made = [[pool.submit(_replayed, *row, seed, runs) for seed in seeds] for row in rows]
        for (policy, source, variant), replays in zip(rows, made, strict=True):
            found = figures_of([each.result() for each in replays], _is_measured)
            yield {"policy": policy, "source": source, "knows": variant.name, **found, **about}


def _is_measured(each: Scored) -> bool:
    return PAST <= int(each.job_id[1:]) < PAST + MEASURED


def _replayed(policy: str, source: str, variant: Variant, seed: int, runs: int) -> list[Scored]:
    replay = Known(
        submissions=as_submissions(source, seed, elastic=policy.startswith("afs")),
        policy=policy,
        cluster=Cluster.uniform(("gpu", 8, 4)),
        costs=LIVE_COSTS,
        runs=1 if variant.durations and variant.arrivals else runs,
        every=2,
        warm_up=PAST // 2,
        knows_durations=variant.durations,
        knows_arrivals=variant.arrivals,
        knows_process=variant.process,
        knows_end=variant.end,
    )
    return list(replay.scores())


def as_submissions(source: str, seed: int, *, elastic: bool, count: int = PAST + MEASURED + AFTER) -> list[Submission]:
    """Return the jobs of a live row as the simulator takes them."""
    found = []
    jobs = random_jobs(count, declared=source == "declared", scale=1.0, seed=seed)
    for number, each in enumerate(jobs):
        saves = each.saves or elastic
        role = Role(count=each.gpus) if elastic else Role(count=max(each.gpus // 4, 1), device_milli=_milli(each.gpus))
        job = Job(
            id=JobId(f"j{number}"),
            name=each.name,
            user="ann",
            roles=(role,),
            priority=each.priority,
            estimate_s=each.estimate_s,
            elastic=Elastic(min_tasks=1, max_tasks=each.gpus) if elastic else None,
            checkpoint=Checkpoint() if saves else Checkpoint(interval_s=math.inf),
        )
        found.append(Submission(job=job, submit_s=each.at_s, hidden_work=each.length_s))
    return found


def _milli(gpus: int) -> int:
    return 1000 * min(gpus, 4)
