"""Speed of the Gavel policies: one solve with many jobs, against cvxpy + ECOS in the same run, and a whole run.

Times are CPU seconds of this process. Profiles and trace come from $ROTA_DATA; without it, speeds are random and the
whole run is skipped.
"""

from __future__ import annotations

import importlib
import os
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rota.core.model.job import WHOLE, DeviceType, Job, JobId, Role
from rota.core.state.job_record import LiveJob
from rota.drivers.simulator.study import Setting, simulate
from rota.files.cluster import read_cluster
from rota.mechanisms.arrays import Floats
from rota.mechanisms.rounds.rule import RoundJob, ShareQuestion, round_job
from rota.mechanisms.solvers.lp import Solver
from rota.perf.profiles.profile_files import read_profiles
from rota.perf.profiles.speed_table import Profiles
from rota.perf.speed.model import SpeedModel
from rota.policies.published.gavel.layout import lay_out
from rota.policies.published.gavel.least import serve_the_least
from rota.policies.published.gavel.max_min import fair_need
from rota.traces.formats import read_trace

DATA = os.environ.get("ROTA_DATA")
TYPES = (DeviceType("v100"), DeviceType("p100"), DeviceType("k80"))


def profiles() -> Profiles:
    if DATA is not None:
        return read_profiles(Path(DATA) / "gavel" / "simulation_throughputs.json")
    rng = random.Random(0)
    names = [f"model-{number}" for number in range(26)]
    alone = {(kind, name, 1): rng.uniform(0.5, 20.0) for kind in TYPES for name in names}
    pairs = {
        (kind, a, b, 1): (alone[kind, a, 1] * 0.6, alone[kind, b, 1] * 0.6)
        for kind in TYPES
        for a in names
        for b in names
    }
    return Profiles(steps_per_s=alone, pairs=pairs, source="random")


def question(speed: SpeedModel, jobs: int, *, distinct: bool) -> ShareQuestion:
    assert isinstance(speed.profiles, Profiles)
    rng = random.Random(1)
    models = sorted({model for _, model, devices in speed.profiles.steps_per_s if devices == 1})
    devices = (jobs // 4, jobs // 4, jobs // 4)
    made: list[RoundJob] = []
    for seq in range(jobs):
        weight = f"{rng.uniform(0.5, 2.0):.6f}" if distinct else "1"
        job = Job(
            id=JobId(str(seq)),
            roles=(Role(device_milli=WHOLE),),
            model=rng.choice(models),
            work=1e5,
            labels=(("priority_weight", weight),),
        )
        made.append(round_job(LiveJob(job, seq, 0.0, 1.0), speed, TYPES, [True] * len(TYPES)))
    known: dict[tuple[object, object], Floats] = {}

    def beside(one: RoundJob, other: RoundJob) -> Floats:
        key = (one.kind, other.kind)
        if key not in known:
            a, b = one.live.job, other.live.job
            rows = [(speed.beside(a, b, kind), speed.beside(b, a, kind)) for kind in TYPES]
            known[key] = np.array(rows).T
        return known[key]

    return ShareQuestion(0.0, made, TYPES, devices, beside)


def cpu_s(work: Callable[[], object], repeat: int = 3) -> float:
    best = float("inf")
    for _ in range(repeat):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def solve(asked: ShareQuestion, *, packs: bool, collapse: bool) -> float:
    layout = lay_out(asked, packs=packs, collapse=collapse)
    best = serve_the_least(Solver(), layout, fair_need(layout), spare=False)
    assert best is not None
    layout.split(best.x)
    return best.t


def again(asked: ShareQuestion, *, warm: bool) -> float:
    """Return the CPU seconds of a solve after one job in twenty has been replaced since the last one."""
    churn = len(asked.jobs) // 20
    solver = Solver()
    earlier = lay_out(replace(asked, jobs=asked.jobs[churn:]), collapse=False)
    serve_the_least(solver, earlier, fair_need(earlier), spare=False)
    now = lay_out(replace(asked, jobs=asked.jobs[:-churn]), collapse=False)
    chosen = solver if warm else Solver()
    return cpu_s(lambda: serve_the_least(chosen, now, fair_need(now), spare=False), 1)


def peer(asked: ShareQuestion, *, packs: bool) -> float:
    cp: Any = importlib.import_module("cvxpy")

    layout = lay_out(asked, packs=packs, collapse=False)
    x = cp.Variable(layout.columns, nonneg=True)
    program = layout.program()
    starts, columns, values = program.matrix
    from scipy.sparse import csr_matrix

    used = csr_matrix((values, columns, starts), shape=(len(starts) - 1, layout.columns))
    rows, columns, speeds = layout.progress()
    done = csr_matrix((speeds / fair_need(layout)[rows], (rows, columns)), shape=(len(layout.count), layout.columns))
    problem = cp.Problem(cp.Maximize(cp.min(done @ x)), [used @ x <= np.array(program.row_upper)])
    problem.solve(solver=cp.ECOS)
    return float(problem.value)


def main() -> None:
    speed = SpeedModel(profiles=profiles())
    alike, distinct = question(speed, 2048, distinct=False), question(speed, 2048, distinct=True)
    small = question(speed, 128, distinct=False)
    solve(small, packs=False, collapse=True)
    rows: list[tuple[str, float]] = [
        ("max-min, 2,048 jobs, alike jobs as one", cpu_s(lambda: solve(alike, packs=False, collapse=True))),
        ("max-min, 2,048 jobs, distinct weights", cpu_s(lambda: solve(distinct, packs=False, collapse=False), 1)),
        ("the same, a twentieth of the jobs new, cold", again(distinct, warm=False)),
        ("the same, a twentieth of the jobs new, warm", again(distinct, warm=True)),
        ("max-min packed, 2,048 jobs, alike as one", cpu_s(lambda: solve(alike, packs=True, collapse=True))),
        ("max-min packed, 128 jobs, alike as one", cpu_s(lambda: solve(small, packs=True, collapse=True))),
    ]
    try:
        rows.append(("cvxpy + ECOS, 2,048 jobs, one by one", cpu_s(lambda: peer(alike, packs=False), 1)))
        rows.append(("cvxpy + ECOS, packed, 128 jobs", cpu_s(lambda: peer(small, packs=True), 1)))
    except ImportError:
        print("cvxpy or ecos is not installed: no comparison")
    if DATA is not None:
        setting = Setting(cluster=read_cluster("v100=36/4,p100=36/4,k80=36/4"), speed=speed)
        trace = read_trace(Path(DATA) / "gavel" / "gen_single_300.trace", format="gavel")
        rows.append(
            (
                "whole run, gen_single_300 on 36:36:36, packed",
                cpu_s(lambda: simulate(trace, "gavel/max_min_fairness_packed", setting), 1),
            )
        )
    for name, seconds in rows:
        print(f"{name:46} {seconds * 1000:9.1f} ms of CPU")


if __name__ == "__main__":
    main()
