"""A study: one workload on one cluster under one policy, from names to results. The same in every process."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from rota.core.codec.cluster_diff import way_to
from rota.core.engine.draft import Draft
from rota.core.engine.engine import Engine, Journal
from rota.core.engine.protocols import Allocator, Policy
from rota.core.errors import RotaError, did_you_mean
from rota.core.messages.reasons import Reason
from rota.core.model.cluster import Cluster
from rota.core.model.job import Job, JobId, NodeId
from rota.core.state.history import History, history_of
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.drivers.simulator.failing_world import FailingWorld
from rota.drivers.simulator.faults import failure_events, faults_at_random, faults_from
from rota.drivers.simulator.planned_sizes import on_any_type
from rota.drivers.simulator.run import Faults, OutsideChanges, PolicyStuck, RunOutcome, run
from rota.drivers.simulator.world import CONTRACT as SIMULATOR
from rota.drivers.simulator.world import World
from rota.health.failure_model import FailureModel
from rota.health.lost_time import FailureReport, JobLosses, failure_report, job_time
from rota.health.presets import FailureParams, preset, with_params
from rota.mechanisms.declare import Knowledge
from rota.mechanisms.elastic.resize import SLOWEST_TYPE
from rota.mechanisms.elastic.scheduler import ElasticScheduler
from rota.mechanisms.parameters import parse_parameters
from rota.mechanisms.rounds.multi_type import may_spread, spread_out
from rota.mechanisms.rounds.round_placement import RoundPlacement
from rota.mechanisms.rounds.rule import round_job
from rota.mechanisms.rounds.scheduler import RoundScheduler
from rota.network.load import NetworkLoad
from rota.network.model import NetworkModel
from rota.perf.profiles.online_estimates import LearningSpeeds
from rota.perf.profiles.partial_profiles import SpeedEstimate
from rota.perf.profiles.speed_table import Profiles
from rota.perf.speed.busy_fraction import said_by
from rota.perf.speed.link_estimates import LinkEstimates
from rota.perf.speed.model import Costs, SpeedModel
from rota.perf.training.reports import SimulatedReports
from rota.placement import style
from rota.policies import find_policy
from rota.scenario import FaultRates, Scenario
from rota.tenancy import allocator
from rota.traces.workload import Submission, Workload

_RELAXED_S = 1e300
"""A moment by which every locality that ever relaxes has done so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Everything about a run but the workload and the policy."""

    cluster: Cluster
    placement: str | None = None
    """None means the policy's own."""
    tenancy: str = "none"
    speed: SpeedModel = field(default_factory=SpeedModel)
    """How fast jobs really run."""
    estimate: SpeedEstimate | None = None
    """What the policy knows of it instead, if it does not know all."""
    observes: bool = True
    """Whether what is seen while jobs run corrects the estimate."""
    costs: Costs = field(default_factory=Costs)
    seed: int = 0
    fault_rates: FaultRates | None = None
    fault_list: tuple[tuple[float, NodeId, bool], ...] = ()
    failures: FailureModel | None = None
    changes: tuple[tuple[float, Cluster], ...] = ()
    """What the cluster becomes while jobs run, and when."""
    network: NetworkModel | None = None
    """The links between the nodes; None: they do not matter."""
    outside: Callable[[Engine], OutsideChanges] | None = None
    """Makes what changes nodes and jobs at set times, as reservations do; None: nothing does."""

    def __post_init__(self) -> None:
        for _, cluster in self.changes:
            allocator(self.tenancy, style(self.placement or "any"), cluster)
        if self.failures is not None and (self.fault_rates is not None or self.fault_list):
            raise RotaError("--failures draws its own failures; leave out --faults and --mttf")
        if self.costs.checkpoint_write_s and not self.costs.checkpoint_interval_s and not self.is_adaptive:
            raise RotaError("--checkpoint-write needs --checkpoint-interval, or --failures NAME:adaptive=true")

    @property
    def is_adaptive(self) -> bool:
        """Whether jobs choose their checkpoint interval by the failure rate."""
        return self.failures is not None and self.failures.adaptive


def setting_of(
    scenario: Scenario,
    *,
    cluster: Cluster,
    profiles: Profiles | None = None,
    estimate: SpeedEstimate | None = None,
    fault_list: tuple[tuple[float, NodeId, bool], ...] = (),
    changes: tuple[tuple[float, Cluster], ...] = (),
    network: NetworkModel | None = None,
) -> Setting:
    """A scenario with what was read from the files that it names."""
    return Setting(
        cluster=cluster,
        placement=scenario.placement,
        tenancy=scenario.tenancy,
        speed=replace(scenario.speed, profiles=profiles),
        estimate=estimate,
        observes=scenario.estimate is None or scenario.estimate.observes,
        costs=scenario.costs,
        seed=scenario.seed,
        fault_rates=scenario.fault_rates,
        fault_list=fault_list,
        failures=None if scenario.failures is None else failures_by_name(scenario.failures),
        changes=changes,
        network=network,
    )


def failures_by_name(spec: str) -> FailureModel:
    """The failures of `NAME[:key=value,...]`."""
    name, _, options = spec.partition(":")
    model = preset(name)
    params: FailureParams = parse_parameters(FailureParams, options, f"failures {name!r}")
    return with_params(model, params)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a run gave."""

    policy: str
    placement: str
    history: History
    failures: FailureReport | None = None
    events: int
    wall_s: float
    cpu_s: float


def scheduler(policy: str, setting: Setting) -> tuple[Policy, Allocator, str]:
    """Return a policy by name, its allocator, and the placement in effect."""
    declared, options = find_policy(policy)
    declared.refuse_driver(options, SIMULATOR)
    declared.refuse_tenancy(setting.tenancy)
    if declared.plans_in_rounds and (setting.costs.checkpoint_s or setting.costs.save_s):
        option = "--checkpoint-time" if setting.costs.checkpoint_s else "--save-time"
        raise RotaError(
            f"policy {declared.name!r} plans in rounds, which leave no time for a stop; leave {option} at 0, "
            "and count what saving costs into --restart-cost"
        )
    placement = setting.placement or declared.placement_with(options)
    alloc = allocator(setting.tenancy, style(placement), setting.cluster)
    knowledge = Knowledge(
        speed=_on_links(believed(setting, learns=True), setting),
        reports=SimulatedReports(),
        restart_s=setting.costs.restart_s,
        seed=setting.seed,
    )
    return declared.build(options, alloc, knowledge), alloc, placement


def _on_links(speed: SpeedModel, setting: Setting) -> SpeedModel:
    """Return speeds with what the links of a network cost a job alone."""
    if setting.network is None:
        return speed
    return replace(speed, links=LinkEstimates(setting.network, setting.cluster.nodes))


def believed(setting: Setting, *, learns: bool = False) -> SpeedModel:
    """Return the speeds that a policy knows: the true ones, or an estimate, which may learn."""
    if setting.estimate is None:
        return setting.speed
    speeds = LearningSpeeds(setting.estimate) if learns and setting.observes else setting.estimate.profiles
    return replace(setting.speed, profiles=speeds, is_estimate=True)


def simulate(
    workload: Workload,
    policy: str,
    setting: Setting,
    *,
    journal: Journal | None = None,
    progress: Callable[[int], None] | None = None,
) -> Result:
    """Run a workload to its end under a policy."""
    built, alloc, placement = scheduler(policy, setting)
    if setting.speed.profiles is not None and not isinstance(built, ElasticScheduler):
        least = 0.0 if isinstance(built, RoundScheduler) else SLOWEST_TYPE
        workload = replace(workload, submissions=on_any_type(workload.submissions, setting.speed.profiles, least))
    try:
        history, cost = simulate_with(workload, built, alloc, setting, journal=journal, progress=progress)
    except PolicyStuck as stuck:
        raise stuck.named(policy, is_built_in=find_policy(policy)[0].user is None) from None
    return Result(
        policy=policy,
        placement=placement,
        history=history,
        failures=cost.failures,
        events=cost.events,
        wall_s=cost.wall_s,
        cpu_s=cost.cpu_s,
    )


def _metered(history: History, world: World) -> History:
    """Return the history with how busy each job kept its devices."""
    return replace(history, jobs=tuple(row._replace(busy_s=world.busy_s(JobId(row.id))) for row in history.jobs))


def simulate_with(
    workload: Workload,
    policy: Policy,
    alloc: Allocator,
    setting: Setting,
    *,
    journal: Journal | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[History, RunOutcome]:
    """Run a workload to its end under a policy that was already built."""
    engine = Engine(State(setting.cluster), policy, alloc, journal=journal)
    meters = setting.speed.knows_pairs or any(said_by(each.job) is not None for each in workload.submissions)
    known = believed(setting)
    world = _world(setting, known, overlaps=engine.overlaps, meters=meters)
    outside = None if setting.outside is None else setting.outside(engine)
    cost = run(engine, world, workload.submissions, faults=_faults(setting), progress=progress, changes=outside)
    history = history_of(engine.state)
    if isinstance(world, FailingWorld):
        cost = replace(cost, failures=_failure_report(setting, world, history))
    return _metered(history, world) if meters else history, cost


def _world(setting: Setting, known: SpeedModel, *, overlaps: bool, meters: bool) -> World:
    """Return the plain world unless something fails or checkpoints take time."""
    cluster, speed, costs, network = setting.cluster, setting.speed, setting.costs, None
    if setting.network is not None:
        network = NetworkLoad(setting.network, cluster.nodes, by_request=speed.scales_by_links)
    if setting.failures is None and not costs.checkpoint_write_s:
        return World(cluster, speed, costs, known, overlaps=overlaps, meters=meters, network=network)
    model = setting.failures or FailureModel(name="none")
    return FailingWorld(
        cluster, speed, costs, known, model, setting.seed, overlaps=overlaps, meters=meters, network=network
    )


def _failure_report(setting: Setting, world: FailingWorld, history: History) -> FailureReport:
    """Return what failures cost the jobs of a run."""
    times = [
        job_time(
            gpus=row.gpus,
            span_s=row.end_s - row.start_s,
            run_s=row.run_s,
            losses=world.losses.get(JobId(row.id), JobLosses()),
        )
        for row in history.jobs
        if row.start_s is not None and row.end_s is not None
    ]
    first_s = min((row.submit_s for row in history.jobs), default=0.0)
    last_s = max((row.end_s or 0.0 for row in history.jobs), default=0.0)
    name = "none" if setting.failures is None else setting.failures.name
    return failure_report(name, world.causes_until(last_s), times, history.devices * (last_s - first_s))


def _faults(setting: Setting) -> Faults:
    """Yield failures, repairs and changes of the cluster in order of time."""
    return heapq.merge(_failures(setting), _changes(setting), key=lambda event: event[0])


def _changes(setting: Setting) -> Faults:
    before = setting.cluster
    for at_s, after in sorted(setting.changes, key=lambda change: change[0]):
        for event in way_to(after, before.nodes, before):
            yield at_s, event
        before = after


def _failures(setting: Setting) -> Faults:
    if setting.fault_list:
        known = {node.id for cluster in (setting.cluster, *(c for _, c in setting.changes)) for node in cluster.nodes}
        return faults_from(setting.fault_list, known)
    if setting.failures is not None:
        return failure_events(setting.cluster, setting.failures, random.Random(setting.seed))
    if setting.fault_rates is not None:
        return faults_at_random(setting.cluster, setting.fault_rates, random.Random(setting.seed))
    return iter(())


def refuse_unknown_types(submissions: Sequence[Submission], cluster: Cluster) -> None:
    """Raise a `RotaError` for a job that asks only for device types which the cluster lacks."""
    known = cluster.devices_by_type
    for submission in submissions:
        for role in submission.job.roles:
            if role.device_types and not any(t in known for t in role.device_types):
                wanted = role.device_types[0]
                raise RotaError(
                    f"job {submission.job.id} asks for device type {wanted!r}, which the cluster lacks; "
                    f"{did_you_mean(wanted, known)}"
                )


def oversized(
    submissions: Sequence[Submission], setting: Setting, *, spreads: bool = False, by_type: bool = False
) -> list[tuple[Job, str]]:
    """Return the jobs that would not fit into the cluster even if it were empty, each with the reason.

    With `spreads`, a job may have tasks on several device types at once. With `by_type`, all tasks of its full size
    must be of one.
    """
    clusters = (setting.cluster, *(cluster for _, cluster in setting.changes))
    wards = [
        (allocator(setting.tenancy, style(setting.placement or "any"), cluster), Inventory(cluster))
        for cluster in clusters
    ]
    verdicts: dict[object, str | None] = {}
    misfits = []
    for submission in submissions:
        live = LiveJob(submission.job, 0, 0.0, 1.0)
        shape = wards[0][0].equivalence_key(live)
        if shape not in verdicts:
            faults = [_misfit(live, alloc, inventory, by_type=by_type) for alloc, inventory in wards]
            is_lost = None not in faults and not (spreads and any(_fits_across(live, *ward, setting) for ward in wards))
            verdicts[shape] = faults[0] if is_lost else None
        why = verdicts[shape]
        if why is not None:
            misfits.append((submission.job, why))
    return misfits


def _misfit(live: LiveJob, alloc: Allocator, inventory: Inventory, *, by_type: bool) -> str | None:
    refused = alloc.refuse(live.job)
    if refused is not None:
        return refused
    answer = alloc.offer(live, inventory, _RELAXED_S)
    if isinstance(answer, Reason):
        return answer.sentence()
    types = [pool.device_type for pool in inventory.pools]
    if not by_type or not live.job.gpu_milli or any(RoundPlacement(types, {}).able(Draft(inventory, alloc, 0.0), live)):
        return None
    return "at its full size it fits on no single device type, and policies that plan in rounds give a job just that"


def _fits_across(live: LiveJob, alloc: Allocator, inventory: Inventory, setting: Setting) -> bool:
    """Return whether a job fits on several types together, as rounds would place it."""
    if not may_spread(live.job):
        return False
    types = [pool.device_type for pool in inventory.pools]
    rooms = RoundPlacement(types, {}).rooms(Draft(inventory, alloc, 0.0), live)
    plain = round_job(live, believed(setting), types, [False] * len(types))
    return spread_out(plain, believed(setting), types, rooms).spans
