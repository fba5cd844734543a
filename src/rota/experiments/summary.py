"""Results as tables: each policy with intervals, its differences from the baseline, and ranks across workloads."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rota.experiments.comparison_notes import GROUP
from rota.experiments.results_folder import JOBS
from rota.experiments.run_point import ASSUMED_FACTS
from rota.experiments.statistics import (
    Interval,
    PairedDifference,
    RankComparison,
    compare_ranks,
    holm,
    mean_interval,
    paired,
    tail_interval,
)
from rota.report.named_metrics import USUAL, Direction, MetricUnit, NamedMetric, find_metrics
from rota.report.user_metrics import user_metrics
from rota.scenario import Experiment

if TYPE_CHECKING:
    import polars

_DECIDED = ("avg_jct_s", "makespan_s", "avg_wait_s", "preemptions", "events", "jobs")
"""By what runs are told apart: figures that no two different workloads or decisions have in common."""
ENOUGH_SEEDS = 5
"""Student's factor for two seeds is 12.7, for five it is 2.8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySummary:
    """One policy on one workload and load: each metric over the seeds."""

    group: tuple[Any, ...]
    policy: str
    seeds: int
    values: Mapping[str, Interval]
    against: Mapping[str, PairedDifference]
    """Each metric against the baseline's on the same workloads."""
    has_caveat: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentSummary:
    """All that tables and figures show."""

    experiment: Experiment
    metrics: tuple[NamedMetric, ...]
    rows: tuple[PolicySummary, ...]
    ranks: Mapping[str, RankComparison]
    """By metric, over all workloads and seeds, each the mean of its loads."""
    overall: Mapping[str, Mapping[str, PairedDifference]]
    """By metric and policy: against the baseline over all workloads and seeds, each the mean of its loads."""
    p_values: Mapping[str, Mapping[str, float | None]]
    """Of those comparisons, corrected for their number."""
    notes: tuple[tuple[str, tuple[str, ...]], ...]
    """Sentences that a reader must know, each with the policies that it is about."""
    runs: int


def summarise(experiment: Experiment, table: polars.DataFrame, out: Path) -> ExperimentSummary:
    """The summary of an experiment's rows; `out` holds the jobs of its runs."""
    metrics = (*find_metrics(experiment.metrics or USUAL), *_own_metrics(experiment))
    records, repeated = _distinct(table.to_dicts())
    rows = _rows(experiment, metrics, records, out)
    overall = {metric.name: _overall(experiment, metric.name, records) for metric in metrics}
    return ExperimentSummary(
        experiment=experiment,
        metrics=metrics,
        rows=tuple(rows),
        ranks={metric.name: found for metric in metrics if (found := _ranks(experiment, metric, records)) is not None},
        overall=overall,
        p_values={
            name: dict(zip(found, holm([pair.p_value for pair in found.values()]), strict=True))
            for name, found in overall.items()
        },
        notes=(
            *repeated,
            *_unknown(metrics, records),
            *_few(rows),
            *_overlaps(experiment, records),
            *_notes(experiment, records),
        ),
        runs=table.height,
    )


def _own_metrics(experiment: Experiment) -> tuple[NamedMetric, ...]:
    """The user's own metrics, as columns of the rows."""
    return tuple(
        NamedMetric(
            name=metric.name,
            title=metric.name.replace("_", " "),
            formula=f"by {metric.name} of the user",
            unit=MetricUnit.RATIO,
            better=Direction.NONE,
            of=lambda run: None,
            least=-math.inf,
        )
        for metric in user_metrics(experiment.own_metrics)
    )


Note = tuple[str, tuple[str, ...]]


def _distinct(records: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], list[Note]]:
    """The runs without those of seeds that changed nothing, and a sentence about these.

    A trace file that is used whole is the same for every seed: its runs are one, and not evidence of anything.
    """
    runs: dict[tuple[Any, ...], dict[int, list[Mapping[str, Any]]]] = {}
    for record in records:
        group = tuple(record[name] for name in GROUP)
        runs.setdefault(group, {}).setdefault(record["seed"], []).append(record)
    found: list[Mapping[str, Any]] = []
    repeated: dict[str, int] = {}
    for (trace, *_), by_seed in runs.items():
        seen: set[tuple[Any, ...]] = set()
        for of_seed in by_seed.values():
            same = tuple(sorted((run["policy"], *(run[name] for name in _DECIDED)) for run in of_seed))
            if same in seen:
                repeated[trace] = repeated.get(trace, 0) + 1
            else:
                seen.add(same)
                found += of_seed
    return found, [
        (
            f"seeds have no effect on {trace}: {count:,} repetitions with equal figures are left out of means and "
            "comparisons; for several workloads choose windows with `jobs`, or a generated trace",
            (),
        )
        for trace, count in repeated.items()
    ]


def _unknown(metrics: Sequence[NamedMetric], records: Sequence[Mapping[str, Any]]) -> list[Note]:
    """A sentence about each metric that was asked for and that no run has."""
    return [
        (f"{metric.title} is not known for any run and left out: {metric.formula}", ())
        for metric in metrics
        if records and all(record[metric.name] is None for record in records)
    ]


def _few(rows: Sequence[PolicySummary]) -> list[Note]:
    """A sentence about seeds that are too few for intervals to say much."""
    fewest = min((row.seeds for row in rows if row.seeds > 1), default=ENOUGH_SEEDS)
    if fewest >= ENOUGH_SEEDS:
        return []
    return [(f"intervals over {fewest} seeds are wide; {ENOUGH_SEEDS} or more tell policies apart sooner", ())]


def _overlaps(experiment: Experiment, records: Sequence[Mapping[str, Any]]) -> list[Note]:
    """A sentence about the windows of each trace file that can't but overlap."""
    seeds: dict[tuple[str, int], set[int]] = {}
    for record in records:
        if experiment.jobs is not None and record.get("jobs_in_file"):
            seeds.setdefault((record["trace"], record["jobs_in_file"]), set()).add(record["seed"])
    return [
        (
            f"{len(each)} windows of {experiment.jobs:,} jobs overlap in {trace} with {total:,}: their runs are not "
            "independent, and intervals and p-values are too small",
            (),
        )
        for (trace, total), each in seeds.items()
        if experiment.jobs is not None and experiment.jobs < total < len(each) * experiment.jobs
    ]


def _rows(
    experiment: Experiment, metrics: Sequence[NamedMetric], records: Sequence[Mapping[str, Any]], out: Path
) -> list[PolicySummary]:
    groups: dict[tuple[Any, ...], dict[str, list[Mapping[str, Any]]]] = {}
    for record in records:
        group = tuple(record[name] for name in GROUP)
        groups.setdefault(group, {}).setdefault(record["policy"], []).append(record)
    found = []
    for group, by_policy in groups.items():
        base = {record["seed"]: record for record in by_policy.get(experiment.reference, [])}
        for policy, runs in by_policy.items():
            values = {metric.name: _interval(metric, runs, out) for metric in metrics}
            against = {} if policy == experiment.reference else {m.name: _against(m.name, runs, base) for m in metrics}
            found.append(
                PolicySummary(
                    group=group,
                    policy=policy,
                    seeds=len(runs),
                    values={name: value for name, value in values.items() if value is not None},
                    against={name: pair for name, pair in against.items() if pair is not None},
                    has_caveat=any(run["is_caveat"] for run in runs),
                )
            )
    return found


def _interval(metric: NamedMetric, runs: Sequence[Mapping[str, Any]], out: Path) -> Interval | None:
    values = [run[metric.name] for run in runs if run[metric.name] is not None]
    if not values:
        return None
    if not metric.tail:
        return mean_interval(values).within(metric.least, metric.most)
    return tail_interval([_jobs(out, run["key"], metric.tail) for run in runs], metric.quantile)


def _jobs(out: Path, key: str, column: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    import polars as pl

    found = pl.read_parquet(out / JOBS / f"{key}.parquet", columns=[column])[column].cast(pl.Float64)
    return found.fill_null(math.nan).to_numpy()


def _against(
    name: str, runs: Sequence[Mapping[str, Any]], base: Mapping[int, Mapping[str, Any]]
) -> PairedDifference | None:
    pairs = [(run[name], base[run["seed"]][name]) for run in runs if run["seed"] in base]
    pairs = [(ours, theirs) for ours, theirs in pairs if ours is not None and theirs is not None]
    return paired([ours for ours, _ in pairs], [theirs for _, theirs in pairs]) if pairs else None


def _by_workload(name: str, records: Sequence[Mapping[str, Any]]) -> dict[str, dict[tuple[Any, ...], float]]:
    """By policy and workload, the mean over loads: the loads of one seed have the same jobs, so they count once."""
    values: dict[str, dict[tuple[Any, ...], list[float]]] = {}
    for record in records:
        if record[name] is not None:
            where = (record["trace"], record["cluster"], record["variant"], record["seed"])
            values.setdefault(record["policy"], {}).setdefault(where, []).append(record[name])
    most = max((len(loads) for each in values.values() for loads in each.values()), default=0)
    return {
        policy: {where: math.fsum(loads) / most for where, loads in each.items() if len(loads) == most}
        for policy, each in values.items()
    }


def _overall(experiment: Experiment, name: str, records: Sequence[Mapping[str, Any]]) -> dict[str, PairedDifference]:
    values = _by_workload(name, records)
    base = values.get(experiment.reference, {})
    found = {}
    for policy in experiment.policies:
        common = [where for where in values.get(policy, {}) if where in base]
        if policy != experiment.reference and common:
            found[policy] = paired([values[policy][where] for where in common], [base[where] for where in common])
    return found


def _ranks(experiment: Experiment, metric: NamedMetric, records: Sequence[Mapping[str, Any]]) -> RankComparison | None:
    values = _by_workload(metric.name, records)
    if metric.better is Direction.NONE or not all(policy in values for policy in experiment.policies):
        return None
    common = [where for where in values[experiment.reference] if all(where in each for each in values.values())]
    if not common or len(values) < 2:
        return None
    return compare_ranks(
        {policy: [values[policy][where] for where in common] for policy in experiment.policies},
        low_is_best=metric.better is Direction.LOW,
    )


def _notes(experiment: Experiment, records: Sequence[Mapping[str, Any]]) -> list[Note]:
    """Each sentence once, with the policies whose runs carry it; where it is not all of their runs, how many."""
    shows_cost = bool({"energy_kwh", "cost_usd"} & set(experiment.metrics))
    runs: dict[str, int] = {}
    count: dict[str, dict[str, int]] = {}
    named: set[str] = set()
    for record in records:
        policy = record["policy"]
        runs[policy] = runs.get(policy, 0) + 1
        for code, text in json.loads(record["notes"]):
            if code == ASSUMED_FACTS and not shows_cost:
                continue
            said = text.removeprefix(f"{policy}: ")
            if said != text:
                named.add(said)
            by_policy = count.setdefault(said, {})
            by_policy[policy] = by_policy.get(policy, 0) + 1
    found: list[Note] = []
    for text, by_policy in count.items():
        some, every = sum(by_policy.values()), sum(runs[policy] for policy in by_policy)
        is_of_all = len(by_policy) == len(experiment.policies) and text not in named
        found.append(
            (text if some == every else f"{text} ({some:,} of {every:,} runs)", () if is_of_all else tuple(by_policy))
        )
    return found


def note_lines(summary: ExperimentSummary) -> list[str]:
    """The notes as sentences that begin with the policies that they are about."""
    return [f"{', '.join(about)}: {text}" if about else text for text, about in summary.notes]
