"""The number of tasks as a decision: in the program, in the account of rounds, on devices, in the simulator's speed."""

from __future__ import annotations

import pytest

from builders import World, job, on
from rota.core.errors import RotaError
from rota.core.messages.decisions import Lease, Renew, Resize, Start
from rota.core.messages.events import Lapsed, Resized
from rota.core.model.cluster import Cluster
from rota.core.model.job import DeviceType, Elastic, JobId
from rota.core.model.placement import tasks_of
from rota.core.state.job_record import LiveJob
from rota.drivers.simulator.study import Setting, simulate
from rota.mechanisms.rounds.elastic_shares import elastic_round_job, sizes_of
from rota.mechanisms.rounds.rule import ShareQuestion, sized
from rota.perf.speed.model import SpeedModel
from rota.policies import find_policy
from rota.policies.published.gavel.declare import SizeParams
from rota.policies.published.gavel.max_min import MaxMin
from rota.policies.published.gavel.throughput import MaxSumThroughput
from rota.traces.workload import Submission, Workload

GPU = (DeviceType("gpu"),)
SQUARE_ROOT = SpeedModel(scaling=0.5)


def stretchy(name: str, *, low: int = 1, high: int = 4, workers: int = 1, work: float = 1000.0) -> LiveJob:
    made = job(name, workers=workers, elastic=Elastic(min_tasks=low, max_tasks=high), work=work)
    return LiveJob(made, int(name[1:]), 0.0, 1.0)


def asked(*jobs: LiveJob, devices: int, speed: SpeedModel = SQUARE_ROOT) -> ShareQuestion:
    made = []
    for live in jobs:
        able_at = {tasks: [tasks <= devices] for tasks in sizes_of(live.job)}
        made.append(elastic_round_job(live, speed, GPU, able_at, (devices,)))
    return ShareQuestion(0.0, made, GPU, (devices,), lambda one, other: pytest.fail("nobody is packed"))


def test_sizes_are_the_bounds_the_asked_and_powers_of_two() -> None:
    assert sizes_of(job(workers=5, elastic=Elastic(min_tasks=3, max_tasks=24))) == [3, 4, 5, 8, 16, 24]
    assert sizes_of(job(workers=5)) == []


def test_one_job_alone_has_all_devices() -> None:
    """Speeds 1, sqrt 2, 2 with 1, 2, 4 tasks: with four devices to itself, four tasks all the time."""
    shares = MaxMin(SizeParams(), sees_types=True).shares(asked(stretchy("j0"), devices=4))

    assert shares[0,] == pytest.approx([0.0])
    assert shares[sized(0, 4)] == pytest.approx([1.0])


def test_two_alike_jobs_halve_the_devices() -> None:
    """On four devices, two tasks each are worth 1.41; half the time with all four is worth 1."""
    shares = MaxMin(SizeParams(), sees_types=True).shares(asked(stretchy("j0"), stretchy("j1"), devices=4))

    for seq in (0, 1):
        assert shares[sized(seq, 2)] == pytest.approx([1.0])


def test_half_the_devices_all_the_time_are_better_than_all_of_them_in_turn() -> None:
    """Where twice the tasks are twice as fast both do the same, but who takes turns is restarted."""
    question = asked(stretchy("j0"), stretchy("j1"), devices=4, speed=SpeedModel())

    shares = MaxMin(SizeParams(), sees_types=True).shares(question)

    for seq in (0, 1):
        assert shares[sized(seq, 2)] == pytest.approx([1.0])
        assert sized(seq, 4) not in shares


def test_most_throughput_gives_up_tasks_for_more_jobs() -> None:
    """Four jobs that ask for four devices each: one device each is worth 4 x 1/2, all for one of them 1."""
    four = [stretchy(f"j{seq}", workers=4) for seq in range(4)]

    shares = MaxSumThroughput(SizeParams()).shares(asked(*four, devices=4))

    for seq in range(4):
        assert shares[sized(seq, 1)] == pytest.approx([1.0])


def test_job_that_asks_for_too_much_runs_at_the_nearest_size() -> None:
    question = asked(stretchy("j0", low=2, high=16, workers=16), devices=8)

    shares = MaxMin(SizeParams(), sees_types=True).shares(question)

    assert question.jobs[0].tasks == 8
    assert shares[0,] == pytest.approx([1.0])


def test_round_resizes_who_runs_when_another_comes() -> None:
    world = World(gpus=4, policy="gavel/max_min_fairness_perf:compat=none,elastic=true,round_s=100", speed=SQUARE_ROOT)
    (first,) = world.submit("a", work=4000.0, elastic=Elastic(min_tasks=1, max_tasks=4))
    assert isinstance(first, Start)
    assert tasks_of(first.placement) == 4
    assert first.lease == Lease(200.0, 100.0)

    world.started("a")
    world.submit("b", work=4000.0, elastic=Elastic(min_tasks=1, max_tasks=4))
    world.pass_s(100.0)
    decisions = world.step(Lapsed(JobId("a"), 200.0))

    resized, renewed = decisions
    assert isinstance(resized, Resize)
    assert isinstance(renewed, Renew)
    assert resized.placement == on("n1", [0, 1], tasks=2)
    assert renewed.lease == Lease(341.0, 200.0)
    (started,) = world.step(Resized(JobId("a"), 200.0, 2**0.5, 100.0))
    assert started == Start(JobId("b"), on("n1", [2, 3], tasks=2), Lease(141.0, 200.0))


def test_simulated_speed_is_that_of_the_size() -> None:
    """Two jobs of 1000 s at one task, on two nodes of four devices, speed sqrt(tasks).

    Together each has four devices and runs twice as fast: both end after 500 s. Without it they take 1000 s.
    """
    jobs = [stretchy(f"j{seq}").job for seq in range(2)]
    workload = Workload(
        submissions=tuple(Submission(submit_s=0.0, job=each) for each in jobs), source="made up", format="jobs"
    )
    setting = Setting(cluster=Cluster.uniform(("gpu", 8, 4)), speed=SQUARE_ROOT)

    ends = {}
    for choice in ("false", "true"):
        policy = f"gavel/max_min_fairness_perf:compat=none,round_s=100,elastic={choice}"
        ends[choice] = max(row.end_s or 0.0 for row in simulate(workload, policy, setting).history.jobs)

    assert ends == {"false": pytest.approx(1000.0), "true": pytest.approx(500.0)}


@pytest.mark.parametrize(
    "name", ["fifo", "isolated", "gandiva", "max_min_fairness", "max_min_fairness_strategy_proof_perf"]
)
def test_policies_that_know_no_sizes_refuse_it_by_name(name: str) -> None:
    declared, _ = find_policy(f"gavel/{name}")

    with pytest.raises(RotaError, match=f"policy 'gavel/{name}' has no parameter 'elastic'"):
        declared.read("compat=none,elastic=true")


def test_published_simulator_has_no_sizes() -> None:
    declared, _ = find_policy("gavel/max_min_fairness_perf")

    with pytest.raises(RotaError, match=r"elastic=true needs compat=none"):
        declared.read("elastic=true")
