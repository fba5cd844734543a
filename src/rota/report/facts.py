"""The inputs of runs as the footer of a report lists them."""

from __future__ import annotations

from collections.abc import Sequence

from rota.core.model.cluster import Cluster
from rota.perf.speed.options import encode_speed
from rota.scenario import Scenario


def scenario_facts(scenarios: Sequence[Scenario]) -> dict[str, str]:
    """What determined the runs, by name; where runs differ, each value once."""
    facts = [_facts(scenario) for scenario in scenarios]
    names = dict.fromkeys(name for each in facts for name in each)
    return {name: " / ".join(dict.fromkeys(each[name] for each in facts if name in each)) for name in names}


def _facts(scenario: Scenario) -> dict[str, str]:
    costs = scenario.costs
    facts = {
        "trace": scenario.trace,
        "first jobs": None if scenario.jobs is None else f"{scenario.jobs:,}",
        "cluster": _cluster(scenario.cluster),
        "tenancy": scenario.tenancy,
        "profiles": scenario.profiles,
        "known profiles": None if scenario.estimate is None else f"{scenario.estimate.known:.0%}",
        "speed model": ", ".join(f"{name} {_plain(value)}" for name, value in encode_speed(scenario.speed).items()),
        "seed": str(scenario.seed),
        "restart cost": f"{costs.restart_s:g} s",
        "resume cost": f"{costs.resume_s:g} s" if costs.resume_s else None,
        "move cost": None if costs.move_s is None else f"{costs.move_s:g} s",
        "resize cost": None if costs.resize_s is None else f"{costs.resize_s:g} s",
        "checkpoint interval": f"{costs.checkpoint_interval_s:g} s",
        "checkpoint time": f"{costs.checkpoint_s:g} s",
        "checkpoint write": f"{costs.checkpoint_write_s:g} s" if costs.checkpoint_write_s else None,
        "load time": f"{costs.load_s:g} s",
        "save time": f"{costs.save_s:g} s",
        "faults": scenario.faults,
        "failures": scenario.failures,
        "mean time to failure": _rate(scenario),
    }
    return {name: value for name, value in facts.items() if value}


def _cluster(cluster: Cluster | str | None) -> str:
    if not isinstance(cluster, Cluster):
        return cluster or "the trace's own"
    devices = ", ".join(f"{count:,} x {kind}" for kind, count in cluster.devices_by_type.items())
    return f"{devices} in {len(cluster.nodes):,} {'node' if len(cluster.nodes) == 1 else 'nodes'}"


def _rate(scenario: Scenario) -> str | None:
    rates = scenario.fault_rates
    if rates is None:
        return None
    return f"{rates.mean_time_to_failure_s:g} s, to repair {rates.mean_time_to_repair_s:g} s"


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={factor:g}" for name, factor in value.items())
    return "on" if value is True else f"{value:g}" if isinstance(value, float) else str(value)
