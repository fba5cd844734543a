"""Liquid one by one and in batches, against small courses of events that were worked out by hand."""

from __future__ import annotations

import random

import pytest

from builders import GIB, cluster, job, node
from rota.core.engine.engine import Engine
from rota.core.engine.invariants import check
from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.core.model.job import Job, JobState, Role
from rota.core.state.history import JobRow
from rota.core.state.state import State
from rota.drivers.simulator.faults import faults_at_random
from rota.drivers.simulator.run import run as run_all
from rota.drivers.simulator.study import Setting, scheduler, simulate
from rota.drivers.simulator.world import World
from rota.perf.speed.model import Costs, SpeedModel
from rota.policies import find_policy
from rota.scenario import FaultRates
from rota.traces.workload import Submission, Workload

TWO_RACKS = cluster(*(node(f"n{i}", 4, rack=f"r{i // 2}", device_memory_bytes=16 * GIB) for i in range(4)))


def run(
    policy: str,
    *jobs: tuple[float, Job],
    speed: SpeedModel | None = None,
    seed: int = 0,
    costs: Costs | None = None,
    on: Cluster = TWO_RACKS,
) -> dict[str, JobRow]:
    submissions = tuple(Submission(job=asked, submit_s=at_s) for at_s, asked in jobs)
    setting = Setting(cluster=on, speed=speed or SpeedModel(), seed=seed, costs=costs or Costs())
    history = simulate(Workload(submissions=submissions, source="test", format="rota"), policy, setting).history
    return {row.id: row for row in history.jobs}


def single(name: str, use: float, gib: int = 1) -> Job:
    return job(name, work=100.0, labels=(("utilization", str(use)),), device_memory_bytes=gib * GIB)


def full(*extra: Job) -> list[tuple[float, Job]]:
    """Fifteen devices taken for good, one by a job that may share it, and then these."""
    return [(0.0, job("rest", workers=15, work=1000.0)), (0.0, single("host", 0.6)), *((1.0, each) for each in extra)]


def test_jobs_of_one_device_share_while_predicted_use_is_within_the_limit() -> None:
    assert run("liquid", *full(single("guest", 0.7)))["guest"].start_s == 1.0
    assert run("liquid", *full(single("guest", 0.75)))["guest"].start_s == 100.0
    assert run("liquid:limit=1.4", *full(single("guest", 0.75)))["guest"].start_s == 1.0


def test_memory_has_to_fit_beside_it() -> None:
    assert run("liquid", *full(single("guest", 0.5, gib=15)))["guest"].start_s == 1.0
    assert run("liquid", *full(single("guest", 0.5, gib=16)))["guest"].start_s == 100.0


def test_gangs_and_jobs_without_profile_share_no_device() -> None:
    gang = job("gang", workers=2, work=10.0, labels=(("utilization", "0.1"),))

    assert run("liquid", *full(gang))["gang"].start_s == 1000.0
    assert run("liquid", *full(job("blind", work=10.0)))["blind"].start_s == 100.0


def test_who_does_not_say_how_much_memory_it_needs_is_taken_to_need_the_usual() -> None:
    silent = job("silent", work=10.0, labels=(("utilization", "0.5"),))

    assert run("liquid", *full(silent))["silent"].start_s == 1.0
    roomless = [(0.0, job("rest", workers=15, work=1000.0)), (0.0, single("host", 0.6, gib=9)), (1.0, silent)]
    assert run("liquid", *roomless)["silent"].start_s == 100.0


@pytest.mark.parametrize(
    ("policy", "otherwise"),
    [("liquid", "liquid:overlap=false"), ("liquid-batch:work=99", "liquid-batch:work=99,overlap=false")],
    ids=["liquid", "batch"],
)
def test_the_next_job_loads_while_the_one_before_saves(policy: str, otherwise: str) -> None:
    jobs = [(0.0, job(name, workers=16, work=100.0)) for name in ("a", "b")]
    costs = Costs(load_s=10.0, save_s=5.0)

    overlapped = run(policy, *jobs, costs=costs)
    assert (overlapped["a"].end_s, overlapped["b"].start_s, overlapped["b"].end_s) == (115.0, 110.0, 225.0)
    apart = run(otherwise, *jobs, costs=costs)
    assert (apart["a"].end_s, apart["b"].start_s, apart["b"].end_s) == (115.0, 115.0, 230.0)


def test_rounds_leave_no_time_to_save() -> None:
    with pytest.raises(RotaError, match="--save-time"):
        run("gavel/fifo", (0.0, job("a", work=10.0)), costs=Costs(save_s=5.0))


SPREAD = SpeedModel(network=1.0)


def stubs() -> list[tuple[float, Job]]:
    """Who leaves two devices on n0 and one on each of the others."""
    sizes = (2, 3, 3, 3)
    return [(0.0, job(f"s{i}", gpus=size, work=900.0)) for i, size in enumerate(sizes)]


def test_a_batch_avoids_what_one_by_one_runs_into() -> None:
    heavy = job("heavy", workers=2, work=100.0, network_bps=8_000_000_000)
    light = job("light", workers=2, work=100.0)

    # Only n0 has two devices left. Together they go to the job that sends most.
    one_by_one = run("liquid", *stubs(), (1.0, light), (1.0, heavy), speed=SPREAD)
    together = run("liquid-batch", *stubs(), (1.0, light), (1.0, heavy), speed=SPREAD)

    assert together["heavy"].run_s == 100.0
    assert together["heavy"].run_s + together["light"].run_s < one_by_one["heavy"].run_s + one_by_one["light"].run_s


@pytest.mark.slow
def test_a_batch_is_placed_the_same_again() -> None:
    jobs = [(0.0, job(f"j{i}", workers=3 + i % 3, work=100.0 + i)) for i in range(6)]

    assert run("liquid-batch", *jobs, speed=SPREAD, seed=3) == run("liquid-batch", *jobs, speed=SPREAD, seed=3)


@pytest.mark.slow
def test_wishes_of_jobs_and_other_roles_hold_in_a_batch() -> None:
    served = job("served", work=50.0, roles=(Role(name="ps", device_milli=0), Role(count=6)))
    lonely = job("lonely", workers=4, work=50.0, exclusive=True)
    rows = run("liquid-batch", (0.0, served), (0.0, lonely))

    assert {name: row.end_s for name, row in rows.items()} == {"served": 50.0, "lonely": 50.0}


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["liquid:h=nodes", "liquid-batch:h=nodes"])
def test_no_job_is_across_domains_where_that_is_too_far(policy: str) -> None:
    domains = cluster(*(node(f"n{i}", 4, rack=f"r{i}", domain=f"d{i // 2}") for i in range(4)))
    first, second = job("first", workers=6, work=100.0), job("second", workers=6, work=100.0)
    third = job("third", workers=3, work=100.0)

    rows = run(policy, (0.0, first), (0.0, second), (0.0, third), on=domains)

    # Two devices are left in each domain: enough together, but not for one job.
    assert rows["third"].start_s == 100.0


@pytest.mark.parametrize("spec", ["liquid:h=far", "liquid-batch:h=far", "liquid-batch:work=-1", "liquid:limit=0"])
def test_mistakes_are_named(spec: str) -> None:
    declared, options = find_policy(spec)
    with pytest.raises(RotaError, match=r"(h|work|limit) is"):
        declared.read(options)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["liquid", "liquid-batch:work=300"])
@pytest.mark.parametrize("seed", range(2))
def test_phases_sharing_and_faults_at_random_keep_the_books_right(policy: str, seed: int) -> None:
    chance = random.Random(seed)
    submissions = []
    for number in range(30):
        tasks = chance.choice((1, 1, 1, 2, 3, 8))
        asked = job(
            f"j{number}",
            workers=tasks,
            work=chance.uniform(5.0, 200.0),
            labels=(("utilization", chance.choice(("0.2", "0.5", "0.9"))),),
            cpu_milli=chance.choice((0, 500, 1000)),
            device_memory_bytes=chance.choice((0, 4 * GIB)),
            exclusive=chance.random() < 0.1,
        )
        submissions.append(Submission(job=asked, submit_s=number * 10.0))
    setting = Setting(
        cluster=cluster(*(node(f"n{i}", 4, device_memory_bytes=16 * GIB, cpu_milli=6000) for i in range(4))),
        speed=SpeedModel(network=0.05, device_neighbour=0.8),
        costs=Costs(load_s=chance.uniform(0.0, 20.0), save_s=chance.uniform(1.0, 30.0)),
        seed=seed,
    )
    built, alloc, _ = scheduler(policy, setting)
    state = State(setting.cluster)
    engine = Engine(state, built, alloc, journal=Checked(state))
    world = World(setting.cluster, setting.speed, setting.costs, overlaps=engine.overlaps)
    rates = FaultRates(mean_time_to_failure_s=900.0, mean_time_to_repair_s=60.0)
    run_all(engine, world, submissions, faults=faults_at_random(setting.cluster, rates, chance))

    assert all(live.state is JobState.SUCCEEDED for live in state.jobs.values())


class Checked:
    """A journal that checks the state after every step."""

    def __init__(self, state: State) -> None:
        self._state = state

    def append(self, *step: object) -> None:
        check(self._state)
