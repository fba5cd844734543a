"""The runs of an experiment: a point is one run, a setting is what all policies of a comparison share."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rota.experiments.input_files import digests_of
from rota.scenario import Experiment

FORMAT = 2
"""Raised whenever the same input gives other results or columns, so that older rows are not taken for new ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridSetting:
    """One workload on one cluster under one set of options; all policies run on it."""

    trace: str
    cluster: str
    load: float | None
    seed: int
    variant: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GridPoint:
    """One run: a setting and a policy. `key` identifies it by all that determines its result."""

    setting: GridSetting
    policy: str
    key: str


def settings_of(experiment: Experiment) -> Iterator[GridSetting]:
    """All settings, those of one trace and cluster together."""
    for trace in experiment.traces:
        for cluster in experiment.clusters:
            for variant in experiment.variants:
                for load in experiment.loads:
                    for seed in experiment.seeds:
                        yield GridSetting(trace=trace, cluster=cluster, load=load, seed=seed, variant=variant)


def points_of(experiment: Experiment) -> list[GridPoint]:
    """All runs, with the policies of one setting next to each other."""
    shared = {
        "format": FORMAT,
        "jobs": experiment.jobs,
        "window": str(experiment.window),
        "own_metrics": {spec: digests_of(spec) for spec in experiment.own_metrics},
    }
    return [
        GridPoint(setting=setting, policy=policy, key=_key(experiment, setting, policy, shared))
        for setting in settings_of(experiment)
        for policy in experiment.policies
    ]


def _leaves_out(options: Mapping[str, Any]) -> bool:
    """Whether jobs may be left out, which depends on all policies together."""
    return bool(options.get("skip_oversized"))


def _key(experiment: Experiment, setting: GridSetting, policy: str, shared: Mapping[str, Any]) -> str:
    options = {**experiment.options, **experiment.variants[setting.variant]}
    content = {
        **shared,
        "policies": sorted(experiment.policies) if _leaves_out(options) else None,
        "trace": setting.trace,
        "cluster": setting.cluster,
        "load": setting.load,
        "seed": setting.seed,
        "policy": policy,
        "options": options,
        "files": digests_of([setting.trace, setting.cluster, policy, options]),
    }
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:20]
