"""What `rota sim` was asked, as a value that can travel to another process, and how it is carried out there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from rota.cli.study.promised import refuse_broken_promises
from rota.cli.study.speeds import StudySpeeds, study_speeds
from rota.core.errors import RotaError, did_you_mean
from rota.core.model.cluster import Cluster
from rota.core.model.job import DeviceType, Job, Level
from rota.core.state.history import History
from rota.drivers.simulator.deadlines import due_by_slo
from rota.drivers.simulator.device_types import typed_by_speed
from rota.drivers.simulator.faults import FaultRates
from rota.drivers.simulator.study import Result, Setting, believed, oversized, refuse_unknown_types, simulate
from rota.files.cluster import read_cluster
from rota.files.faults import read_faults
from rota.files.quantities import NotAQuantity, parse_duration
from rota.perf.profiles.partial_profiles import EstimateSpec
from rota.perf.profiles.profile_files import write_profiles
from rota.perf.speed.model import SPILLED, Costs, SpeedModel
from rota.perf.speed.options import encode_speed, fingerprint
from rota.report.metrics import Metrics, measure, measure_tenants
from rota.store.journal import JournalHeader, JournalWriter
from rota.traces.formats import read_trace
from rota.traces.readers.alibaba import read_alibaba_nodes
from rota.traces.readers.journal import JOURNAL
from rota.traces.source import open_source
from rota.traces.workload import Workload

if TYPE_CHECKING:
    from rota.report.sketch import Sketch
    from rota.report.timeline import Timeline

PROFILES = "profiles.json"
"""The speeds that a run was made with, beside its journal, where they are not a file as it is."""
_SPREAD_LEVELS = {"rack": Level.RACK, "domain": Level.DOMAIN, "cluster": Level.CLUSTER}
_BY_PROFILE = "profile"
_BY_STAGES = "stages"
"""Packed jobs take turns on storage, CPU, GPU and network."""
_NEIGHBOURS = ("device", "node", "turns", "spilled", "gaps")


class Keep(Enum):
    """How much of a run's course outlives it."""

    FIGURES = "figures"
    """Only what it came to."""
    SKETCH = "sketch"
    """Also what a few lines of text show of it."""
    ALL = "all"
    """Also the history of every job and what held the devices when, as a report needs them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimRequest:
    """The options of a study, as given."""

    trace: Path
    format: str | None = None
    cluster: str | None = None
    placement: str | None = None
    tenancy: str = "none"
    profiles: str | None = None
    reference: str | None = None
    estimate: EstimateSpec | None = None
    restart_cost_s: float = 0.0
    checkpoint_interval_s: float = 0.0
    checkpoint_s: float = 0.0
    load_s: float = 0.0
    save_s: float = 0.0
    resume_cost_s: float = 0.0
    move_cost_s: float | None = None
    seed: int = 0
    jobs: int | None = None
    skip_bad_lines: bool = False
    skip_oversized: bool = False
    faults: Path | None = None
    changes: tuple[str, ...] = ()
    mttf_s: float | None = None
    mttr_s: float = 3600.0
    spread: str = ""
    neighbours: str = ""
    contention: bool = False
    type_speed: str = ""
    scaling: float = 1.0
    uneven: bool = False
    spreads: bool = False
    """Whether all policies may run one job on several device types at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A request whose files have been read and found fit to run."""

    workload: Workload
    setting: Setting
    speeds: StudySpeeds
    left_out: int
    """Jobs larger than the cluster, left out because that was asked for."""
    is_undisturbed: bool = False
    """Whether what their neighbours had cost the jobs of a journal was taken out of their run times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What one policy's run gave, and as much of its course as was to be kept."""

    policy: str
    placement: str
    metrics: Metrics
    tenants: dict[str, Metrics]
    events: int
    wall_s: float
    cpu_s: float
    history: History | None = None
    timeline: Timeline | None = None
    sketch: Sketch | None = None


def prepare(request: SimRequest) -> Ready:
    """Read and check everything that the request names."""
    workload = read_trace(request.trace, format=request.format, skip_bad_lines=request.skip_bad_lines)
    alone = _undisturbed(request, workload)
    workload = alone or workload
    if request.jobs is not None:
        workload = replace(workload, submissions=workload.submissions[: request.jobs])
    cluster = _cluster(request, workload)
    speeds = study_speeds(request.profiles, request.reference, request.estimate, workload, cluster)
    setting = _setting(request, cluster, speeds)
    told = believed(setting).profiles
    if told is not None:
        typed = typed_by_speed(workload.submissions, setting.cluster, told)
        workload = replace(workload, submissions=typed)
    workload = replace(workload, submissions=due_by_slo(workload.submissions, setting.cluster, setting.speed))
    refuse_unknown_types(workload.submissions, setting.cluster)
    misfits = oversized(workload.submissions, setting, spreads=request.spreads)
    if misfits and not request.skip_oversized:
        job, why = misfits[0]
        what = f"job {job.id}: {why};"
        if setting.tenancy == "none":
            what = f"job {job.id} {_too_large(job, setting.cluster)}; use a larger --cluster,"
        raise RotaError(f"{what} or leave such jobs out with --skip-oversized ({len(misfits):,} in this trace)")
    if misfits:
        dropped = {job.id for job, _ in misfits}
        kept = tuple(s for s in workload.submissions if s.job.id not in dropped)
        if not kept:
            raise RotaError("no job of the trace fits into the cluster")
        workload = replace(workload, submissions=kept)
    return Ready(
        workload=workload,
        setting=setting,
        speeds=speeds,
        left_out=len(misfits),
        is_undisturbed=alone is not None,
    )


def _undisturbed(request: SimRequest, workload: Workload) -> Workload | None:
    """A journal's jobs without what `--contention` will cost them anew, if their run times hold any of it."""
    if not request.contention or workload.format != JOURNAL:
        return None
    from rota.learn.undisturbed import read_undisturbed

    return read_undisturbed(workload, open_source(request.trace))


def _too_large(job: Job, cluster: Cluster) -> str:
    """Why a job never fits, as far as numbers of devices and what one node has say."""
    devices = cluster.devices_by_type
    if too_much := _more_than_any_node(job, cluster):
        return too_much
    if max(devices.values(), default=0) < job.gpus <= cluster.devices:
        each = ", ".join(f"{count} of {kind!r}" for kind, count in devices.items())
        return f"needs {job.gpus:g} devices of one type, and the cluster has {each}"
    return f"needs {job.gpus:g} devices and can never fit into the cluster ({cluster.devices} devices)"


def _more_than_any_node(job: Job, cluster: Cluster) -> str | None:
    """Which resource a task needs more of than the best node has."""
    for key, what in (
        ("cpu_milli", "thousandths of CPUs"),
        ("memory_bytes", "bytes of memory"),
        ("network_bps", "bits a second of network"),
        ("disk_bps", "bits a second of disk"),
    ):
        has = [getattr(node, key) for node in cluster.nodes]
        need = max(getattr(role, key) for role in job.roles)
        if has and None not in has and need > max(has):
            return f"needs {need:,} {what} for a task, and no node has more than {max(has):,}"
    return None


def run_policy(
    ready: Ready,
    policy: str,
    *,
    request: SimRequest,
    keep: Keep = Keep.FIGURES,
    folder: Path | None = None,
    progress: Callable[[int], None] | None = None,
) -> Finished:
    """Simulate one policy; with a folder, write its journal there."""
    if keep is Keep.FIGURES and folder is None:
        return _finished(simulate(ready.workload, policy, ready.setting, progress=progress), keep, None)
    from rota.report.timeline import Tee, Timeline

    timeline = Timeline(ready.setting.cluster)
    if folder is None:
        result = simulate(ready.workload, policy, ready.setting, journal=timeline, progress=progress)
        return _finished(result, keep, timeline)
    folder.mkdir(parents=True, exist_ok=True)
    if ready.speeds.profiles is not None and not ready.speeds.is_file:
        write_profiles(ready.speeds.profiles, folder / PROFILES)
    header = journal_header(request, ready, policy)
    with JournalWriter(folder / "journal.jsonl", header) as writer:
        result = simulate(ready.workload, policy, ready.setting, journal=Tee(writer, timeline), progress=progress)
    return _finished(result, keep, timeline)


def journal_header(request: SimRequest, ready: Ready, policy: str) -> JournalHeader:
    """The first line of a policy's journal."""
    from rota.policies import find_policy

    declared, options = find_policy(policy)
    speeds = ready.speeds
    profiles = None
    if speeds.profiles is not None:
        profiles = speeds.profiles.source if speeds.is_file else PROFILES
    return JournalHeader(
        cluster=ready.setting.cluster,
        policy=policy,
        placement=ready.setting.placement or declared.placement_with(options),
        tenancy=ready.setting.tenancy,
        profiles=profiles,
        estimate=None if speeds.spec is None or speeds.estimate is None else speeds.spec.encode(speeds.estimate),
        about=f"simulation of {ready.workload.source}",
        seed=request.seed,
        restart_s=request.restart_cost_s,
        profiles_sha256=fingerprint(Path(profiles)) if profiles is not None and speeds.is_file else None,
        speed=encode_speed(ready.setting.speed),
    )


def _finished(result: Result, keep: Keep, timeline: Timeline | None) -> Finished:
    from rota.report.sketch import sketch_of

    return Finished(
        policy=result.policy,
        placement=result.placement,
        metrics=measure(result.history),
        tenants=measure_tenants(result.history),
        events=result.events,
        wall_s=result.wall_s,
        cpu_s=result.cpu_s,
        history=result.history if keep is Keep.ALL else None,
        timeline=timeline if keep is Keep.ALL else None,
        sketch=None if timeline is None else sketch_of(result.history, timeline),
    )


def _setting(request: SimRequest, cluster: Cluster, speeds: StudySpeeds) -> Setting:
    rates = None
    if request.mttf_s is not None:
        rates = FaultRates(mean_time_to_failure_s=request.mttf_s, mean_time_to_repair_s=request.mttr_s)
    changes = tuple(_change(text, request.tenancy) for text in request.changes)
    listed = () if request.faults is None else read_faults(request.faults, cluster, *(after for _, after in changes))
    by_stages = request.neighbours == _BY_STAGES
    neighbours = {} if by_stages else _factors(request.neighbours, "--neighbours", _NEIGHBOURS, alone=(_BY_STAGES,))
    by_profile = request.spread == _BY_PROFILE
    spread = (
        {} if by_profile else _factors(request.spread, "--spread", (*_SPREAD_LEVELS, "network"), alone=(_BY_PROFILE,))
    )
    network = spread.pop("network", 0.0)
    type_speeds = _factors(request.type_speed, "--type-speed", tuple(map(str, cluster.devices_by_type)))
    return Setting(
        cluster=cluster,
        placement=request.placement,
        tenancy=request.tenancy,
        speed=SpeedModel(
            profiles=speeds.profiles,
            type_speed={DeviceType(name): factor for name, factor in type_speeds.items()},
            spread={_SPREAD_LEVELS[name]: factor for name, factor in spread.items()},
            scaling=request.scaling,
            device_neighbour=neighbours.get("device", 1.0),
            node_neighbour=neighbours.get("node", 1.0),
            turns=neighbours.get("turns", 1.0),
            spilled=neighbours.get("spilled", SPILLED),
            gaps=neighbours.get("gaps", 0.0),
            interleaved=by_stages,
            contention=request.contention,
            network=network,
            scattered=by_profile,
            uneven=request.uneven,
        ),
        estimate=speeds.estimate,
        observes=speeds.spec is None or speeds.spec.observes,
        costs=Costs(
            restart_s=request.restart_cost_s,
            checkpoint_interval_s=request.checkpoint_interval_s,
            checkpoint_s=request.checkpoint_s,
            load_s=request.load_s,
            save_s=request.save_s,
            resume_s=request.resume_cost_s,
            move_s=request.move_cost_s,
        ),
        seed=request.seed,
        fault_rates=rates,
        fault_list=tuple((fault.at_s, fault.node, fault.up) for fault in listed),
        changes=changes,
    )


def _change(text: str, tenancy: str) -> tuple[float, Cluster]:
    """A moment and what the cluster becomes then, from `TIME=FILE`."""
    when, found, spec = text.partition("=")
    if not found:
        raise RotaError(f"--change is {text!r}; write it as TIME=FILE, such as 2h=after.yaml")
    try:
        at_s = parse_duration(when)
    except NotAQuantity as error:
        raise RotaError(f"--change {text}: {error}") from error
    after = read_cluster(spec)
    refuse_broken_promises(after, tenancy, f"--change {text}")
    return at_s, after


def _cluster(request: SimRequest, workload: Workload) -> Cluster:
    if request.cluster is None:
        if workload.cluster is None:
            raise RotaError("say which cluster to simulate with --cluster, e.g. --cluster gpu=16/4")
        return workload.cluster
    if request.cluster.endswith(".csv"):
        return read_alibaba_nodes(Path(request.cluster))
    cluster = read_cluster(request.cluster)
    refuse_broken_promises(cluster, request.tenancy, request.cluster)
    return cluster


def _factors(text: str, option: str, known: tuple[str, ...], alone: tuple[str, ...] = ()) -> dict[str, float]:
    """Factors from `name=0.9,name=0.8`; `alone` are words that may stand there instead of factors."""
    factors: dict[str, float] = {}
    for part in filter(None, text.split(",")):
        name, _, value = (word.strip() for word in part.partition("="))
        if name not in known:
            raise RotaError(f"{option}: unknown name {name!r}; {did_you_mean(name, (*known, *alone))}")
        try:
            factors[name] = float(value)
        except ValueError:
            raise RotaError(f"{option}: {name} is {value!r}; it must be a number") from None
        if not factors[name] > 0:
            raise RotaError(f"{option}: {name} is {value}; it must be above 0")
    return factors
