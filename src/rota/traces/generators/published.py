"""Workloads with the statistics of published ones: Microsoft's Philly, Gavel's generator, Alibaba's pods of 2023."""

from __future__ import annotations

import math
from random import Random

from rota.core.model.job import DEFAULT_TENANT, OPPORTUNISTIC
from rota.traces.generators.arrivals import diurnal, poisson, starting_at
from rota.traces.generators.planned import Campaign, Planned, WorkloadKind, cut_short, seconds
from rota.traces.workload import Outcome

# Public Philly trace (github.com/msr-fiddle/philly-traces, flat form of 82,247 jobs): share of jobs by size,
# and median and mean run time in seconds among jobs of that size, which fix a log-normal distribution.
PHILLY_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
PHILLY_SHARES = (0.9317, 0.0222, 0.0228, 0.0200, 0.0024, 0.0008, 0.00007, 0.00003)
PHILLY_RUN_S = {
    1: (1_117, 8_300),
    2: (21, 30_900),
    4: (17_400, 78_800),
    8: (23_700, 129_800),
    16: (52_500, 127_000),
    32: (14_300, 29_900),
    64: (1_400, 5_900),
    128: (3_500, 4_000),
}
PHILLY_LONGEST_S = 4.6e6

# Jobs by virtual cluster in the same trace: 15 of them, half of the jobs in one.
PHILLY_TENANTS = (
    (0.5012, 0.1956, 0.1210, 0.0903, 0.0235, 0.0184, 0.0174, 0.0138, 0.0088, 0.0051, 0.0045)
    + (0.0001,) * 4
)  # fmt: skip

# Jeon et al., USENIX ATC 2019, table 6: how jobs ended (passed, killed, unsuccessful).
PHILLY_OUTCOMES = (Outcome.SUCCEEDED, Outcome.CANCELLED, Outcome.FAILED)
PHILLY_OUTCOME_SHARES = (0.693, 0.135, 0.172)

USERS_PER_TENANT = 20
"""Our assumption: the flat trace names no users."""

# Narayanan et al., OSDI 2020, section 7.1 and its generator: 10^u minutes with u uniform in (1.5, 3) for
# four jobs of five and in (3, 4) for the rest; devices per job with these probabilities.
GAVEL_LONG = 0.2
GAVEL_SIZES = (1, 2, 4, 8)
GAVEL_SHARES = (0.70, 0.10, 0.15, 0.05)


# Weng et al., USENIX ATC 2023, table 1: share of tasks by the GPUs that they ask for; those that ask for none are left
# out. Which parts of a GPU they ask for, and of which class they are, are the most frequent in the public list
# (github.com/alibaba/clusterdata, cluster-trace-gpu-v2023): single GPUs and more are latency-sensitive but for a few.
ALIBABA_SIZES = (0.0, 1.0, 2.0, 4.0, 8.0)
ALIBABA_SHARES = (0.378, 0.480, 0.002, 0.002, 0.005)
ALIBABA_PARTS = {"BE": (0.81, 0.81, 0.81, 0.47, 0.47, 0.32, 0.32, 0.22, 0.16), "LS": (0.47, 0.65, 0.46)}
ALIBABA_BEST_EFFORT = {0.0: 0.6}
"""Share of best-effort tasks by size; of those that do not stand here, `ALIBABA_FEW`."""
ALIBABA_FEW = 0.05
ALIBABA_BURSTABLE = 0.03
ALIBABA_RUN_S = (1_500, 9_000)
"""Median and mean run time; our reading of the list, in which runs take from seconds to months."""
ALIBABA_LONGEST_S = 1e6


def _log_normal(median: float, mean: float) -> tuple[float, float]:
    """Mean and deviation of the logarithm of a log-normal quantity with this median and mean."""
    return math.log(median), math.sqrt(2 * math.log(mean / median))


PHILLY_LOG_RUN_S = {gpus: _log_normal(*run_s) for gpus, run_s in PHILLY_RUN_S.items()}


def _philly(rng: Random, jobs: int) -> list[Campaign]:
    sizes = rng.choices(PHILLY_SIZES, PHILLY_SHARES, k=jobs)
    tenants = rng.choices(range(len(PHILLY_TENANTS)), PHILLY_TENANTS, k=jobs)
    outcomes = rng.choices(PHILLY_OUTCOMES, PHILLY_OUTCOME_SHARES, k=jobs)
    campaigns: list[Campaign] = []
    for gpus, tenant, outcome in zip(sizes, tenants, outcomes, strict=True):
        run_s = seconds(min(rng.lognormvariate(*PHILLY_LOG_RUN_S[gpus]), PHILLY_LONGEST_S))
        ends_at = 1.0 if outcome is Outcome.SUCCEEDED else rng.uniform(0.1, 1.0)
        work, ends_at = cut_short(run_s, ends_at)
        name = f"vc{tenant + 1:02d}"
        user = f"{name}-u{int(USERS_PER_TENANT * rng.random() ** 2):02d}"
        campaigns.append([Planned(gpus=gpus, work=work, tenant=name, user=user, outcome=outcome, ends_at=ends_at)])
    return campaigns


def _gavel(rng: Random, jobs: int) -> list[Campaign]:
    sizes = rng.choices(GAVEL_SIZES, GAVEL_SHARES, k=jobs)
    campaigns: list[Campaign] = []
    for gpus in sizes:
        exponent = rng.uniform(3.0, 4.0) if rng.random() < GAVEL_LONG else rng.uniform(1.5, 3.0)
        campaigns.append([Planned(gpus=gpus, work=seconds(60 * 10**exponent), tenant=DEFAULT_TENANT)])
    return campaigns


def _alibaba(rng: Random, jobs: int) -> list[Campaign]:
    campaigns: list[Campaign] = []
    for size in rng.choices(ALIBABA_SIZES, ALIBABA_SHARES, k=jobs):
        qos = "BE" if rng.random() < ALIBABA_BEST_EFFORT.get(size, ALIBABA_FEW) else "LS"
        gpus = size or rng.choice(ALIBABA_PARTS[qos])
        if size and qos == "LS" and rng.random() < ALIBABA_BURSTABLE:
            qos = "Burstable"
        run_s = seconds(min(rng.lognormvariate(*_log_normal(*ALIBABA_RUN_S)), ALIBABA_LONGEST_S))
        asked = Planned(
            gpus=gpus,
            work=run_s,
            tenant=DEFAULT_TENANT,
            labels=(("qos", qos),),
            is_pod=True,
            priority=OPPORTUNISTIC if qos == "BE" else 0,
        )
        campaigns.append([asked])
    return campaigns


PHILLY_LIKE = WorkloadKind(
    name="philly-like",
    description="mostly one GPU, heavy-tailed runs, 15 uneven tenants, day and night; 3 in 10 end badly",
    draw=_philly,
    place=starting_at(diurnal),
)
GAVEL_LIKE = WorkloadKind(
    name="gavel-like",
    description="run times of half an hour to a week, 1 to 8 GPUs, Poisson arrivals, all succeed",
    draw=_gavel,
    place=starting_at(poisson),
)
ALIBABA_LIKE = WorkloadKind(
    name="alibaba-like",
    description="pods of Alibaba's list of 2023: 4 in 10 ask for part of a GPU, best-effort ones are opportunistic",
    draw=_alibaba,
    place=starting_at(poisson),
)
