"""AlloX: matchings by hand, fairness between users, and jobs that run on CPU or GPU."""

from __future__ import annotations

import itertools
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import World, job
from rota.core.errors import RotaError
from rota.core.messages.events import JobArrived
from rota.core.model.cluster import Cluster
from rota.core.model.job import DeviceType
from rota.drivers.simulator.study import Setting, simulate
from rota.mechanisms.solvers import assignment
from rota.mechanisms.solvers.assignment import earliest, first_places, queues, worthwhile_places
from rota.mechanisms.solvers.lp import Ints
from rota.perf.profiles.speed_table import Profiles
from rota.perf.speed.model import SpeedModel
from rota.policies import find_policy
from rota.traces.workload import Submission, Workload

GPU, CPU = DeviceType("gpu"), DeviceType("cpu")
SPEED = SpeedModel(
    profiles=Profiles(
        steps_per_s={
            (GPU, "gpu-bound", 1): 1.0,
            (CPU, "gpu-bound", 1): 0.1,
            (GPU, "either", 1): 1.0,
            (CPU, "either", 1): 0.8,
            (GPU, "middling", 1): 1.0,
            (CPU, "middling", 1): 0.4,
        },
        source="test",
    )
)


def ends(*submissions: Submission, cluster: Cluster, policy: str = "allox") -> dict[str, float | None]:
    workload = Workload(submissions=submissions, source="test", format="rota", counts_steps=True)
    history = simulate(workload, policy, Setting(cluster=cluster, speed=SPEED)).history
    return {row.id: row.end_s for row in history.jobs}


def submission(name: str, work: float, at_s: float = 0.0, model: str = "gpu-bound", user: str = "u") -> Submission:
    return Submission(job=job(name, work=work, model=model, user=user), submit_s=at_s)


def test_short_jobs_go_first_on_one_device() -> None:
    # On one device the least sum of completion times is the shortest first: 10, then 10 + 20, then 30 + 30.
    one = Cluster.uniform(("gpu", 1, 1))

    assert ends(submission("c", 30.0), submission("a", 10.0), submission("b", 20.0), cluster=one) == {
        "a": 10.0,
        "b": 30.0,
        "c": 60.0,
    }


def test_job_that_loses_least_goes_to_the_cpu() -> None:
    # Job a takes 100 s on the GPU and 1000 s on the CPU, job b 100 s and 125 s. Both on the GPU: 100 + 200 = 300;
    # a on the GPU and b on the CPU: 100 + 125 = 225; the other way round: 1000 + 100 = 1100.
    both = Cluster.uniform(("gpu", 1, 1), ("cpu", 1, 1))

    found = ends(submission("b", 100.0, model="either"), submission("a", 100.0), cluster=both)

    assert found == {"a": 100.0, "b": 125.0}


def test_waiting_for_the_gpu_beats_an_idle_cpu() -> None:
    # The second job would take 1000 s on the idle CPU; the GPU is free after 100 s, and 100 + 100 is sooner. Places:
    # on the CPU 1 x 1000, on the GPU 1 x 100 behind the 100 that the first job has left, as it came at the same time.
    both = Cluster.uniform(("gpu", 1, 1), ("cpu", 1, 1))

    assert ends(submission("a", 100.0), submission("b", 100.0, 1.0), cluster=both) == {"a": 100.0, "b": 200.0}


def test_users_with_least_progress_are_matched_first() -> None:
    # One GPU of two is free at 50 s. User u holds the other, so only v is matched (alpha 0.1 of 2 users is 1), though
    # u's job is shorter. With alpha = 1 both are, and the shorter goes first.
    two = Cluster.uniform(("gpu", 2, 2))
    jobs = [
        submission("u1", 1000.0, user="u"),
        submission("x1", 50.0, user="x"),
        submission("u2", 10.0, 1.0, user="u"),
        submission("v1", 20.0, 1.0, user="v"),
    ]

    fair, plain = ends(*jobs, cluster=two), ends(*jobs, cluster=two, policy="allox:alpha=1")

    assert (fair["v1"], fair["u2"]) == (70.0, 80.0)
    assert (plain["v1"], plain["u2"]) == (80.0, 60.0)


def test_who_is_matched_to_wait_has_its_place_before_later_batches() -> None:
    # From 1 on, v waits for the GPU: 99 + 100 is sooner than 250 on the CPU. At 2 user w is matched after v, alone
    # (alpha 0.1 of 2 users is 1). Behind v the GPU would take 98 + 100 + 100, so that the idle CPU is sooner: 2 + 250.
    both = Cluster.uniform(("gpu", 1, 1), ("cpu", 1, 1))
    jobs = [submission(user, 100.0, at, model="middling", user=user) for at, user in enumerate(("u", "v", "w"))]

    assert ends(*jobs, cluster=both) == {"u": 100.0, "v": 200.0, "w": 252.0}


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 8), min_size=1, max_size=12),
    devices=st.lists(st.integers(1, 12), min_size=2, max_size=3),
    works=st.randoms(use_true_random=False),
)
def test_gangs_leave_no_devices_idle_that_would_do(sizes: list[int], devices: list[int], works: Random) -> None:
    """Types are equally fast and all are free, so that no job gains by waiting."""
    world = World(of=Cluster.uniform(*((f"t{n}", many, many) for n, many in enumerate(devices))), policy="allox")
    jobs = [job(f"j{n}", workers=size, work=works.uniform(10, 999), user="u") for n, size in enumerate(sizes)]

    world.engine.step(0.0, [JobArrived(each) for each in jobs])

    free = max(pool.free for pool in world.state.inventory.pools)
    assert all(
        live.placement is not None or size > free for live, size in zip(world.state.jobs.values(), sizes, strict=True)
    )


def test_gangs_weigh_a_wait_against_a_slower_type() -> None:
    # Two gangs of 4 on 4 GPUs and 4 CPUs, where "either" takes 100 s and 125 s, "middling" 100 s and 250 s: the second
    # one of "either" is sooner on the CPUs, the second one of "middling" after the first on the GPUs.
    profiles = {
        (kind, model, 4): speed
        for model, slower in (("either", 0.8), ("middling", 0.4))
        for kind, speed in ((GPU, 1.0), (CPU, slower))
    }
    both = Cluster.uniform(("gpu", 4, 4), ("cpu", 4, 4))
    setting = Setting(cluster=both, speed=SpeedModel(profiles=Profiles(steps_per_s=profiles, source="test")))

    def ended(model: str) -> list[float]:
        jobs = (Submission(job=job(name, gpus=4, work=100.0, model=model), submit_s=0.0) for name in "ab")
        workload = Workload(submissions=tuple(jobs), source="test", format="rota", counts_steps=True)
        return sorted(row.end_s or 0.0 for row in simulate(workload, "allox", setting).history.jobs)

    assert ended("either") == [100.0, 125.0]
    assert ended("middling") == [100.0, 200.0]


def test_worthwhile_places_are_few() -> None:
    # Four jobs, three machines: all four places on the soonest machine, two on the second, one on the third.
    place, machine = worthwhile_places(np.array([5.0, 0.0, 9.0]), 4)

    assert sorted(zip(machine.tolist(), place.tolist(), strict=True)) == [
        (0, 1), (0, 2), (1, 1), (1, 2), (1, 3), (1, 4), (2, 1)
    ]  # fmt: skip


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=4),
    st.lists(st.integers(0, 20), min_size=2, max_size=2),
)
@settings(max_examples=60)
def test_matching_has_the_least_sum_of_completion_times(took: list[tuple[int, int]], free_in_s: list[int]) -> None:
    def total(on: tuple[int, ...], order: tuple[int, ...]) -> float:
        clock, done = [float(at) for at in free_in_s], 0.0
        for number in order:
            clock[on[number]] += took[number][on[number]]
            done += clock[on[number]]
        return done

    many = len(took)
    best = min(
        total(on, order)
        for on in itertools.product((0, 1), repeat=many)
        for order in itertools.permutations(range(many))
    )
    columns = [(place, at) for at in (0, 1) for place in range(1, many + 1)]
    place, machine = (np.array([column[at] for column in columns]) for at in (0, 1))
    took_s, wait_s = np.array(took, dtype=float), np.tile(np.array(free_in_s, dtype=float), (many, 1))
    fewer = [worthwhile_places(wait_s[0, at : at + 1], many) for at in (0, 1)]
    assert all(len(part[0]) == many for part in fewer)

    rest = dict(enumerate(range(many)))
    clock, done = [float(at) for at in free_in_s], 0.0
    while rest:
        rows = list(rest)
        firsts = earliest(took_s[rows], np.tile(np.array(clock), (len(rows), 1)), place, machine)
        at, row = min(firsts.items(), key=lambda first: clock[first[0]])
        job_number = rows[row]
        clock[at] += took[job_number][at]
        done += clock[at]
        del rest[job_number]

    assert done == pytest.approx(best)


@pytest.mark.parametrize("many", [3, 300], ids=["longest first", "as given"])
@pytest.mark.parametrize("seed", range(5))
def test_first_places_are_enough(seed: int, many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine jobs, two machines of one kind and three of another, all free: the cheapest nine places of each kind, and
    the sum of completion times is that with all places of all machines."""
    monkeypatch.setattr(assignment, "_MANY", many)
    kind = np.array([0, 1, 1, 0, 1])
    took_s = np.random.default_rng(seed).uniform(1.0, 30.0, (9, 2))[:, kind]
    none = np.zeros(took_s.shape)

    def total(place: Ints, machine: Ints) -> float:
        found = queues(took_s, none, place, machine)
        return sum(
            (len(rows) - at) * float(took_s[row, on]) for on, rows in found.items() for at, row in enumerate(rows)
        )

    fewer = first_places(kind, 9)

    assert np.bincount(kind[fewer[1]]).tolist() == [9, 9]
    assert total(*fewer) == pytest.approx(total(np.repeat(np.arange(1, 10), 5), np.tile(np.arange(5), 9)))


def test_impossible_alpha_is_refused() -> None:
    with pytest.raises(RotaError, match="alpha is 0; it must be above 0 and at most 1"):
        find_policy("allox")[0].read("alpha=0")
