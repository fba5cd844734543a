"""Whether the job or the node is at fault: probabilities from what failed where.

A run fails if its job is faulty, if one of its nodes is, or by chance (noisy or). Each job and node has a probability
of being faulty, updated by all runs that are remembered: a job that fails on several nodes is the job's fault, a node
on which different jobs fail is the node's. The joint posterior is approximated by a few rounds of coordinate updates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rota.health.causes import Blame

JOB_PRIOR = 0.2
NODE_PRIOR = 0.01
HITS = 0.85
"""The probability that a run fails by a faulty job or node."""
CHANCE = 0.02
"""The probability that a run fails though nothing is faulty."""
ROUNDS = 12
_SIGN = 12.0
"""How much more likely the named party is to be at fault where the cause says so: a factor on the odds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """One run of a job: where it ran, whether it failed, and what its cause says."""

    job: str
    nodes: tuple[str, ...]
    failed: bool
    blame: Blame = Blame.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultOdds:
    """The probability of each job and node to be faulty."""

    jobs: Mapping[str, float] = field(default_factory=dict)
    nodes: Mapping[str, float] = field(default_factory=dict)


def fault_odds(runs: Sequence[RunEnd]) -> FaultOdds:
    """Weigh all remembered runs together."""
    jobs = dict.fromkeys((run.job for run in runs), JOB_PRIOR)
    nodes = dict.fromkeys((node for run in runs for node in run.nodes), NODE_PRIOR)
    of_job: dict[str, list[RunEnd]] = {name: [] for name in jobs}
    of_node: dict[str, list[RunEnd]] = {name: [] for name in nodes}
    for run in runs:
        of_job[run.job].append(run)
        for node in dict.fromkeys(run.nodes):
            of_node[node].append(run)
    for _ in range(ROUNDS):
        jobs = {name: _updated(JOB_PRIOR, _job_factors(of_job[name], nodes)) for name in jobs}
        nodes = {name: _updated(NODE_PRIOR, _node_factors(name, of_node[name], jobs, nodes)) for name in nodes}
    return FaultOdds(jobs=jobs, nodes=nodes)


def _updated(prior: float, log_factors: Sequence[float]) -> float:
    odds = math.log(prior / (1.0 - prior)) + sum(log_factors)
    return 1.0 / (1.0 + math.exp(-max(min(odds, 30.0), -30.0)))


def _job_factors(runs: Sequence[RunEnd], nodes: Mapping[str, float]) -> list[float]:
    """What each run of a job says; failures again on the same nodes say less than the first."""
    found, seen = [], set[tuple[str, ...]]()
    for run in runs:
        others = _survival(nodes[node] for node in run.nodes)
        weight = 0.3 if run.nodes in seen else 1.0
        seen.add(run.nodes)
        found.append(weight * _factor(run, others, Blame.JOB))
    return found


def _node_factors(
    name: str, runs: Sequence[RunEnd], jobs: Mapping[str, float], nodes: Mapping[str, float]
) -> list[float]:
    """What each run on a node says; of a job that fails there again and again, only the first counts in full."""
    found, seen = [], set[str]()
    for run in runs:
        others = _survival([jobs[run.job], *(nodes[node] for node in run.nodes if node != name)])
        weight = 0.1 if run.failed and run.job in seen else 1.0
        if run.failed:
            seen.add(run.job)
        found.append(weight * _factor(run, others, Blame.NODE))
    return found


def _survival(faulty: Iterable[float]) -> float:
    """The probability that a run survives all others that may be faulty, and chance."""
    left = 1.0 - CHANCE
    for probability in faulty:
        left *= 1.0 - HITS * probability
    return left


def _factor(run: RunEnd, others: float, me: Blame) -> float:
    """The logarithm of how much likelier a result is if this party is faulty."""
    if not run.failed:
        return math.log(1.0 - HITS)
    factor = math.log((1.0 - others * (1.0 - HITS)) / (1.0 - others))
    if run.blame is me:
        factor += math.log(_SIGN)
    elif run.blame in (Blame.JOB, Blame.NODE):
        factor -= math.log(_SIGN)
    return factor


SURE = 0.9
"""The probability from which a node is suspected for what failed on it."""
LEAST_JOBS, LEAST_OWNERS = 3, 2
"""So many different jobs, of so many owners, must have failed on a node that is suspected for it."""


def failing_nodes(
    runs: Sequence[RunEnd], owners: Mapping[str, str], odds: FaultOdds, among: Iterable[str]
) -> dict[str, str]:
    """Nodes on which jobs of several owners failed, if they rather than the jobs are at fault, and why, in words."""
    found = {}
    for name in among:
        jobs = {run.job for run in runs if run.failed and name in run.nodes}
        users = {owners.get(job, "") for job in jobs}
        if odds.nodes.get(name, 0.0) >= SURE and len(jobs) >= LEAST_JOBS and len(users) >= LEAST_OWNERS:
            found[name] = f"{len(jobs)} jobs of {len(users)} users failed here; at fault with {odds.nodes[name]:.0%}"
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class LemonCounters:
    """What was counted of a node in the last 28 days."""

    excluded_by_users: int = 0
    xids: int = 0
    tickets: int = 0
    out_of_service: int = 0
    single_node_failures: int = 0
    multi_node_failures: int = 0
    runs: int = 0

    @property
    def failure_rate(self) -> float:
        """Failures over runs."""
        return (self.single_node_failures + self.multi_node_failures) / self.runs if self.runs else 0.0


LEMON_SIGNS = 3
"""So many of the seven counters must stand out."""
_LEAST = {
    "excluded_by_users": 2.0,
    "xids": 3.0,
    "tickets": 2.0,
    "out_of_service": 2.0,
    "single_node_failures": 3.0,
    "multi_node_failures": 3.0,
    "failure_rate": 0.2,
}
"""What a counter must reach at least to stand out, however healthy the others are."""


def lemon_signs(counters: Mapping[str, LemonCounters]) -> dict[str, tuple[str, ...]]:
    """The counters of each node that stand out from all nodes: above the median by four median deviations."""
    signs: dict[str, list[str]] = {name: [] for name in counters}
    for counter, least in _LEAST.items():
        values = {name: float(getattr(each, counter)) for name, each in counters.items()}
        middle = _median(sorted(values.values()))
        spread = _median(sorted(abs(value - middle) for value in values.values()))
        bound = max(least, middle + 4.0 * spread)
        for name, value in values.items():
            if value >= bound and value > middle:
                signs[name].append(counter)
    return {name: tuple(found) for name, found in signs.items()}


def lemons(counters: Mapping[str, LemonCounters]) -> tuple[str, ...]:
    """The nodes of which several counters stand out."""
    return tuple(sorted(name for name, signs in lemon_signs(counters).items() if len(signs) >= LEMON_SIGNS))


def _median(values: Sequence[float]) -> float:
    if not values:
        return 0.0
    half = len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2.0
