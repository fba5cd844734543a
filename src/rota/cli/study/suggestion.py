"""Which policy suits a workload and a cluster: what each assumes, whether that holds, and a comparison by simulation.

A policy takes part if its assumptions hold. Each is simulated on consecutive windows of the workload, so that its
figures come with intervals. Of the policies that are about as fair as the fairest, the fastest is recommended.
"""

from __future__ import annotations

import heapq
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from rota.core.model.job import DEFAULT_TENANT
from rota.drivers.simulator.study import Setting, simulate
from rota.policies.own.predictions import RIGHT, GroupPredictor, alike
from rota.report.metrics import finish_time_fairness, measure, quantile
from rota.traces.workload import Submission, Workload

MOST = 0.5
"""A property of jobs holds if this fraction of them has it."""
CHEAP = 0.1
"""Preemption is cheap if a restart takes at most this fraction of the mean run time."""
FAIR_P99 = 2.0
"""A policy is fair if its p99 of finish-time fairness is at most this."""
ABOUT = 1.2
"""Or at most this many times that of the fairest."""
T_95 = (math.inf, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
"""Student's t for a 95% interval, by degrees of freedom."""


class PolicyAssumption(Enum):
    """What a policy takes for granted."""

    DURATIONS = "run times are known"
    PREDICTABLE = "run times follow from earlier jobs"
    PREEMPTION = "a restart costs little"
    TYPES = "device types differ"
    ELASTIC = "jobs are elastic"
    DEADLINES = "jobs have deadlines"
    OWNERS = "several tenants or users"


CANDIDATES: Mapping[str, tuple[PolicyAssumption, ...]] = {
    "rota": (PolicyAssumption.PREEMPTION,),
    "fifo": (),
    "easy": (PolicyAssumption.DURATIONS,),
    "srsf": (PolicyAssumption.DURATIONS, PolicyAssumption.PREEMPTION),
    "las:rule=geometric": (PolicyAssumption.PREEMPTION,),
    "tiresias": (PolicyAssumption.PREEMPTION,),
    "gittins:censored=true": (PolicyAssumption.PREEMPTION,),
    "themis": (PolicyAssumption.DURATIONS, PolicyAssumption.PREEMPTION),
    "capacity": (PolicyAssumption.OWNERS,),
    "fair-share": (PolicyAssumption.OWNERS,),
    "lucid": (PolicyAssumption.PREDICTABLE,),
    "gavel/max_min_fairness_perf:compat=none": (PolicyAssumption.TYPES, PolicyAssumption.PREEMPTION),
    "afs-p": (PolicyAssumption.ELASTIC, PolicyAssumption.PREEMPTION),
    "pollux": (PolicyAssumption.ELASTIC, PolicyAssumption.PREEMPTION),
    "sia": (PolicyAssumption.ELASTIC, PolicyAssumption.PREEMPTION),
    "elasticflow": (PolicyAssumption.ELASTIC, PolicyAssumption.DEADLINES),
}
"""Policies that are compared, one or two of each kind, with what they assume."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Whether an assumption holds, and the figure that says so."""

    assumption: PolicyAssumption
    holds: bool
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One policy over all windows."""

    policy: str
    jct_s: float
    p99_ftf: float
    worst_ftf: float
    over_best: float
    """Mean over windows of its completion time over the shortest there."""
    margin: float
    """Half the width of the 95% interval of that mean; infinite for a single window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """Findings, the compared policies from the shortest completion time on, and the recommended one with reasons."""

    findings: tuple[Finding, ...]
    excluded: Mapping[str, str]
    compared: tuple[Comparison, ...]
    recommended: str
    reasons: tuple[str, ...]


def suggest(
    workload: Workload,
    setting: Setting,
    *,
    windows: int,
    progress: Callable[[str], None] | None = None,
) -> Suggestion:
    """Compare the policies whose assumptions hold, and recommend one."""
    findings = find_out(workload, setting)
    failing = {finding.assumption: finding for finding in findings if not finding.holds}
    excluded = {
        policy: "; ".join(f"{need.value}: {failing[need].evidence}" for need in needs if need in failing)
        for policy, needs in CANDIDATES.items()
        if any(need in failing for need in needs)
    }
    taking_part = [policy for policy in CANDIDATES if policy not in excluded]
    compared = compare(workload, setting, taking_part, windows, progress)
    recommended, reasons = choose(compared)
    return Suggestion(findings=findings, excluded=excluded, compared=compared, recommended=recommended, reasons=reasons)


# -- assumptions ---------------------------------------------------------------------------------


def find_out(workload: Workload, setting: Setting) -> tuple[Finding, ...]:
    """Check every assumption on the jobs and the cluster."""
    jobs = [each.job for each in workload.submissions]
    declared = [job for job in jobs if job.estimate_s]
    right = [job for job in declared if job.work and abs(math.log((job.estimate_s or 1.0) / job.work)) <= RIGHT]
    predicted = _predictable(workload.submissions)
    mean_s = statistics.mean(job.work or 0.0 for job in jobs) if jobs else 0.0
    restart = setting.costs.restart_s / mean_s if mean_s else math.inf
    kinds = len(setting.cluster.devices_by_type)
    owners = len({(job.tenant, job.user) for job in jobs if job.user or job.tenant != DEFAULT_TENANT})

    def share(count: int, what: str) -> tuple[bool, str]:
        return count >= MOST * len(jobs) > 0, f"{count / max(len(jobs), 1):.0%} of jobs {what}"

    told = {
        PolicyAssumption.DURATIONS: share(len(right), "declare a run time that is right within a factor of 2"),
        PolicyAssumption.PREDICTABLE: share(
            predicted, "have a run time that earlier jobs predict within a factor of 2"
        ),
        PolicyAssumption.PREEMPTION: (restart <= CHEAP, f"a restart takes {restart:.1%} of the mean run time"),
        PolicyAssumption.TYPES: (kinds > 1, f"the cluster has {kinds} device type{'s' if kinds > 1 else ''}"),
        PolicyAssumption.ELASTIC: share(sum(job.elastic is not None for job in jobs), "are elastic"),
        PolicyAssumption.DEADLINES: share(sum(job.deadline_s is not None for job in jobs), "have a deadline"),
        PolicyAssumption.OWNERS: (owners > 1, f"{owners} owner{'' if owners == 1 else 's'}"),
    }
    return tuple(Finding(assumption=each, holds=told[each][0], evidence=told[each][1]) for each in PolicyAssumption)


def _predictable(submissions: Sequence[Submission]) -> int:
    """Count jobs whose run time was predicted when they were submitted, if all ran at once."""
    predictor = GroupPredictor()
    ends: list[tuple[float, str, float]] = []
    count = 0
    for each in submissions:
        while ends and ends[0][0] <= each.submit_s:
            _, group, took_s = heapq.heappop(ends)
            predictor.learn(group, took_s)
        work = each.job.work or 0.0
        expected = predictor.predict(alike(each.job))
        if expected and work and abs(math.log(expected / work)) <= RIGHT:
            count += 1
        if work:
            heapq.heappush(ends, (each.submit_s + work, alike(each.job), work))
    return count


# -- the comparison ------------------------------------------------------------------------------


def compare(
    workload: Workload,
    setting: Setting,
    policies: Sequence[str],
    windows: int,
    progress: Callable[[str], None] | None = None,
) -> tuple[Comparison, ...]:
    """Simulate each policy on each window of the workload."""
    parts = windows_of(workload, windows)
    runs: dict[str, list[tuple[float, float, float]]] = {}
    for policy in policies:
        if progress is not None:
            progress(policy)
        runs[policy] = [_measured(part, policy, setting) for part in parts]
    best = [min(run[at][0] for run in runs.values()) for at in range(len(parts))]
    rows = []
    for policy, run in runs.items():
        jct = [each[0] for each in run]
        over = [mine / least for mine, least in zip(jct, best, strict=True)]
        rows.append(
            Comparison(
                policy=policy,
                jct_s=statistics.mean(jct),
                p99_ftf=statistics.mean(each[1] for each in run),
                worst_ftf=max(each[2] for each in run),
                over_best=statistics.mean(over),
                margin=margin(over),
            )
        )
    return tuple(sorted(rows, key=lambda row: (row.over_best, row.policy)))


def windows_of(workload: Workload, windows: int) -> list[Workload]:
    """Cut a workload into consecutive windows of about as many jobs; dependencies across windows are dropped."""
    submissions = workload.submissions
    size = max(math.ceil(len(submissions) / windows), 1)
    parts = []
    for start in range(0, len(submissions), size):
        chosen = submissions[start : start + size]
        known = {each.job.id for each in chosen}
        kept = tuple(
            replace(
                each,
                submit_s=each.submit_s - chosen[0].submit_s,
                job=replace(each.job, depends_on=tuple(one for one in each.job.depends_on if one in known)),
            )
            for each in chosen
        )
        parts.append(replace(workload, submissions=kept))
    return parts


def _measured(workload: Workload, policy: str, setting: Setting) -> tuple[float, float, float]:
    """Return the mean completion time, and the p99 and the worst of finish-time fairness."""
    history = simulate(workload, policy, setting).history
    found = measure(history)
    ratios = sorted(ratio for ratio in finish_time_fairness(history).tolist() if not math.isnan(ratio))
    return found.avg_jct_s or 0.0, quantile(ratios, 0.99) or 1.0, ratios[-1] if ratios else 1.0


def margin(values: Sequence[float]) -> float:
    """Return half the width of a 95% interval of the mean; infinite for a single value."""
    if len(values) < 2:
        return math.inf
    t = T_95[min(len(values) - 1, len(T_95) - 1)]
    return t * statistics.stdev(values) / math.sqrt(len(values))


def choose(compared: Sequence[Comparison]) -> tuple[str, tuple[str, ...]]:
    """Return the fastest of the fair policies, and why."""
    fairest = min(compared, key=lambda row: (row.p99_ftf, row.policy))
    limit = max(FAIR_P99, ABOUT * fairest.p99_ftf)
    fair = [row for row in compared if row.p99_ftf <= limit]
    best = min(fair, key=lambda row: (row.over_best, row.policy))
    reasons = [
        f"its p99 of finish-time fairness is {best.p99_ftf:.2f} (limit {limit:.2f}, fairest {fairest.policy} "
        f"with {fairest.p99_ftf:.2f})",
        f"its mean completion time is {best.over_best:.2f} times the shortest of each window",
    ]
    faster = [row for row in compared if row.over_best < best.over_best]
    reasons += [f"{row.policy} is faster ({row.over_best:.2f}) but less fair (p99 {row.p99_ftf:.2f})" for row in faster]
    near = [row.policy for row in fair if row is not best and row.over_best <= 1.02 * best.over_best]
    if near:
        reasons.append(f"within 2% of it: {', '.join(near)}")
    return best.policy, tuple(reasons)
