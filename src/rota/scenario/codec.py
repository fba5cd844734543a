"""Scenarios as plain JSON values and back: the header of a journal and the question of a what-if.

Keys never change, as journals are kept. Values at their default are left out, and unknown keys are passed over, so that
journals of older and newer versions can be read.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from rota.core.codec.values import decode_cluster, encode_cluster
from rota.core.model.cluster import Cluster
from rota.perf.profiles.partial_profiles import EstimateSpec
from rota.perf.speed.model import Costs
from rota.perf.speed.options import decode_speed, encode_speed
from rota.scenario.scenario import ClusterChange, FaultRates, Scenario

Json = dict[str, Any]
_PLAIN = ("trace", "format", "jobs", "skip_bad_lines", "skip_oversized", "reference", "faults", "network", "failures")
_OTHER_COSTS = tuple(field.name for field in dataclasses.fields(Costs) if field.name != "restart_s")
_OWN_COSTS = ("move_s", "resize_s")
"""Costs that are as a restart unless given, so that 0 says something."""


def encode_scenario(scenario: Scenario) -> Json:
    """A scenario as JSON values."""
    several = len(scenario.policies) != 1
    value: Json = {
        "policy": list(scenario.policies) if several else scenario.policies[0],
        "placement": scenario.placement,
        "tenancy": scenario.tenancy,
        "profiles": scenario.profiles,
        "cluster": _encode_cluster(scenario.cluster),
    }
    optional: Json = {
        "seed": scenario.seed,
        "restart_s": scenario.costs.restart_s,
        "profiles_sha256": scenario.profiles_sha256,
        "estimate": None if scenario.estimate is None else scenario.estimate.encode(),
        "speed": encode_speed(scenario.speed),
        **{name: getattr(scenario, name) for name in _PLAIN},
        **{name: _number(getattr(scenario.costs, name)) for name in _OTHER_COSTS if name not in _OWN_COSTS},
    }
    value |= {name: given for name, given in optional.items() if given}
    own_costs = {name: getattr(scenario.costs, name) for name in _OWN_COSTS}
    value |= {name: cost_s for name, cost_s in own_costs.items() if cost_s is not None}
    if scenario.fault_rates is not None:
        value["mttf_s"] = scenario.fault_rates.mean_time_to_failure_s
        value["mttr_s"] = scenario.fault_rates.mean_time_to_repair_s
    if scenario.changes:
        value["changes"] = [[change.at_s, _encode_cluster(change.cluster)] for change in scenario.changes]
    return value


def decode_scenario(value: Mapping[str, Any]) -> Scenario:
    """The scenario that `encode_scenario` wrote."""
    policies = value["policy"]
    rates = None
    if "mttf_s" in value:
        rates = FaultRates(mean_time_to_failure_s=value["mttf_s"], mean_time_to_repair_s=value["mttr_s"])
    return Scenario(
        policies=(policies,) if isinstance(policies, str) else tuple(policies),
        placement=value["placement"],
        tenancy=value["tenancy"],
        cluster=_decode_cluster(value["cluster"]),
        changes=tuple(
            ClusterChange(at_s=at_s, cluster=_decode_cluster(after) or "") for at_s, after in value.get("changes", ())
        ),
        profiles=value["profiles"],
        profiles_sha256=value.get("profiles_sha256"),
        estimate=EstimateSpec.decode(value["estimate"]) if value.get("estimate") else None,
        speed=decode_speed(value.get("speed", {}), None),
        costs=Costs(**{name: float(value[name]) for name in ("restart_s", *_OTHER_COSTS) if name in value}),
        fault_rates=rates,
        seed=value.get("seed", 0),
        **{name: value[name] for name in _PLAIN if name in value},
    )


def _number(amount: float) -> float | str:
    """The amount as JSON has it, which knows no infinity."""
    return "inf" if amount == math.inf else amount


def _encode_cluster(cluster: Cluster | str | None) -> Any:
    return encode_cluster(cluster) if isinstance(cluster, Cluster) else cluster


def _decode_cluster(value: Any) -> Cluster | str | None:
    return value if value is None or isinstance(value, str) else decode_cluster(value)
