"""Reads what a scenario names and refuses what can't be run: the way from options to a simulation, for all callers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rota.core.errors import RotaError, did_you_mean
from rota.core.model.cluster import Cluster
from rota.core.model.job import Job
from rota.drivers.simulator.deadlines import due_by_slo
from rota.drivers.simulator.device_types import typed_by_speed
from rota.drivers.simulator.guarantees import refuse_broken_guarantees
from rota.drivers.simulator.misfits import why_never_fits
from rota.drivers.simulator.partitions import within_partitions
from rota.drivers.simulator.planned_sizes import NAMES as PLANS
from rota.drivers.simulator.speeds import ScenarioSpeeds, scenario_speeds
from rota.drivers.simulator.study import Setting, believed, oversized, refuse_unknown_types, setting_of
from rota.files.cluster import read_cluster
from rota.files.faults import read_faults
from rota.network.model import NetworkModel
from rota.perf.speed.factor import speed_factor
from rota.perf.speed.options import fingerprint
from rota.placement import on_network
from rota.policies import find_policy
from rota.scenario import ClusterChange, Scenario
from rota.store.journal import JournalHeader
from rota.traces.formats import read_trace
from rota.traces.readers.alibaba import read_alibaba_nodes
from rota.traces.transform import depending_on_known
from rota.traces.workload import Workload

PROFILES = "profiles.json"
"""The profiles of a run, beside its journal, unless they are those of a file, unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedScenario:
    """A scenario whose files have been read and found fit to run."""

    scenario: Scenario
    workload: Workload
    setting: Setting
    speeds: ScenarioSpeeds
    left_out: int
    """Jobs larger than the cluster or than the memory of its devices, left out as the scenario asks."""

    def run_of(self, policy: str) -> Scenario:
        """One policy's run as it can be repeated: with the cluster, placement and profiles that were used."""
        declared, options = find_policy(policy)
        speeds, profiles = self.speeds, None
        if speeds.profiles is not None:
            profiles = speeds.profiles.source if speeds.is_file else PROFILES
        return replace(
            self.scenario.under(policy),
            cluster=self.setting.cluster,
            placement=self.scenario.placement or declared.placement_with(options),
            profiles=profiles,
            profiles_sha256=fingerprint(Path(profiles)) if profiles is not None and speeds.is_file else None,
            estimate=None if speeds.estimate is None else self.scenario.estimate,
        )

    def header_of(self, policy: str) -> JournalHeader:
        """The first line of a policy's journal."""
        estimate = self.speeds.estimate
        error = None if estimate is None else estimate.speeds.error
        return JournalHeader(
            scenario=self.run_of(policy),
            about=f"simulation of {self.workload.source}",
            held_out_error=None if error is None else round(error.median, 6),
        )


def read_workload(scenario: Scenario) -> Workload:
    """The trace that a scenario names."""
    if scenario.trace is None:
        raise RotaError("state which workload to simulate with --trace FILE (or --replay JOURNAL)")
    return read_trace(Path(scenario.trace), format=scenario.format, skip_bad_lines=scenario.skip_bad_lines)


def load(scenario: Scenario, workload: Workload | None = None) -> LoadedScenario:
    """Read and check everything that a scenario names; a workload that is given takes the place of its trace."""
    if workload is None:
        workload = read_workload(scenario)
    if scenario.jobs is not None:
        workload = replace(workload, submissions=depending_on_known(workload.submissions[: scenario.jobs]))
    scenario = _with_network(scenario)
    cluster = _cluster(scenario, workload)
    workload = replace(workload, submissions=within_partitions(workload.submissions, cluster))
    plans, never_fit = None, 0
    if scenario.profiles in PLANS:
        from rota.drivers.simulator.planned_jobs import with_plans

        scenario = replace(scenario, speed=replace(scenario.speed, scattered=True))
        workload, plans, never_fit = with_plans(
            str(scenario.profiles), workload, cluster, scenario.reference, skip=scenario.skip_oversized
        )
    speeds = scenario_speeds(scenario, workload, cluster, plans)
    setting = _setting(scenario, cluster, speeds)
    known = believed(setting).profiles
    if known is not None:
        typed = typed_by_speed(workload.submissions, setting.cluster, known)
        workload = replace(workload, submissions=typed)
    workload = replace(workload, submissions=due_by_slo(workload.submissions, setting.cluster, setting.speed))
    refuse_unknown_types(workload.submissions, setting.cluster)
    misfits = oversized(
        workload.submissions,
        setting,
        spreads=_spans_types(scenario.policies),
        by_type=any(find_policy(spec)[0].gives_one_type for spec in scenario.policies),
    )
    return LoadedScenario(
        scenario=scenario,
        workload=_without(workload, misfits, scenario, setting),
        setting=setting,
        speeds=speeds,
        left_out=len(misfits) + never_fit,
    )


def _spans_types(policies: Sequence[str]) -> bool:
    """Whether every policy may run one job on several device types at once."""
    found = [find_policy(spec) for spec in policies]
    return bool(found) and all(declared.can_span_types(options) for declared, options in found)


def _without(workload: Workload, misfits: Sequence[tuple[Job, str]], scenario: Scenario, setting: Setting) -> Workload:
    """The workload without jobs that never fit, if the scenario leaves them out; refused otherwise."""
    if not misfits:
        return workload
    if not scenario.skip_oversized:
        job, why = misfits[0]
        what = f"job {job.id}: {why};"
        if setting.tenancy == "none":
            what = f"job {job.id} {why_never_fits(job, setting.cluster) or why}; use a larger --cluster,"
        raise RotaError(f"{what} or leave such jobs out with --skip-oversized ({len(misfits):,} in this trace)")
    dropped = {job.id for job, _ in misfits}
    kept = tuple(each for each in workload.submissions if each.job.id not in dropped)
    if not kept:
        raise RotaError("no job of the trace fits into the cluster")
    return replace(workload, submissions=depending_on_known(kept))


def _setting(scenario: Scenario, cluster: Cluster, speeds: ScenarioSpeeds) -> Setting:
    known = {str(kind) for kind in cluster.devices_by_type}
    for kind in scenario.speed.type_speed:
        if kind not in known:
            raise RotaError(f"--type-speed: unknown name {kind!r}; {did_you_mean(kind, known)}")
    if scenario.speed.factor:
        speed_factor(scenario.speed.factor)
    changes = tuple((change.at_s, _replacement(change, scenario.tenancy)) for change in scenario.changes)
    listed = () if scenario.faults is None else read_faults(scenario.faults, cluster, *(after for _, after in changes))
    return setting_of(
        scenario,
        cluster=cluster,
        profiles=speeds.profiles,
        estimate=speeds.estimate,
        fault_list=tuple((fault.at_s, fault.node, fault.up) for fault in listed),
        changes=changes,
        network=_network(scenario, cluster, changes),
    )


def _with_network(scenario: Scenario) -> Scenario:
    """The scenario with the network of its cluster file, if it names none itself, and with a placement by its links."""
    spec = scenario.network
    if spec is None and isinstance(scenario.cluster, str) and scenario.cluster.endswith((".yaml", ".yml", ".json")):
        from rota.files.cluster_file import network_spec

        spec = network_spec(Path(scenario.cluster))
    placement = None if scenario.placement is None else on_network(scenario.placement, spec)
    return replace(scenario, network=spec, placement=placement)


def _network(scenario: Scenario, cluster: Cluster, changes: Sequence[tuple[float, Cluster]]) -> NetworkModel | None:
    """The links of the scenario; None where it has none."""
    spec = scenario.network
    if spec is None:
        return None
    from rota.files.network.network_file import network_from_spec

    network = network_from_spec(spec, [str(node.id) for node in cluster.nodes])
    for _, after in changes:
        network.topology.check_nodes((str(node.id) for node in after.nodes), network.source)
    return network


def _cluster(scenario: Scenario, workload: Workload) -> Cluster:
    given = scenario.cluster
    if given is None:
        if workload.cluster is None:
            raise RotaError("state which cluster to simulate with --cluster, e.g. --cluster gpu=16/4")
        return workload.cluster
    if isinstance(given, str) and given.endswith(".csv"):
        return read_alibaba_nodes(Path(given))
    return _read_cluster(given, scenario.tenancy)


def _replacement(change: ClusterChange, tenancy: str) -> Cluster:
    try:
        return _read_cluster(change.cluster, tenancy)
    except RotaError as error:
        raise RotaError(f"the change at {change.at_s:g} s: {error}") from error


def _read_cluster(given: Cluster | str, tenancy: str) -> Cluster:
    cluster = read_cluster(given) if isinstance(given, str) else given
    refuse_broken_guarantees(cluster, tenancy, given if isinstance(given, str) else "the cluster")
    return cluster
