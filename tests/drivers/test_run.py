"""Whole runs on the virtual clock: order of events at one moment, faults, what never ends, studies."""

from __future__ import annotations

import gc
import math
import random
from collections.abc import Iterator
from itertools import count

import pytest

from builders import cluster, job, node
from rota.core.engine.engine import Engine
from rota.core.engine.protocols import Capabilities
from rota.core.errors import RotaError
from rota.core.messages.decisions import Decision
from rota.core.messages.events import Event, NodeAdded, NodeBack, NodeLost
from rota.core.model.cluster import Cluster
from rota.core.model.job import DeviceType, Elastic, Job, JobId, Locality, NodeId, TenantId
from rota.core.model.tenants import ANY_TYPE, Share, TenantPlan
from rota.core.state.state import State
from rota.drivers.simulator.faults import faults_at_random, faults_from
from rota.drivers.simulator.run import run
from rota.drivers.simulator.study import Setting, oversized, refuse_unknown_types, scheduler, simulate
from rota.drivers.simulator.world import World
from rota.perf.speed.model import Costs, SpeedModel
from rota.scenario import FaultRates
from rota.traces.workload import Submission, Workload

ONE = Cluster.uniform(("gpu", 1, 1))
FOUR = Cluster.uniform(("gpu", 4, 4))


def workload(*jobs: tuple[float, Job]) -> Workload:
    submissions = tuple(Submission(job=asked, submit_s=submit_s) for submit_s, asked in jobs)
    return Workload(submissions=submissions, source="test", format="rota")


def ends(of: Workload, policy: str = "fifo", **setting: object) -> list[float | None]:
    """When each job ended."""
    made = Setting(**({"cluster": ONE} | setting))  # type: ignore[arg-type]  # a table of any fields
    return [row.end_s for row in simulate(of, policy, made).history.jobs]


def test_jobs_follow_each_other() -> None:
    assert ends(workload((0.0, job("a", work=10.0)), (1.0, job("b", work=5.0)))) == [10.0, 15.0]


def test_end_comes_before_an_arrival_at_the_same_moment() -> None:
    """`b` comes as `a` ends: there is room, and nobody is preempted."""
    of = workload((0.0, job("a", work=10.0)), (10.0, job("b", work=1.0)))
    history = simulate(of, "srtf", Setting(cluster=ONE)).history

    assert [row.end_s for row in history.jobs] == [10.0, 11.0]
    assert sum(row.preemptions for row in history.jobs) == 0


def test_restart_cost_is_paid_by_who_was_stopped() -> None:
    """`a` does 2 of 10, waits for `b` until 5, and pays 3 s before it does the other 8."""
    of = workload((0.0, job("a", work=10.0)), (2.0, job("b", work=3.0)))

    assert ends(of, "srtf", costs=Costs(restart_s=3.0)) == [5.0 + 3.0 + 8.0, 5.0]


def test_fault_sends_a_job_back_to_its_checkpoint() -> None:
    """10 s of 30 are saved when the node fails at 15; it is back at 20: 20 more."""
    faults = ((15.0, NodeId("n1"), False), (20.0, NodeId("n1"), True))
    of = workload((0.0, job("a", work=30.0)))

    assert ends(of, costs=Costs(checkpoint_interval_s=10.0), fault_list=faults) == [40.0]
    assert ends(of, fault_list=faults) == [35.0]


def test_end_comes_before_a_fault_at_the_same_moment() -> None:
    faults = ((10.0, NodeId("n1"), False),)

    assert ends(workload((0.0, job("a", work=10.0))), fault_list=faults) == [10.0]


def test_neighbours_share_the_speed_of_a_node() -> None:
    """Each at 1/2 while both run: `a` has 10 of 20 done at 20 when `b` (10) ends... at 20; then 10 more alone."""
    of = workload((0.0, job("a", work=20.0)), (0.0, job("b", work=10.0)))

    assert ends(of, cluster=FOUR, speed=SpeedModel(node_neighbour=0.5)) == [30.0, 20.0]


def test_node_that_joins_takes_jobs() -> None:
    policy, alloc, _ = scheduler("fifo", Setting(cluster=ONE))
    engine = Engine(State(ONE), policy, alloc)
    submissions = workload((0.0, job("a", work=10.0)), (0.0, job("b", work=10.0))).submissions
    joins: Iterator[tuple[float, Event]] = iter([(3.0, NodeAdded(node("n2", 1)))])

    run(engine, World(ONE, SpeedModel(), Costs()), submissions, faults=joins)

    assert [live.ended_s for live in engine.state.jobs.values()] == [10.0, 13.0]


def test_run_waits_for_a_repair() -> None:
    faults = ((0.0, NodeId("n1"), False), (50.0, NodeId("n1"), True))

    assert ends(workload((1.0, job("a", work=10.0))), fault_list=faults) == [60.0]


def test_run_does_not_wait_for_time_limits_of_jobs_that_ended() -> None:
    of = workload((0.0, job("a", work=10.0, time_limit_s=1000.0)))
    policy, alloc, _ = scheduler("fifo", Setting(cluster=ONE))
    engine = Engine(State(ONE), policy, alloc)

    run(engine, World(ONE, SpeedModel(), Costs()), of.submissions)

    assert engine.state.now_s == 10.0


def test_job_that_can_never_start_is_told() -> None:
    of = workload((0.0, job("a", gpus=2, work=1.0)), (0.0, job("b", gpus=3, work=1.0)))

    with pytest.raises(RotaError, match="job a and 1 more never end: needs 2 devices; the cluster can never"):
        ends(of)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["fifo", "fifo:consolidate_s=10"])
def test_job_that_no_repair_helps_is_told(policy: str) -> None:
    built, alloc, _ = scheduler(policy, Setting(cluster=ONE))
    faults = ((float(at), NodeBack(NodeId("n1")) if at % 2 else NodeLost(NodeId("n1"))) for at in count())

    with pytest.raises(RotaError, match="job a never ends: needs 2 devices"):
        run(
            Engine(State(ONE), built, alloc),
            World(ONE, SpeedModel(), Costs()),
            workload((0.0, job("a", gpus=2, work=1.0))).submissions,
            faults=faults,
        )


def test_progress_is_reported() -> None:
    seen: list[int] = []
    of = workload(*((float(number), job(f"j{number}", work=1.0)) for number in range(1500)))
    simulate(of, "fifo", Setting(cluster=ONE), progress=seen.append)

    assert seen
    assert seen == sorted(seen)


def test_collection_of_garbage_goes_on_after_a_run() -> None:
    ends(workload((0.0, job("a", work=1.0))))

    assert gc.isenabled()


class Restless:
    """A policy that wants to be woken at once, for ever."""

    capabilities = Capabilities()
    wakeup_s = 0.0
    memory = None

    def note(self, changes: object, now_s: float) -> None: ...
    def plan(self, draft: object) -> None: ...
    def adopt(self, state: object) -> None: ...
    def explain(self, waiting: object, draft: object) -> object: ...


def test_policy_that_never_lets_time_pass_is_stopped() -> None:
    _, alloc, _ = scheduler("fifo", Setting(cluster=ONE))
    engine = Engine(State(ONE), Restless(), alloc)  # type: ignore[arg-type]  # as far as the engine asks

    with pytest.raises(RotaError, match="keeps asking to be woken at 0 s"):
        run(engine, World(ONE, SpeedModel(), Costs()), workload((0.0, job("a"))).submissions)


class Creeping(Restless):
    """A policy that wants to be woken again and again, `step_s` later each time, `times` in all."""

    def __init__(self, step_s: float, times: int) -> None:
        self._step_s = step_s
        self._left = times
        self.wakeup_s = 0.0

    def plan(self, draft: object) -> None:
        self._left -= 1
        self.wakeup_s = self.wakeup_s + self._step_s if self._left > 0 else math.inf


@pytest.mark.parametrize(("step_s", "is_stuck"), [(1e-12, True), (5e-8, True), (2e-7, False)])
def test_policy_that_hardly_lets_time_pass_is_stopped(step_s: float, is_stuck: bool) -> None:
    _, alloc, _ = scheduler("fifo", Setting(cluster=ONE))
    engine = Engine(State(ONE), Creeping(step_s, times=15_000), alloc)  # type: ignore[arg-type]  # as far as asked
    told = "keeps asking to be woken within 0.001 s of" if is_stuck else "job a never ends"

    with pytest.raises(RotaError, match=told):
        run(engine, World(ONE, SpeedModel(), Costs()), workload((0.0, job("a"))).submissions)


# -- faults --------------------------------------------------------------------------------------


def test_random_faults_alternate_and_are_in_order() -> None:
    faults = faults_at_random(FOUR, FaultRates(mean_time_to_failure_s=100.0, mean_time_to_repair_s=10.0), rng())
    drawn = [next(faults) for _ in range(400)]

    assert [at_s for at_s, _ in drawn] == sorted(at_s for at_s, _ in drawn)
    assert [type(event) for _, event in drawn] == [NodeLost, NodeBack] * 200


def rng(seed: int = 7) -> random.Random:
    return random.Random(seed)


def test_random_faults_have_the_rates_asked_for() -> None:
    of = Cluster.uniform(("gpu", 20, 1))
    rates = FaultRates(mean_time_to_failure_s=100.0, mean_time_to_repair_s=10.0)
    faults = faults_at_random(of, rates, rng())
    down_since: dict[str, float] = {}
    repairs: list[float] = []
    lost = 0
    now_s = 0.0
    while now_s < 10_000.0:
        now_s, event = next(faults)
        if isinstance(event, NodeLost):
            lost += 1
            down_since[event.node_id] = now_s
        elif isinstance(event, NodeBack):
            repairs.append(now_s - down_since.pop(event.node_id))

    assert lost == pytest.approx(20 * 10_000 / 110, rel=0.1)
    assert sum(repairs) / len(repairs) == pytest.approx(10.0, rel=0.1)


def test_random_faults_depend_on_the_seed_alone() -> None:
    rates = FaultRates(mean_time_to_failure_s=100.0)

    def drawn(seed: int) -> list[tuple[float, Event]]:
        faults = faults_at_random(FOUR, rates, rng(seed))
        return [next(faults) for _ in range(20)]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_study_draws_its_faults_from_its_seed() -> None:
    of = workload((0.0, job("a", work=500.0)))
    rates = FaultRates(mean_time_to_failure_s=50.0, mean_time_to_repair_s=5.0)

    first = ends(of, fault_rates=rates, seed=1, costs=Costs(checkpoint_interval_s=5.0))

    assert first == ends(of, fault_rates=rates, seed=1, costs=Costs(checkpoint_interval_s=5.0))
    assert first != ends(of, fault_rates=rates, seed=2, costs=Costs(checkpoint_interval_s=5.0))
    assert first[0] is not None
    assert first[0] > 500.0


@pytest.mark.parametrize("fields", [{"mean_time_to_failure_s": 0.0}, {"mean_time_to_repair_s": float("inf")}])
def test_wrong_rates_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(RotaError, match="must be a number of seconds above 0"):
        FaultRates(**({"mean_time_to_failure_s": 10.0} | fields))


def test_listed_faults_come_in_order() -> None:
    listed = [(9.0, NodeId("n1"), True), (3.0, NodeId("n1"), False)]

    assert list(faults_from(listed, [NodeId("n1")])) == [(3.0, NodeLost(NodeId("n1"))), (9.0, NodeBack(NodeId("n1")))]


def test_listed_fault_of_an_unknown_node_is_refused() -> None:
    with pytest.raises(RotaError, match="names node 'n9', which the cluster does not have"):
        list(faults_from([(3.0, NodeId("n9"), False)], [NodeId("n1")]))


# -- studies -------------------------------------------------------------------------------------


def test_placement_is_the_policys_own_unless_it_is_given() -> None:
    assert scheduler("tiresias", Setting(cluster=ONE))[2] == "skew"
    assert scheduler("tiresias", Setting(cluster=ONE, placement="any"))[2] == "any"


def test_unknown_device_type_is_refused() -> None:
    submissions = workload((0.0, job("a", device_types=(DeviceType("gpv"),)))).submissions

    with pytest.raises(RotaError, match="job a asks for device type 'gpv', which the cluster lacks; did you mean"):
        refuse_unknown_types(submissions, ONE)
    refuse_unknown_types(workload((0.0, job("a", device_types=(DeviceType("gpu"),)))).submissions, ONE)


def test_oversized_jobs_are_named_with_their_reason() -> None:
    relaxing = job("relaxes", workers=4, cpu_milli=2000, locality=Locality(hard=True, relax_after_s=60.0))
    insists = job("insists", workers=4, cpu_milli=2000, locality=Locality(hard=True))
    small = job("small", workers=8, elastic=Elastic(min_tasks=2, max_tasks=8))
    of = cluster(node("n1", 4, cpu_milli=4000), node("n2", 4, cpu_milli=4000))
    jobs = [job("big", workers=9), relaxing, insists, small, job("too", gpus=5)]
    submissions = workload(*((0.0, asked) for asked in jobs)).submissions

    misfits = oversized(submissions, Setting(cluster=of))

    assert [(asked.id, why.split(";")[0]) for asked, why in misfits] == [
        (JobId("big"), "needs 9 devices"),
        (JobId("insists"), "needs 4 devices close together"),
        (JobId("too"), "needs 5 devices"),
    ]


def test_history_tells_each_jobs_life() -> None:
    of = workload((0.0, job("a", gpus=1, work=10.0, name="first", user="ann")), (2.0, job("b", work=3.0)))
    history = simulate(of, "srtf", Setting(cluster=ONE, costs=Costs(restart_s=3.0))).history
    a, b = history.jobs

    assert (a.id, a.name, a.user, a.state, a.gpus, a.tasks) == ("a", "first", "ann", "succeeded", 1.0, 1)
    assert (a.submit_s, a.start_s, a.end_s) == (0.0, 0.0, 16.0)
    assert (a.run_s, a.wait_s, a.gpu_s, a.ideal_s) == (13.0, 3.0, 13.0, 10.0)
    assert (a.preemptions, a.overhead_s, a.lost_s) == (1, 3.0, 0.0)
    assert (b.start_s, b.end_s, b.wait_s) == (2.0, 5.0, 0.0)
    assert (history.devices, history.free_device_s) == (1, 0.0)


def test_decisions_name_their_job() -> None:
    seen: list[Decision] = []

    class Keep:
        def append(self, now_s: float, events: object, decisions: list[Decision], waits: object) -> None:
            seen.extend(decisions)

    simulate(workload((0.0, job("a", work=1.0))), "fifo", Setting(cluster=ONE), journal=Keep())  # type: ignore[arg-type]  # lists are what it gets

    assert [decision.job_id for decision in seen] == ["a"]


def test_whoever_takes_the_place_waits_until_the_state_is_saved() -> None:
    """`a` does 2 of 10 and saves until 6; `b` runs until 9; `a` does the other 8."""
    of = workload((0.0, job("a", work=10.0)), (2.0, job("b", work=3.0)))

    assert ends(of, "srtf", costs=Costs(checkpoint_s=4.0)) == [9.0 + 8.0, 9.0]


def test_rounds_leave_no_time_to_save_a_state() -> None:
    of = workload((0.0, job("a", work=10.0)))

    with pytest.raises(RotaError, match="leave --checkpoint-time at 0"):
        ends(of, "gavel/max_min_fairness", costs=Costs(checkpoint_s=4.0))


def test_the_cluster_changes_while_jobs_run() -> None:
    """Two jobs of 10 s: `b` waits for a device until the second node joins at 4."""
    of = workload((0.0, job("a", work=10.0)), (0.0, job("b", work=10.0)))
    wider = Cluster(nodes=(*ONE.nodes, node("n9", 1)))

    assert ends(of, changes=((4.0, wider),)) == [10.0, 14.0]


def test_a_job_runs_on_where_its_node_is_taken_away() -> None:
    """`a` runs on the node that goes at 4; `b`, which comes at 5, has to wait for the one that is left."""
    two = Cluster(nodes=(*ONE.nodes, node("n9", 1)))
    of = workload((0.0, job("a", work=10.0)), (1.0, job("c", work=10.0)), (5.0, job("b", work=10.0)))
    setting = Setting(cluster=two, changes=((4.0, Cluster(nodes=two.nodes[1:])),))

    history = simulate(of, "fifo", setting).history

    assert [row.end_s for row in history.jobs] == [10.0, 11.0, 21.0]


def test_shares_change_in_a_study() -> None:
    """`b` may claim its device from 4 on, and takes it from `a2`, which goes on when `a1` ends."""
    nodes = Cluster.uniform(("gpu", 2, 1)).nodes
    shares = [
        TenantPlan(shares={TenantId(name): Share(guaranteed={ANY_TYPE: gpus}) for name, gpus in split.items()})
        for split in ({"a": 2, "b": 0}, {"a": 1, "b": 1})
    ]
    setting = Setting(
        cluster=Cluster(nodes=nodes, tenants=shares[0]),
        tenancy="quota",
        changes=((4.0, Cluster(nodes=nodes, tenants=shares[1])),),
    )
    of = workload(
        (0.0, job("a1", work=10.0, tenant="a")),
        (0.0, job("a2", work=10.0, tenant="a")),
        (1.0, job("b", work=10.0, tenant="b")),
    )

    history = simulate(of, "fifo", setting).history

    assert [row.end_s for row in history.jobs] == [10.0, 16.0, 14.0]
