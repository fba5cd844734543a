"""The table of policies, and all that a policy in a user's file imports.

Adding a policy is one line in `BUILT_IN`; other packages add theirs through the entry point group
`rota.policies`. Modules are imported when their policy, or a name for writing one, is asked for.
"""

from __future__ import annotations

import importlib
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from rota.core.errors import RotaError, did_you_mean
from rota.plugins import load_entry_point, load_from_file

if TYPE_CHECKING:
    from rota.core.messages.decisions import DecisionKind
    from rota.core.messages.reasons import Reason, ReasonCode
    from rota.core.model.job import DeviceType, Job
    from rota.core.state.job_record import JobView, LiveJob
    from rota.mechanisms.colocation.declare import colocation
    from rota.mechanisms.colocation.rule import DefaultColocationRule
    from rota.mechanisms.declare import DeclaredPolicy, Knowledge, Traits
    from rota.mechanisms.elastic.declare import elastic
    from rota.mechanisms.elastic.rule import Candidate, DefaultSizeRule, SizePlan, SizeQuestion, Target
    from rota.mechanisms.learned.declare import DefaultChooser, learned
    from rota.mechanisms.learned.heuristics import one_by_one
    from rota.mechanisms.learned.server_arrays import Chosen, ServerArrays
    from rota.mechanisms.ordering.declare import ordering
    from rota.mechanisms.ordering.rule import Backfill, Groups, Turn
    from rota.mechanisms.rounds.declare import RoundParams, rounds
    from rota.mechanisms.rounds.rule import DefaultShareRule, RoundJob, ShareQuestion, Shares
    from rota.mechanisms.selection.declare import selection
    from rota.mechanisms.selection.rule import DefaultSelectionRule, DeviceRequest, Selection, SelectionContext

__all__ = [
    "BUILT_IN",
    "Backfill",
    "Candidate",
    "Chosen",
    "DecisionKind",
    "DeclaredPolicy",
    "DefaultChooser",
    "DefaultColocationRule",
    "DefaultSelectionRule",
    "DefaultShareRule",
    "DefaultSizeRule",
    "DeviceRequest",
    "DeviceType",
    "Groups",
    "Job",
    "JobView",
    "Knowledge",
    "LiveJob",
    "Reason",
    "ReasonCode",
    "RotaError",
    "RoundJob",
    "RoundParams",
    "Selection",
    "SelectionContext",
    "ServerArrays",
    "ShareQuestion",
    "Shares",
    "SizePlan",
    "SizeQuestion",
    "Target",
    "Traits",
    "Turn",
    "colocation",
    "elastic",
    "find_policy",
    "learned",
    "names",
    "one_by_one",
    "ordering",
    "rounds",
    "selection",
]

_EXPORTS = {
    "rota.core.messages.decisions": ("DecisionKind",),
    "rota.core.messages.reasons": ("Reason", "ReasonCode"),
    "rota.core.model.job": ("DeviceType", "Job"),
    "rota.core.state.job_record": ("JobView", "LiveJob"),
    "rota.mechanisms.declare": ("DeclaredPolicy", "Knowledge", "Traits"),
    "rota.mechanisms.ordering.declare": ("ordering",),
    "rota.mechanisms.ordering.rule": ("Backfill", "Groups", "Turn"),
    "rota.mechanisms.rounds.declare": ("RoundParams", "rounds"),
    "rota.mechanisms.rounds.rule": ("DefaultShareRule", "RoundJob", "ShareQuestion", "Shares"),
    "rota.mechanisms.selection.declare": ("selection",),
    "rota.mechanisms.selection.rule": ("DefaultSelectionRule", "DeviceRequest", "Selection", "SelectionContext"),
    "rota.mechanisms.elastic.declare": ("elastic",),
    "rota.mechanisms.elastic.rule": ("Candidate", "DefaultSizeRule", "SizePlan", "SizeQuestion", "Target"),
    "rota.mechanisms.colocation.declare": ("colocation",),
    "rota.mechanisms.colocation.rule": ("DefaultColocationRule",),
    "rota.mechanisms.learned.declare": ("DefaultChooser", "learned"),
    "rota.mechanisms.learned.heuristics": ("one_by_one",),
    "rota.mechanisms.learned.server_arrays": ("Chosen", "ServerArrays"),
}
_MODULE_OF = {name: module for module, exported in _EXPORTS.items() for name in exported}

BUILT_IN = {
    "rota": "rota.policies.own.rota:rota",
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


def __getattr__(name: str) -> Any:
    """Import a name for writing policies when it is first used."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_MODULE_OF[name]), name)
    return found


def names() -> list[str]:
    """All policies that can be named: the built-in ones, then those of other packages."""
    others = sorted(point.name for point in entry_points(group=_ENTRY_POINTS) if point.name not in BUILT_IN)
    return [*BUILT_IN, *others]


def find_policy(spec: str) -> tuple[DeclaredPolicy, str]:
    """The policy that `NAME[:options]` or `FILE.py:FUNCTION[:options]` means, and its options."""
    head, _, rest = spec.partition(":")
    if head.endswith(".py"):
        function, _, options = rest.partition(":")
        return _from_file(head, function), options
    return _by_name(head), rest


def _by_name(name: str) -> DeclaredPolicy:
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        declared: DeclaredPolicy = getattr(importlib.import_module(module), attribute)
        return declared
    points = [point for point in entry_points(group=_ENTRY_POINTS) if point.name == name]
    if not points:
        raise RotaError(f"unknown policy {name!r}; {did_you_mean(name, names())}")
    return _from_entry_point(points[0])


def _from_entry_point(point: EntryPoint) -> DeclaredPolicy:
    where = f"policy {point.name!r} of the entry point {point.value}"
    return _declared(load_entry_point(point, where), where, point.name)


def _from_file(path: str, function: str) -> DeclaredPolicy:
    from rota.mechanisms.declare import DeclaredPolicy

    where = f"policy file {path}"
    found = load_from_file(path, function, where, lambda value, _: isinstance(value, DeclaredPolicy))
    return _declared(found, f"{where}: {function!r}", f"{path}:{function}")


def _declared(found: object, where: str, policy: str) -> DeclaredPolicy:
    """The value as a policy whose answers are checked."""
    from rota.mechanisms.declare import DeclaredPolicy

    if not isinstance(found, DeclaredPolicy):
        raise RotaError(f"{where} is not a policy; put @ordering(...) or another family's decorator above it")
    return found.written_by_user(policy)
