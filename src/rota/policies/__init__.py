"""The published policies. This module is the table of names, and what a policy of one's own imports.

Adding a policy is one line in `BUILT_IN`; other packages add theirs through the entry point group
`rota.policies`. Modules are imported when their policy is asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.metadata import entry_points
from pathlib import Path

from rota.core.errors import RotaError, did_you_mean
from rota.core.state.job_record import JobView
from rota.mechanisms.declare import DeclaredPolicy, Traits, ordering
from rota.mechanisms.ordering.rule import Backfill, Turn

__all__ = [
    "BUILT_IN",
    "Backfill",
    "DeclaredPolicy",
    "JobView",
    "Traits",
    "Turn",
    "find_policy",
    "names",
    "ordering",
]

BUILT_IN = {
    "fifo": "rota.policies.published.ordering.fifo:first_in_first_out",
    "easy": "rota.policies.published.ordering.easy:easy_backfill",
    "fewest-gpus": "rota.policies.published.ordering.shortest:fewest_gpus",
    "srtf": "rota.policies.published.ordering.shortest:shortest_remaining_time",
    "srsf": "rota.policies.published.ordering.shortest:shortest_remaining_service",
    "las": "rota.policies.published.ordering.las:least_attained_service",
    "gittins": "rota.policies.published.ordering.gittins:gittins_index",
    "tiresias": "rota.policies.published.ordering.tiresias:tiresias",
    "e-las": "rota.policies.published.ordering.elas:epoch_aware_attained_service",
    "priority": "rota.policies.published.ordering.priority:highest_priority",
    "drf": "rota.policies.published.ordering.drf:dominant_resource_fairness",
    "fair-share": "rota.policies.published.ordering.fair_share:fair_share",
    "capacity": "rota.policies.published.ordering.capacity:capacity_queues",
    "themis": "rota.policies.published.selection.themis:themis",
    "allox": "rota.policies.published.selection.allox:allox",
    "gandiva-fair": "rota.policies.published.selection.gandiva_fair:gandiva_fair",
    "shockwave": "rota.policies.published.rounds.shockwave:shockwave",
}
_GAVEL = {
    "fifo": ("fifo", "fifo_perf", "fifo_packed"),
    "isolated": ("isolated",),
    "gandiva": ("gandiva",),
    "allox": ("allox",),
    "max_min": ("max_min_fairness", "max_min_fairness_perf", "max_min_fairness_packed"),
    "water_filling": (
        "max_min_fairness_water_filling_perf",
        "max_min_fairness_water_filling_packed",
        "hierarchical",
    ),
    "strategy_proof": ("max_min_fairness_strategy_proof_perf",),
    "makespan": ("min_total_duration", "min_total_duration_perf", "min_total_duration_packed"),
    "finish_time": ("finish_time_fairness", "finish_time_fairness_perf", "finish_time_fairness_packed"),
    "throughput": (
        "shortest_job_first_perf",
        "max_sum_throughput_perf",
        "max_sum_throughput_normalized_by_cost_perf",
        "max_sum_throughput_normalized_by_cost_perf_SLOs",
        "max_sum_throughput_normalized_by_cost_packed_SLOs",
    ),
}
BUILT_IN |= {
    f"gavel/{name}": f"rota.policies.published.gavel.{module}:{name.lower()}"
    for module, names_ in _GAVEL.items()
    for name in names_
}
BUILT_IN |= {
    "afs-l": "rota.policies.published.elastic.afs:afs_l",
    "afs-p": "rota.policies.published.elastic.afs:afs_p",
    "elasticflow": "rota.policies.published.elastic.elasticflow:elasticflow",
    "optimus": "rota.policies.published.elastic.optimus:optimus",
    "pollux": "rota.policies.published.elastic.pollux:pollux",
    "sia": "rota.policies.published.elastic.sia:sia",
    "ursa": "rota.policies.published.elastic.ursa:ursa",
    "perotin": "rota.policies.published.elastic.perotin:perotin",
}

BUILT_IN |= {
    "gandiva": "rota.policies.published.colocation.gandiva:gandiva",
    "antman": "rota.policies.published.colocation.antman:antman",
    "kubeshare": "rota.policies.published.colocation.kubeshare:kubeshare",
    "salus": "rota.policies.published.colocation.salus:salus",
    "olympian": "rota.policies.published.colocation.olympian:olympian",
    "lucid": "rota.policies.published.colocation.lucid:lucid",
    "muri": "rota.policies.published.colocation.muri:muri",
    "horus": "rota.policies.published.colocation.horus:horus",
    "liquid": "rota.policies.published.colocation.liquid:liquid",
    "liquid-batch": "rota.policies.published.colocation.liquid:liquid_batch",
    "harmony": "rota.policies.published.learned.harmony:harmony",
}

_ENTRY_POINTS = "rota.policies"


def names() -> list[str]:
    """All policies that can be named: the built-in ones, then those of other packages."""
    others = sorted(point.name for point in entry_points(group=_ENTRY_POINTS) if point.name not in BUILT_IN)
    return [*BUILT_IN, *others]


def find_policy(spec: str) -> tuple[DeclaredPolicy, str]:
    """The policy that `NAME[:options]` or `FILE.py:FUNCTION[:options]` means, and its options."""
    head, _, rest = spec.partition(":")
    if head.endswith(".py"):
        function, _, options = rest.partition(":")
        return _from_file(Path(head), function), options
    return _by_name(head), rest


def _by_name(name: str) -> DeclaredPolicy:
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        declared = getattr(importlib.import_module(module), attribute)
    else:
        points = [point for point in entry_points(group=_ENTRY_POINTS) if point.name == name]
        if not points:
            raise RotaError(f"unknown policy {name!r}; {did_you_mean(name, names())}")
        declared = points[0].load()
    assert isinstance(declared, DeclaredPolicy)
    return declared


def _from_file(path: Path, function: str) -> DeclaredPolicy:
    if not function:
        raise RotaError(f"policy file {path}: say which function, as {path}:FUNCTION")
    if not path.is_file():
        raise RotaError(f"policy file {path}: there is no such file")
    module_spec = importlib.util.spec_from_file_location(f"rota_policy_{path.stem}", path)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_spec.name] = module
    try:
        module_spec.loader.exec_module(module)
    except RotaError:
        raise
    except Exception as err:  # a user's file may raise anything
        raise RotaError(f"policy file {path}: it can't be loaded: {type(err).__name__}: {err}") from err
    declared = getattr(module, function, None)
    if declared is None:
        known = [name for name, value in vars(module).items() if isinstance(value, DeclaredPolicy)]
        raise RotaError(f"policy file {path}: it has no {function!r}; {did_you_mean(function, known)}")
    if not isinstance(declared, DeclaredPolicy):
        raise RotaError(f"policy file {path}: {function!r} is not a policy; put @ordering(...) above it")
    return declared
