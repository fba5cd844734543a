"""Workloads with the statistics of published ones: Microsoft's Philly and Gavel's generator."""

from __future__ import annotations

import math
from random import Random

from rota.core.model import DEFAULT_TENANT
from rota.traces.generators.arrivals import diurnal, poisson, starting_at
from rota.traces.generators.planned import Campaign, Kind, Planned, cut_short, seconds
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


PHILLY_LIKE = Kind(
    name="philly-like",
    description="mostly one GPU, heavy-tailed runs, 15 uneven tenants, day and night; 3 in 10 end badly",
    draw=_philly,
    place=starting_at(diurnal),
)
GAVEL_LIKE = Kind(
    name="gavel-like",
    description="run times of half an hour to a week, 1 to 8 GPUs, Poisson arrivals, all succeed",
    draw=_gavel,
    place=starting_at(poisson),
)
