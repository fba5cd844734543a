"""The runs of an experiment: a point is one run, a setting is what all policies of a comparison share."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rota.core.errors import RotaError
from rota.scenario import Experiment

FORMAT = 1
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
        "own_metrics": {spec: _digest(spec.partition(".py:")[0] + ".py") for spec in experiment.own_metrics},
        "policies": sorted(experiment.policies) if _leaves_out(experiment.options) else None,
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
    named = [setting.trace, setting.cluster, policy.partition(".py:")[0] + ".py" if ".py:" in policy else ""]
    named += [str(options[name]) for name in ("profiles", "faults") if options.get(name)]
    named += [str(options["network"]).partition(":")[0]] if options.get("network") else []
    content = {
        **shared,
        "trace": setting.trace,
        "cluster": setting.cluster,
        "load": setting.load,
        "seed": setting.seed,
        "policy": policy,
        "options": options,
        "files": [_digest(name) for name in named],
    }
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


@cache
def _digest(name: str) -> str | None:
    """The digest of a file; None for a name that is no file."""
    path = Path(name)
    if not name or not path.is_file():
        return None
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise RotaError(f"{path}: {error.strerror}; check whether you may read it") from error
