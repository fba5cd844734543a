"""Failures: the ETTR formula, the best interval, RSC's times to failure and Llama 3's stops against simulation.

A job holds N nodes of 8 GPUs for a long time, with enough nodes left for it to restart at once. After a failure it
loses the work since its last checkpoint and 5 minutes (1 until it is noticed, 4 to start). Every figure is the mean of
several seeds. Run: `python reproductions/failures.py [SEEDS]`; 20 seeds unless given.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
import sys
from collections.abc import Callable, Sequence

from rota.core.model.cluster import Cluster
from rota.core.model.job import WHOLE, Job, JobId, Role
from rota.drivers.simulator.faults import failure_events
from rota.drivers.simulator.study import Result, Setting, failures_by_name, simulate
from rota.health.checkpoint_interval import DAY_S, daly, exact_ettr, expected_ettr, mean_time_to_failure, young
from rota.health.failure_process import Breakdown
from rota.health.lost_time import FailureReport
from rota.health.presets import LLAMA_3_DAYS, LLAMA_3_NODES, LLAMA_3_STOPS, RSC_1_MEASURED_RATE
from rota.perf.speed.model import Costs
from rota.traces.workload import Submission, Workload

MIN_S = 60.0
RESTART_S, DETECT_S = 240.0, 60.0
RATE = 6.5
GPUS = 8


def simulated(
    nodes: int, work_s: float, spec: str, seed: int, *, interval_s: float = 0.0, write_s: float = 0.0
) -> FailureReport:
    """One job on so many nodes, until it has done its work."""
    spare = 8 + nodes // 20
    job = Job(id=JobId("job"), roles=(Role(count=nodes, device_milli=GPUS * WHOLE),), work=work_s)
    setting = Setting(
        cluster=Cluster.uniform(("gpu", GPUS * (nodes + spare), GPUS)),
        failures=failures_by_name(spec),
        seed=seed,
        costs=Costs(restart_s=RESTART_S, checkpoint_interval_s=interval_s, checkpoint_write_s=write_s),
    )
    workload = Workload(submissions=(Submission(job=job, submit_s=0.0),), source="", format="")
    report = simulate(workload, "fifo", setting).failures
    assert report is not None
    return report


def mean_ettr(nodes: int, interval_s: float, write_s: float, seeds: int, failures: float, rate: float = RATE) -> float:
    mttf_s = mean_time_to_failure(nodes, rate)
    spec = f"rsc-1:rate={rate},detect_s={DETECT_S:g},repair_s=600"
    found = [
        simulated(nodes, failures * mttf_s, spec, seed, interval_s=interval_s, write_s=write_s).ettr or 0.0
        for seed in range(seeds)
    ]
    return statistics.mean(found)


def formula(seeds: int) -> None:
    """The published formula against simulation, over job sizes and intervals."""
    print("| nodes | write (min) | interval (min) | formula | exact | simulated | difference |")
    print("|---|---|---|---|---|---|---|")
    for nodes, write_min in ((16, 1), (128, 1), (128, 5), (512, 5)):
        mttf_s, write_s = mean_time_to_failure(nodes, RATE), write_min * MIN_S
        best_s = young(write_s, mttf_s)
        for interval_s in (best_s / 3, best_s, min(best_s * 3, mttf_s / 3)):
            told = expected_ettr(interval_s, write_s, mttf_s, RESTART_S + DETECT_S)
            exact = exact_ettr(interval_s, write_s, mttf_s, RESTART_S + DETECT_S)
            seen = mean_ettr(nodes, interval_s, write_s, seeds, 60)
            shown = f"{told:.3f} | {exact:.3f} | {seen:.3f} | {100 * (seen / told - 1):+.1f}%"
            print(f"| {nodes} | {write_min} | {interval_s / MIN_S:.1f} | {shown} |")
    large_s = young(5 * MIN_S, mean_time_to_failure(2048, RATE))
    told = expected_ettr(large_s, 300.0, mean_time_to_failure(2048, RATE), 300.0)
    exact = exact_ettr(large_s, 300.0, mean_time_to_failure(2048, RATE), 300.0)
    # 2,048 nodes fail as often as 256 that fail eight times as often; a gang of 2,048 takes long to simulate.
    seen = mean_ettr(256, large_s, 300.0, seeds, 60, RATE * 8)
    shown = f"{told:.3f} | {exact:.3f} | {seen:.3f} | {100 * (seen / told - 1):+.1f}%"
    print(f"| 2048 | 5 | {large_s / MIN_S:.1f} | {shown} |")


def best_interval(of: Callable[[float], float], about_s: float) -> float:
    """The interval with the highest value: the top of a parabola in its logarithm, fitted around a first guess."""
    import numpy as np

    factors = np.exp(np.linspace(-0.9, 0.9, 9))
    values = [of(about_s * float(factor)) for factor in factors]
    curve, slope, _ = np.polyfit(np.log(factors), np.array(values), 2)
    return about_s * math.exp(-slope / (2 * curve))


def intervals(seeds: int) -> None:
    """The best interval by simulation against those of Young and Daly, from rare failures to frequent ones."""
    print("\n| write / MTTF | Young (min) | Daly (min) | simulated (min) | to Young | to Daly |")
    print("|---|---|---|---|---|---|")
    nodes = 8
    for part in (0.0005, 0.002, 0.01, 0.05, 0.2):
        mttf_s = mean_time_to_failure(nodes, 100.0)
        write_s = part * mttf_s
        first_s, second_s = young(write_s, mttf_s), daly(write_s, mttf_s)

        def value(interval_s: float, write_s: float = write_s) -> float:
            return mean_ettr(nodes, interval_s, write_s, seeds, 400, 100.0)

        found_s = best_interval(value, second_s)
        shown = " | ".join(f"{at / MIN_S:.1f}" for at in (first_s, second_s, found_s))
        print(
            f"| {part:g} | {shown} | {100 * (found_s / first_s - 1):+.0f}% | {100 * (found_s / second_s - 1):+.0f}% |"
        )


def spread(values: list[float], digits: int = 1) -> str:
    return f"{statistics.mean(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def times_to_failure(seeds: int) -> None:
    """The mean time to failure of RSC-1's and RSC-2's jobs by size."""
    print("\n| preset | GPUs | published or by rate (h) | simulated (h), spread of seeds | within |")
    print("|---|---|---|---|---|")
    cases = [("rsc-1", gpus, mean_time_to_failure(gpus / 8, RATE) / 3600) for gpus in (64, 256, 1024, 4096)]
    cases += [("rsc-1", 16_384, 1.8), ("rsc-1-measured", 1024, 7.9)]
    cases += [("rsc-2", gpus, mean_time_to_failure(gpus / 8, 2.34) / 3600) for gpus in (256, 1024)]
    for name, gpus, hours in cases:
        rate = {"rsc-1": RATE, "rsc-2": 2.34}.get(name, RSC_1_MEASURED_RATE)
        nodes = gpus // 8
        work_s = (20 if nodes > 1000 else 30) * mean_time_to_failure(nodes, rate)
        found = []
        for seed in range(seeds):
            report = simulated(nodes, work_s, f"{name}:repair_s=600", seed)
            mttf_s = report.sizes[0].mttf_s
            found.append((mttf_s or math.inf) / 3600)
        within = "yes" if min(found) <= hours <= max(found) else "no"
        print(f"| {name} | {gpus:,} | {hours:.1f} | {spread(found)} | {within} |")


def llama_3(seeds: int) -> None:
    """Breakdowns of 2,048 nodes in 54 days by cause."""
    counts: dict[str, list[float]] = {name: [] for name in LLAMA_3_STOPS}
    cluster = Cluster.uniform(("gpu", GPUS * LLAMA_3_NODES, GPUS))
    for seed in range(seeds):
        seen = dict.fromkeys(LLAMA_3_STOPS, 0)
        for at_s, event in failure_events(cluster, failures_by_name("llama-3:repair_s=600"), random.Random(seed)):
            if at_s > LLAMA_3_DAYS * DAY_S:
                break
            if isinstance(event, Breakdown):
                seen[event.cause] += 1
        for name, count in seen.items():
            counts[name].append(float(count))
    print("\n| cause | published | simulated, spread of seeds | within |")
    print("|---|---|---|---|")
    for name, told in LLAMA_3_STOPS.items():
        found = counts[name]
        print(f"| {name} | {told} | {spread(found)} | {'yes' if min(found) <= told <= max(found) else 'no'} |")
    totals = [sum(each) for each in zip(*counts.values(), strict=True)]
    told = sum(LLAMA_3_STOPS.values())
    print(f"| all | {told} | {spread(totals)} | {'yes' if min(totals) <= told <= max(totals) else 'no'} |")


def blind(seeds: int) -> None:
    """Lost time with a blind interval against the adaptive one: jobs of several sizes."""
    print("\n| GPUs | every 10 min | every hour | adaptive | interval (min) |")
    print("|---|---|---|---|---|")
    for gpus in (64, 512, 1024, 2048, 8192):
        nodes, write_s = gpus // 8, MIN_S
        mttf_s = mean_time_to_failure(nodes, RATE)
        best_s = young(write_s, mttf_s)
        shown = [f"{100 * (1 - mean_ettr(nodes, at_s, write_s, seeds, 60)):.2f}%" for at_s in (600.0, 3600.0)]
        lost = []
        for seed in range(seeds):
            spec = f"rsc-1:detect_s={DETECT_S:g},repair_s=600,adaptive=true"
            lost.append(1 - (simulated(nodes, 60 * mttf_s, spec, seed, write_s=write_s).ettr or 0.0))
        print(f"| {gpus:,} | {' | '.join(shown)} | {100 * statistics.mean(lost):.2f}% | {best_s / MIN_S:.0f} |")


def small_jobs(seed: int, count: int) -> list[Submission]:
    """A queue of jobs of one node, 1 to 12 hours each."""
    rng = random.Random(seed)
    role = Role(count=1, device_milli=GPUS * WHOLE)
    return [
        Submission(
            job=Job(id=JobId(f"s{number}"), roles=(role,), work=rng.uniform(1.0, 12.0) * 3600), submit_s=60.0 + number
        )
        for number in range(count)
    ]


def with_gang(nodes: int, days: float, spec: str, seed: int, beside: int) -> Result:
    """A gang on so many of 32 nodes, beside a queue of so many small jobs."""
    gang = Job(id=JobId("gang"), roles=(Role(count=nodes, device_milli=GPUS * WHOLE),), work=days * DAY_S)
    submitted = (Submission(job=gang, submit_s=0.0), *small_jobs(seed, beside))
    setting = Setting(
        cluster=Cluster.uniform(("gpu", GPUS * 32, GPUS)),
        failures=failures_by_name(spec),
        seed=seed,
        costs=Costs(restart_s=RESTART_S, checkpoint_interval_s=3600.0, checkpoint_write_s=60.0),
    )
    return simulate(Workload(submissions=submitted, source="", format=""), "fifo", setting)


def spares(seeds: int, rates: Sequence[float] = (6.5, 25.0, 50.0, 100.0)) -> None:
    """What spares cost and bring: a gang on 29 of 32 nodes beside a queue of small jobs that take every free node."""
    print(
        "\n| failures per 1000 node-days | spares | ETTR of the gang | hours until it ends | goodput of the cluster |"
    )
    print("|---|---|---|---|---|")
    for rate, count in itertools.product(rates, (0, 1, 2)):
        ettr, hours, goodput = [], [], []
        for seed in range(seeds):
            result = with_gang(29, 20, f"rsc-1:rate={rate},repair_s=43200,spares={count}", seed, 700)
            assert result.failures is not None
            row = result.history.jobs[0]
            ettr.append(row.ideal_s / ((row.end_s or 0.0) - (row.start_s or 0.0)))
            hours.append((row.end_s or 0.0) / 3600)
            goodput.append(result.failures.goodput or 0.0)
        shown = f"{statistics.mean(ettr):.3f} | {statistics.mean(hours):.0f} | {statistics.mean(goodput):.3f}"
        print(f"| {rate:g} | {count} | {shown} |", flush=True)


def proven(seeds: int) -> None:
    """What it brings that a gang on 20 of 32 nodes avoids nodes that were repaired a short time ago."""
    print("\n| nodes | unproven (days) | failures of the gang | ETTR of the gang |")
    print("|---|---|---|---|")
    kinds = {
        "all alike": "",
        "a tenth fails 10 times as often": ",lemons=0.1,lemon_factor=10",
        "5 times as often after a repair, decaying in 3 days": f",infant=5,infant_s={3 * DAY_S:g}",
    }
    for name, days in itertools.product(kinds, (0, 1, 7)):
        failures, ettr = [], []
        for seed in range(seeds):
            spec = f"rsc-1:rate=50,repair_s=43200,proven_s={days * DAY_S:g}{kinds[name]}"
            result = with_gang(20, 60, spec, seed, 0)
            assert result.failures is not None
            row = result.history.jobs[0]
            failures.append(float(result.failures.interruptions))
            ettr.append(row.ideal_s / ((row.end_s or 0.0) - (row.start_s or 0.0)))
        print(f"| {name} | {days} | {statistics.mean(failures):.1f} | {statistics.mean(ettr):.3f} |", flush=True)


def main(seeds: int) -> None:
    few = max(seeds // 4, 2)
    formula(few)
    intervals(few)
    times_to_failure(seeds)
    llama_3(seeds)
    blind(few)
    spares(seeds)
    proven(seeds)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
