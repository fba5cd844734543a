"""Device memory among jobs that share devices: Salus's lanes, AntMan's host memory; and jobs that wait for long."""

from __future__ import annotations

import pytest

from builders import GIB, World, cluster, job, node
from rota.core.model.job import DeviceType, Job
from rota.core.state.history import JobRow
from rota.drivers.simulator.study import Setting, simulate
from rota.perf.profiles.speed_table import Profiles
from rota.perf.speed.model import Costs, SpeedModel
from rota.traces.workload import Submission, Workload

GPU = DeviceType("gpu")
PAIRS = {("g", "o"): (8.0, 7.0), ("g", "g"): (8.0, 8.0), ("o", "o"): (7.0, 7.0)}
SPEED = SpeedModel(
    profiles=Profiles(
        steps_per_s={(GPU, name, 1): 10.0 for name in "go"},
        pairs={(GPU, *names, 1): rates for names, rates in PAIRS.items()} | {(GPU, "o", "g", 1): (7.0, 8.0)},
        source="test",
    )
)
"""A guaranteed job (g) keeps its device busy for 10 / 16 of the time, an opportunistic one (o) for 10 / 14."""


def needs(name: str, memory: int, **fields: object) -> Job:
    return job(name, device_memory_bytes=memory * GIB, **fields)  # type: ignore[arg-type]


def run(policy: str, *jobs: tuple[float, Job], gpus: int = 1, speed: SpeedModel = SPEED) -> dict[str, JobRow]:
    """What became of jobs on devices of 16 GiB, submitted when it is said."""
    submissions = tuple(Submission(job=asked, submit_s=at_s) for at_s, asked in jobs)
    setting = Setting(
        cluster=cluster(node("n1", gpus, device_memory_bytes=16 * GIB)), speed=speed, costs=Costs(move_s=5.0)
    )
    history = simulate(Workload(submissions=submissions, source="test", format="rota"), policy, setting).history
    return {row.id: row for row in history.jobs}


def ends(rows: dict[str, JobRow]) -> dict[str, float]:
    return {name: round(row.end_s or 0.0, 6) for name, row in rows.items()}


# -- salus ---------------------------------------------------------------------------------------


def lane(*jobs: Job, policy: str) -> World:
    """Jobs submitted one after the other to a device of 16 GiB."""
    world = World(of=cluster(node("n1", 1, device_memory_bytes=16 * GIB)), policy=policy)
    for each in jobs:
        world.settle(world.submit(job=each))
    return world


def test_jobs_in_a_lane_share_the_memory_of_iterations() -> None:
    # 2 GiB of each stay, and one at a time has 8 more: 12 in all. As sums they would be 20.
    world = lane(needs("a", 10), needs("b", 10), policy="salus:persistent=0.2")

    assert world.states() == {"a": "running", "b": "running"}
    assert world.state.inventory.nodes[0].shares[0][1] == 4 * GIB


def test_lane_is_as_large_as_its_largest_iteration() -> None:
    half = (("persistent", "0.5"),)
    world = lane(needs("a", 4, labels=half), needs("b", 8, labels=half), needs("c", 2, labels=half), policy="salus")

    # 2 and 4 and 1 stay; the largest iteration takes 4 more.
    assert world.state.inventory.nodes[0].shares[0][1] == 5 * GIB
    world.settle(world.ended("b"))
    assert world.state.inventory.nodes[0].shares[0][1] == (16 - 2 - 1 - 2) * GIB


@pytest.mark.parametrize("policy", ["salus", "salus:order=pack,persistent=0.2", "salus:persistent=0.7"])
def test_job_waits_whose_memory_does_not_fit_beside_the_others(policy: str) -> None:
    world = lane(needs("a", 10), needs("b", 10), policy=policy)

    assert world.states() == {"a": "running", "b": "waiting"}


# -- antman --------------------------------------------------------------------------------------


def test_opportunistic_job_has_the_memory_that_is_left_and_the_rest_on_the_host() -> None:
    rows = run(
        "antman",
        (0.0, needs("rg", 12, work=950.0, model="g")),
        (0.0, needs("ot", 8, work=875.0, model="o", priority=-1)),
    )

    # At a quarter of what it could do, and at 0.55 of that, since half of its memory lies on the host at a tenth of the
    # speed: 96.25 steps in the 100 s of the other.
    assert ends(rows) == {"rg": 100.0, "ot": round(100.0 + (875.0 - 96.25) / 10.0, 6)}


def test_job_without_any_device_memory_is_not_admitted() -> None:
    rows = run(
        "antman",
        (0.0, needs("rg", 16, work=1000.0, model="g")),
        (0.0, needs("ot", 8, work=1000.0, model="o", priority=-1)),
    )

    assert ends(rows) == {"rg": 100.0, "ot": 200.0}


def test_guaranteed_job_that_waited_for_long_runs_without_its_guarantee() -> None:
    first, second = job("a", work=1000.0, model="g"), job("b", work=1000.0, model="g")

    # From 30 s on b runs beside a, which may lose a twentieth: a quarter of the 8 steps that b could do. At 30 a has
    # done 300; then 9.5 a second.
    ends_a = 30.0 + 700.0 / 9.5
    ends_b = ends_a + (1000.0 - 2.0 * 700.0 / 9.5) / 10.0
    assert ends(run("antman:patience_s=30", (0.0, first), (0.0, second))) == {
        "a": round(ends_a, 6),
        "b": round(ends_b, 6),
    }
    assert ends(run("antman", (0.0, first), (0.0, second))) == {"a": 100.0, "b": 200.0}


def test_it_has_its_guarantee_back_on_devices_that_become_free() -> None:
    jobs = [(0.0, job(name, work=work, model="g")) for name, work in (("a", 1000.0), ("b", 500.0), ("c", 1000.0))]

    rows = run("antman:patience_s=20", *jobs, gpus=2)

    # c joins a at 20 and moves to b's device at 50: 60 steps by then, 5 s for the move, 10 a second after it.
    assert rows["c"].moves == 1
    assert ends(rows)["c"] == pytest.approx(55.0 + 94.0)
    assert ends(rows)["b"] == 50.0


@pytest.mark.parametrize(
    ("gaps", "of_guaranteed", "of_other"),
    [
        # In proportion: a quarter of what it could do costs the guaranteed one 5 %.
        (0.0, 9.5, 0.25 * 7.0),
        # Idle for 6 / 16 of the time, which is 0.525 of what the other needs; of the rest, a quarter.
        (1.0, 9.5, (0.525 + 0.475 * 0.25) * 7.0),
    ],
)
def test_idle_time_can_be_used_before_anybody_feels_it(gaps: float, of_guaranteed: float, of_other: float) -> None:
    speed = SpeedModel(profiles=SPEED.profiles, gaps=gaps)
    rows = run(
        "antman",
        (0.0, job("rg", work=950.0, model="g")),
        (0.0, job("ot", work=2000.0, model="o", priority=-1)),
        speed=speed,
    )

    assert ends(rows)["rg"] == pytest.approx(950.0 / of_guaranteed, rel=2e-3)
    did = 950.0 / of_guaranteed * of_other
    assert ends(rows)["ot"] == pytest.approx(950.0 / of_guaranteed + (2000.0 - did) / 10.0, rel=5e-3)
