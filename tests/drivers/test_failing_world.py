"""Simulations in which machines fail, with losses worked out by hand."""

from __future__ import annotations

import itertools
import random

import pytest

from builders import job
from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.core.model.job import Job, NodeId
from rota.drivers.simulator.failing_world import FailingWorld
from rota.drivers.simulator.faults import _SpareEvents, failure_events
from rota.drivers.simulator.study import Result, Setting, failures_by_name, simulate
from rota.health.checkpoint_interval import expected_ettr, mean_time_to_failure, young
from rota.health.failure_model import FailureModel, JobFaultClass
from rota.health.failure_process import Breakdown
from rota.perf.speed.model import Costs, SpeedModel
from rota.traces.workload import Submission, Workload

DAY_S = 86_400.0
FOUR = Cluster.uniform(("gpu", 8, 2))


def run(spec: str, *jobs: Job, cluster: Cluster = FOUR, seed: int = 0, **costs: float) -> Result:
    workload = Workload(submissions=tuple(Submission(job=each, submit_s=0.0) for each in jobs), source="", format="")
    failures = failures_by_name(spec) if spec else None
    return simulate(workload, "fifo", Setting(cluster=cluster, failures=failures, seed=seed, costs=Costs(**costs)))


def struck(after_s: float, detect_s: float = 30.0, **costs: float) -> tuple[FailingWorld, list[float]]:
    """A world whose only job, on two nodes, is struck after so long; and the work that is kept when it is noticed."""
    from builders import on, start
    from rota.core.messages.events import Interrupted, NodeLost

    model = FailureModel(name="none")
    world = FailingWorld(FOUR, SpeedModel(), Costs(**costs), None, model, 0)
    world.expect(Submission(job=job("a", gpus=2, workers=2, work=1000.0), submit_s=0.0))
    world.carry_out([start("a", on("n1", 2), on("n2", 2))], 0.0)
    nodes = FOUR.nodes
    world.strike(
        Breakdown(
            at_s=after_s,
            nodes=(nodes[0].id,),
            cause="gpu",
            detected_s=after_s + detect_s,
            repaired_s=(after_s + 1000.0,),
        ),
        after_s,
    )
    events = world.lose(NodeLost(nodes[0].id), after_s + detect_s)
    return world, [event.work for event in events if isinstance(event, Interrupted)]


def test_a_failure_undoes_work_since_the_checkpoint_and_holds_devices_until_it_is_noticed() -> None:
    world, kept = struck(250.0, checkpoint_interval_s=90.0, checkpoint_write_s=10.0)

    loss = world.causes_until(2000.0)["gpu"]
    assert kept == [pytest.approx(180.0)]  # two whole periods of 100 s, 90 s of work each
    assert (loss.breakdowns, loss.interruptions) == (1, 1)
    assert loss.work_s == pytest.approx(4 * 50.0)
    assert loss.undetected_s == pytest.approx(4 * 30.0)
    assert loss.repair_s == pytest.approx(2 * 970.0)


def test_without_failures_only_checkpoints_take_time() -> None:
    result = run("", job("a", gpus=2, workers=4, work=900.0), checkpoint_interval_s=90.0, checkpoint_write_s=10.0)

    assert result.failures is not None
    assert result.history.jobs[0].end_s == pytest.approx(1000.0)
    assert result.failures.ettr == pytest.approx(0.9)


def test_nothing_is_reported_and_the_plain_world_runs_where_nothing_fails() -> None:
    assert run("", job("a", work=10.0), checkpoint_interval_s=90.0).failures is None


@pytest.mark.parametrize("nodes", [16, 64])
def test_ettr_is_that_of_the_formula(nodes: int) -> None:
    mttf_s = mean_time_to_failure(nodes, 200.0)
    interval_s = young(60.0, mttf_s)
    large = job("a", gpus=8, workers=nodes, work=400 * mttf_s)
    cluster = Cluster.uniform(("gpu", 8 * (nodes + 10), 8))

    result = run(
        "custom:rate=200,detect_s=60,repair_s=60",
        large,
        cluster=cluster,
        restart_s=240.0,
        checkpoint_interval_s=interval_s,
        checkpoint_write_s=60.0,
    )

    assert result.failures is not None
    assert result.failures.ettr == pytest.approx(expected_ettr(interval_s, 60.0, mttf_s, 300.0), rel=0.05)


def test_adaptive_interval_is_as_good_as_young_and_better_than_blind_ones() -> None:
    cluster = Cluster.uniform(("gpu", 80, 8))
    asked = job("a", gpus=8, workers=8, work=300 * DAY_S)
    ettr = {}
    for name, spec, interval_s in (
        ("adaptive", "custom:rate=200,repair_s=60,adaptive=true", 0.0),
        ("10 min", "custom:rate=200,repair_s=60", 600.0),
        ("6 h", "custom:rate=200,repair_s=60", 21_600.0),
    ):
        report = run(
            spec, asked, cluster=cluster, checkpoint_interval_s=interval_s, restart_s=240.0, checkpoint_write_s=60.0
        ).failures
        assert report is not None
        assert report.ettr is not None
        ettr[name] = report.ettr
    assert ettr["adaptive"] > max(ettr["10 min"], ettr["6 h"]) + 0.02


def test_a_spare_takes_the_place_of_a_lost_node_and_the_repaired_one_becomes_the_spare() -> None:
    from rota.core.messages.events import NodeBack, NodeDrained, NodeLost, NodeUndrained

    spares = _SpareEvents(FOUR, 1)
    first, *_, last = (node.id for node in FOUR.nodes)

    assert spares.at_start() == [NodeDrained(last)]
    assert spares.lose(first) == [NodeUndrained(last), NodeLost(first)]
    assert spares.lose(NodeId("x")) == [NodeLost(NodeId("x"))]
    assert spares.repair(NodeId("x")) == [NodeUndrained(NodeId("x")), NodeBack(NodeId("x"))]
    assert spares.repair(first) == [NodeDrained(first), NodeBack(first)]


def test_a_repaired_node_is_unproven_for_longer_after_every_failure() -> None:
    from rota.core.messages.events import NodeBack, NodeRated
    from rota.core.model.cluster import NodeTrust

    model = failures_by_name("custom:rate=200,repair_s=3600,proven_s=1000")
    repairs: dict[NodeId, int] = {}
    due: dict[NodeId, float] = {}
    rated: set[NodeId] = set()
    for at_s, event in failure_events(FOUR, model, random.Random(3)):
        if at_s > 200 * DAY_S:
            break
        if isinstance(event, NodeBack):
            repairs[event.node_id] = repairs.get(event.node_id, 0) + 1
            due[event.node_id] = at_s + 1000.0 * repairs[event.node_id]
            assert event.node_id in rated  # before it takes jobs
        if isinstance(event, NodeRated) and event.trust is NodeTrust.UNPROVEN:
            rated.add(event.node_id)
        if isinstance(event, NodeRated) and event.trust is NodeTrust.PROVEN:
            assert at_s == pytest.approx(due.pop(event.node_id))
            rated.remove(event.node_id)

    assert min(repairs.values()) > 10
    assert not any(isinstance(event, NodeRated) for event in first_events("custom:rate=200"))


def first_events(spec: str) -> list[object]:
    drawn = failure_events(FOUR, failures_by_name(spec), random.Random(3))
    return [event for _, event in itertools.islice(drawn, 200)]


def test_a_gang_that_avoids_repaired_nodes_fails_less_where_some_nodes_are_lemons() -> None:
    cluster = Cluster.uniform(("gpu", 64, 2))
    stops = []
    for proven_s in (0, 86_400):
        spec = f"rsc-1:rate=50,repair_s=43200,lemons=0.1,lemon_factor=10,proven_s={proven_s}"
        seen = [
            run(spec, job("gang", gpus=2, workers=20, work=30 * DAY_S), cluster=cluster, seed=seed).failures
            for seed in range(5)
        ]
        stops.append(sum(report.interruptions for report in seen if report is not None))

    assert stops[1] < 0.85 * stops[0]


def test_too_many_spares_are_refused() -> None:
    with pytest.raises(RotaError, match="spares is 4; the cluster has 4 nodes"):
        next(failure_events(FOUR, failures_by_name("rsc-1:spares=4"), random.Random(0)))


def test_a_job_with_a_fault_of_its_own_fails_after_its_tries_and_loses_all() -> None:
    kind = JobFaultClass(name="syntax-error", weight=1.0, mean_s=10.0, repeats=True)
    model = FailureModel(name="own", job_classes=(kind,), job_failures=1.0, tries=2)
    workload = Workload(submissions=(Submission(job=job("a", gpus=2, work=1e5), submit_s=0.0),), source="", format="")

    result = simulate(workload, "fifo", Setting(cluster=FOUR, failures=model))

    (row,) = result.history.jobs
    assert row.state == "failed"
    assert result.failures is not None
    loss = result.failures.causes["syntax-error"]
    assert loss.interruptions == 2
    assert loss.work_s == pytest.approx(2 * row.run_s)
    assert result.failures.ettr == pytest.approx(0.0)


def test_a_passing_fault_costs_one_attempt() -> None:
    kind = JobFaultClass(name="mpi-error", weight=1.0, mean_s=10.0, repeats=False)
    model = FailureModel(name="own", job_classes=(kind,), job_failures=1.0)
    workload = Workload(submissions=(Submission(job=job("a", gpus=2, work=1e5), submit_s=0.0),), source="", format="")

    result = simulate(workload, "fifo", Setting(cluster=FOUR, failures=model))

    assert result.history.jobs[0].state == "succeeded"
    assert result.history.jobs[0].restarts == 1


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("rsc-9", "unknown failures 'rsc-9'"),
        ("rsc-1:spare=1", "no parameter 'spare'"),
        ("philly:rate=3", "leave rate out"),
    ],
)
def test_unknown_names_are_refused(spec: str, said: str) -> None:
    with pytest.raises(RotaError, match=said):
        failures_by_name(spec)


def test_write_time_needs_an_interval() -> None:
    with pytest.raises(RotaError, match="--checkpoint-write needs"):
        Setting(cluster=FOUR, costs=Costs(checkpoint_write_s=5.0))
