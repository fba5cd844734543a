"""The patterns of which a cluster's day is made: sweeps, probes, retraining, failures, deadlines.

Numbers without a source are plain assumptions, chosen to make the pattern visible.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

from rota.traces.generators.arrivals import before_deadlines, diurnal, in_step, starting_at
from rota.traces.generators.planned import Campaign, Planned, WorkloadKind, seconds
from rota.traces.workload import Outcome

RESEARCH = ("research-a", "research-b", "research-c")
SIZES = (1, 2, 4, 8)
SMALL, LARGE = (0.75, 0.15, 0.08, 0.02), (0.35, 0.25, 0.25, 0.15)

# Asynchronous successive halving (Li et al., MLSys 2020) with a factor of 3: of nine trials, six stop at
# a ninth of the work, two at a third, and one goes to the end.
RUNGS = (1 / 9, 1 / 3, 1.0)
RUNG_SHARES = (6 / 9, 2 / 9, 1 / 9)


def _size(rng: Random, shares: tuple[float, ...]) -> int:
    return rng.choices(SIZES, shares)[0]


def _around(rng: Random, median_s: float, spread: float) -> float:
    """A log-normal duration."""
    return seconds(rng.lognormvariate(math.log(median_s), spread))


def _until(jobs: int, campaign: Callable[[int, int], Campaign]) -> list[Campaign]:
    """Campaigns, each drawn with its number and the jobs still to come, until all are drawn."""
    campaigns: list[Campaign] = []
    left = jobs
    while left:
        campaigns.append(campaign(len(campaigns), left))
        left -= len(campaigns[-1])
    return campaigns


def _sweeps(rng: Random, jobs: int) -> list[Campaign]:
    """8 to 128 alike trials within minutes, most of them stopped early."""

    def sweep(number: int, left: int) -> Campaign:
        trials = min(left, round(8 * 16 ** rng.random()))
        gpus, work_s = _size(rng, SMALL), _around(rng, 7200, 0.8)
        tenant, user = rng.choice(RESEARCH), f"u{rng.randrange(30):02d}"
        labels = (("sweep", str(number)),)
        rungs = rng.choices(RUNGS, RUNG_SHARES, k=trials)
        gap_s = rng.uniform(1, 5)
        return [
            Planned(
                gpus=gpus,
                work=_around(rng, work_s, 0.1),
                tenant=tenant,
                user=user,
                name=f"sweep-{number}-{trial}",
                outcome=Outcome.SUCCEEDED if rung == 1.0 else Outcome.CANCELLED,
                ends_at=rung,
                labels=labels,
                submit_s=trial * gap_s,
            )
            for trial, rung in enumerate(rungs)
        ]

    return _until(jobs, sweep)


PROBE_FAILS = 0.3


def _probes(rng: Random, jobs: int) -> list[Campaign]:
    """A probe of minutes, and the full run that waits for it; a probe that fails is not followed."""

    def trial(number: int, left: int) -> Campaign:
        tenant, user = rng.choice(RESEARCH), f"u{rng.randrange(30):02d}"
        gpus = _size(rng, LARGE)
        is_last = left == 1
        fails = rng.random() < PROBE_FAILS
        probe = Planned(
            gpus=1,
            work=seconds(rng.uniform(120, 900)),
            tenant=tenant,
            user=user,
            name=f"probe-{number}",
            outcome=Outcome.FAILED if fails else Outcome.SUCCEEDED,
            ends_at=rng.uniform(0.05, 0.9) if fails else 1.0,
            labels=(("stage", "probe"),),
        )
        if fails or is_last:
            return [probe]
        full = Planned(
            gpus=gpus,
            work=_around(rng, 8 * 3600, 0.9),
            tenant=tenant,
            user=user,
            name=f"full-{number}",
            labels=(("stage", "full"),),
            after=probe,
            submit_s=5.0,
        )
        return [probe, full]

    return _until(jobs, trial)


def _retraining(rng: Random, jobs: int) -> list[Campaign]:
    """Series of the same job in step; the data grows by one per cent from run to run."""

    def series(number: int, left: int) -> Campaign:
        runs = min(left, rng.randint(10, 40))
        gpus, work_s = _size(rng, LARGE), _around(rng, 3600, 0.7)
        return [
            Planned(
                gpus=gpus,
                work=seconds(work_s * 1.01**run * rng.uniform(0.95, 1.05)),
                tenant="production",
                user="pipeline",
                name=f"retrain-{number}",
                labels=(("series", str(number)), ("run", str(run))),
            )
            for run in range(runs)
        ]

    return _until(jobs, series)


# After the classes of Jeon et al., USENIX ATC 2019, section 4.2: mistakes of users end a job in its first
# minutes, and are the most; what infrastructure and training itself do can come at any time.
FAILURES = ("none", "import-error", "gpu-oom", "bad-input", "diverged", "node-fault", "time-limit")
FAILURE_SHARES = (0.40, 0.18, 0.12, 0.10, 0.08, 0.07, 0.05)


def _failures(rng: Random, jobs: int) -> list[Campaign]:
    """Jobs of which three in five fail, in six ways."""
    reasons = rng.choices(FAILURES, FAILURE_SHARES, k=jobs)
    return [[_failing(rng, reason)] for reason in reasons]


def _failing(rng: Random, reason: str) -> Planned:
    work = _around(rng, 3 * 3600, 1.2)
    ends_at, limit_s = _fails_at(rng, reason, work)
    return Planned(
        gpus=_size(rng, LARGE),
        work=work,
        tenant="teaching",
        user=f"u{rng.randrange(60):02d}",
        outcome=Outcome.SUCCEEDED if reason == "none" else Outcome.FAILED,
        ends_at=ends_at,
        labels=() if reason == "none" else (("failure", reason),),
        time_limit_s=limit_s,
    )


def _fails_at(rng: Random, reason: str, work: float) -> tuple[float, float | None]:
    """The fraction of its work at which such a job ends, and its time limit if that is the reason."""
    match reason:
        case "none":
            return 1.0, None
        case "import-error":
            return min(1.0, rng.uniform(5, 60) / work), None
        case "gpu-oom":
            return min(1.0, rng.uniform(60, 600) / work), None
        case "time-limit":
            ends_at = rng.uniform(0.5, 0.95)
            return ends_at, work * ends_at
        case _:
            return rng.uniform(0.02, 0.98), None


BACKGROUND = 0.3


def _deadlines(rng: Random, jobs: int) -> list[Campaign]:
    """Jobs that are due at a common date, and some that are not due at all."""
    return [
        [
            Planned(
                gpus=_size(rng, LARGE),
                work=_around(rng, 2 * 3600, 1.0),
                tenant=rng.choice(RESEARCH),
                user=f"u{rng.randrange(30):02d}",
                due_s=None if rng.random() < BACKGROUND else 0.0,
            )
        ]
        for _ in range(jobs)
    ]


SWEEP = WorkloadKind(
    name="sweep",
    description="hyper-parameter sweeps: bursts of alike trials, eight of nine stopped early",
    draw=_sweeps,
    place=starting_at(diurnal),
)
PROBE = WorkloadKind(
    name="probe",
    description="short probes, and full runs that wait for their probe to succeed",
    draw=_probes,
    place=starting_at(diurnal),
)
RETRAIN = WorkloadKind(
    name="retrain",
    description="production models trained again and again at equal distances",
    draw=_retraining,
    place=in_step,
)
FAILING = WorkloadKind(
    name="failures",
    description="jobs of which three in five fail: at once, out of memory, on the way, at their time limit",
    draw=_failures,
    place=starting_at(diurnal),
)
DEADLINES = WorkloadKind(
    name="deadlines",
    description="submissions that crowd before common deadlines",
    draw=_deadlines,
    place=before_deadlines,
)
