"""One job on several device types at once: in programs, selection, placement, deficits and simulation."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from scipy.optimize import linprog

from builders import World, job, on
from rota.core.errors import RotaError
from rota.core.messages.decisions import Lease, Renew, Start
from rota.core.messages.events import Lapsed
from rota.core.model.cluster import Cluster
from rota.core.model.job import DeviceType, JobId, Level, Locality
from rota.core.state.job_record import LiveJob
from rota.drivers.simulator.study import Setting, oversized, simulate
from rota.mechanisms.rounds.multi_type import divided, may_spread, spread_out
from rota.mechanisms.rounds.rule import RoundJob, ShareQuestion, round_job
from rota.mechanisms.solvers.lp import Solver
from rota.perf.speed.model import SpeedModel
from rota.policies import find_policy
from rota.policies.published.gavel.declare import SizeParams
from rota.policies.published.gavel.layout import lay_out
from rota.policies.published.gavel.least import serve_the_least
from rota.policies.published.gavel.max_min import MaxMin, fair_need
from rota.traces.workload import Submission, Workload

A, B, C = DeviceType("a"), DeviceType("b"), DeviceType("c")
SPEEDS = {A: 1.0, B: 0.5, C: 0.2}
SLOWEST, UNEVEN = SpeedModel(type_speed=SPEEDS), SpeedModel(type_speed=SPEEDS, uneven=True)
POLICY = "gavel/max_min_fairness_perf:compat=none,round_s=100,cross_type=true"
TWO_BY_TWO = Cluster.uniform(("a", 2, 2), ("b", 2, 2))
THREE_BY_THREE = Cluster.uniform(("a", 3, 3), ("b", 3, 3))


def gang(name: str, workers: int, *, rooms: tuple[int, ...], speed: SpeedModel, able: bool = False) -> RoundJob:
    live = LiveJob(job(name, workers=workers, work=1000.0), int(name[1:]), 0.0, 1.0)
    types = (A, B, C)[: len(rooms)]
    return spread_out(round_job(live, speed, types, [able] * len(types)), speed, types, rooms)


def asked(*jobs: RoundJob, devices: tuple[int, ...]) -> ShareQuestion:
    types = (A, B, C)[: len(devices)]
    return ShareQuestion(0.0, list(jobs), types, devices, lambda one, other: pytest.fail("nobody is packed"))


def ends(jobs: list[int], cluster: Cluster, speed: SpeedModel, *, cross_type: bool) -> list[float | None]:
    """When jobs of 300 s and so many tasks end that come together."""
    made = [job(f"j{seq}", workers=workers, work=300.0) for seq, workers in enumerate(jobs)]
    workload = Workload(
        submissions=tuple(Submission(submit_s=0.0, job=each) for each in made), source="made up", format="jobs"
    )
    policy = POLICY if cross_type else POLICY.replace("=true", "=false")
    history = simulate(workload, policy, Setting(cluster=cluster, speed=speed)).history
    return [row.end_s for row in history.jobs]


@pytest.mark.parametrize(("speed", "worth"), [(SLOWEST, 0.5), (UNEVEN, 2.5 / 3)], ids=["slowest", "uneven"])
def test_job_too_large_for_every_type_has_shares_of_a_whole_gang(speed: SpeedModel, worth: float) -> None:
    """Three tasks on two devices of each type: at most two thirds of it are on one type.

    Uneven batches: two at speed 1 and one at 1/2 make 2.5/3; at the pace of the slowest it is 1/2 however they lie.
    """
    question = asked(gang("j0", 3, rooms=(2, 2), speed=speed), devices=(2, 2))

    (row,) = MaxMin(SizeParams(), sees_types=True).shares(question).values()

    assert sum(row) == pytest.approx(1.0)
    assert max(row) <= 2 / 3 + 1e-9
    assert sum(part * own for part, own in zip(row, question.jobs[0].speeds, strict=True)) == pytest.approx(worth)


def test_no_gang_is_promised_the_fast_devices_alone() -> None:
    """A gang of three, two devices of each type: for each part of its time on `a`, half as much at least on `b`."""
    fast, slow = SpeedModel(type_speed={A: 1.0, B: 0.01}, uneven=True), SpeedModel(type_speed={A: 0.01, B: 1.0})
    others = [gang(f"j{seq}", 1, rooms=(1, 1), speed=slow, able=True) for seq in range(1, 5)]
    question = asked(gang("j0", 3, rooms=(2, 2), speed=fast), *others, devices=(2, 2))

    row = MaxMin(SizeParams(spare=False), sees_types=True).shares(question)[0,]

    assert row[0] > 0
    assert row[1] >= row[0] / 2 - 1e-9


@pytest.mark.parametrize("seed", range(5))
def test_shares_of_parts_are_worth_as_much_as_those_of_every_way_to_divide_a_gang(seed: int) -> None:
    """Two gangs too large for every type, three single jobs: the same optimum with a column for each division."""
    rng, devices = random.Random(seed), (2, 3, 3)

    def speed() -> SpeedModel:
        return SpeedModel(type_speed={kind: rng.choice([0.1, 1.0, 5.0]) for kind in (A, B, C)}, uneven=True)

    gangs = [gang("j0", 4, rooms=devices, speed=speed()), gang("j1", 5, rooms=devices, speed=speed())]
    singles = [gang(f"j{seq}", 1, rooms=(1, 1, 1), speed=speed(), able=True) for seq in (2, 3, 4)]
    question = asked(*gangs, *singles, devices=devices)
    layout = lay_out(question, collapse=False)
    need = fair_need(layout)
    ways = [
        (row, way, sum(count * part for count, part in zip(way, job.part_speeds, strict=True)) / job.count)
        for row, job in enumerate(question.jobs)
        for way in itertools.product(*(range(min(job.count, most) + 1) for most in devices))
        if sum(way) == job.count
    ]
    used = np.array([way for _, way, _ in ways], dtype=float).T
    of_job = np.array([[float(row == one) for one, _, _ in ways] for row in range(5)])
    done = of_job * np.array([pace for _, _, pace in ways]) / need[:, None]
    rows = np.block([[used, np.zeros((3, 1))], [of_job, np.zeros((5, 1))], [-done, np.ones((5, 1))]])
    limits = np.concatenate([np.array(devices, dtype=float), np.ones(5), np.zeros(5)])
    second = linprog(np.append(np.zeros(len(ways)), -1.0), A_ub=rows, b_ub=limits)

    best = serve_the_least(Solver(), layout, need, spare=False)

    assert best is not None
    assert best.t == pytest.approx(-second.fun, rel=1e-6)


def test_slowest_pace_keeps_to_the_fastest_types_that_are_enough() -> None:
    assert gang("j0", 3, rooms=(2, 2, 2), speed=SLOWEST).speeds == (0.5, 0.5, 0.0)
    assert gang("j0", 5, rooms=(2, 2, 2), speed=SLOWEST).speeds == (0.2, 0.2, 0.2)
    assert gang("j0", 3, rooms=(2, 2, 2), speed=UNEVEN).speeds == (1.0, 0.5, 0.2)


def test_job_too_large_for_all_types_together_stays_as_it_was() -> None:
    assert not gang("j0", 7, rooms=(2, 2, 2), speed=UNEVEN).rooms


def test_job_that_fits_keeps_its_speeds() -> None:
    job = gang("j0", 2, rooms=(2, 2), speed=SLOWEST, able=True)

    assert not job.spans
    assert job.speeds == (1.0, 0.5)


def test_tasks_go_where_most_is_owed() -> None:
    job = gang("j0", 3, rooms=(3, 3, 3), speed=UNEVEN)

    assert divided(job, (2, 2, 2), (0.1, 0.7, 0.0)) == (1, 2, 0)
    assert divided(job, (2, 2, 2), (0.0, 0.0, 0.0)) == (2, 1, 0)
    assert divided(job, (1, 0, 1), (1.0, 1.0, 1.0)) is None


@pytest.mark.parametrize(
    ("fields", "may"),
    [
        ({"workers": 2}, True),
        ({"workers": 1, "gpus": 2}, False),
        ({"workers": 2, "gpus": 0.5}, False),
        ({"workers": 2, "exclusive": True}, False),
        ({"workers": 2, "locality": Locality(level=Level.NODE)}, False),
        ({"workers": 2, "locality": Locality(level=Level.CLUSTER)}, True),
    ],
)
def test_who_may_be_spread(fields: dict[str, object], may: bool) -> None:
    assert may_spread(job(**fields)) is may  # type: ignore[arg-type] # a table of any fields


def test_round_starts_and_renews_a_job_on_two_types_and_books_its_parts() -> None:
    """Two tasks of three on `a`, one on `b`: 2.5/3 steps a second, so 83 in a round, which takes 83 / (2.5/3) s."""
    world = World(of=TWO_BY_TWO, policy=POLICY, speed=UNEVEN)
    place = (*on("n1", 2, tasks=2), *on("n2", 1))

    (started,) = world.submit("j", workers=3, work=1000.0)
    assert started == Start(JobId("j"), place, Lease(83.0, 100.0))
    world.started("j")
    world.pass_s(99.6)
    (renewed,) = world.step(Lapsed(JobId("j"), 83.0))

    assert isinstance(renewed, Renew)
    assert renewed.placement == place
    (had_s,) = world.engine.memory["ledger"]["time_s"]
    assert had_s == pytest.approx([50 + 99.6 * 2 / 3, 50 + 99.6 / 3])


def test_gang_runs_on_what_others_leave_on_two_types() -> None:
    """Three gangs of two on three devices of each type: two fill two devices each, the third takes what is left."""
    world = World(of=THREE_BY_THREE, policy=POLICY, speed=UNEVEN)
    world.submit("a", workers=3, work=10.0)
    world.started("a")
    for name in "bcd":
        world.submit(name, workers=2, work=1000.0)

    decisions = world.settle(world.ended("a"))

    placed = {each.job_id: each.placement for each in decisions if isinstance(each, Start)}
    spread = [place for place in placed.values() if len(place) > 1]
    assert len(placed) == 3
    assert spread == [(*on("n1", [2]), *on("n2", [2]))]


@pytest.mark.parametrize(("speed", "end_s"), [(SLOWEST, 600.0), (UNEVEN, 360.0)], ids=["slowest", "uneven"])
def test_simulated_speed_is_that_of_the_parts(speed: SpeedModel, end_s: float) -> None:
    """300 s of work at 1/2, or at 2.5/3."""
    assert ends([3], TWO_BY_TWO, speed, cross_type=True) == [pytest.approx(end_s)]


def test_large_and_small_take_turns() -> None:
    """A gang of four needs all there is, beside two of one device that run for 300 s: all of them end."""
    found = ends([4, 1, 1], TWO_BY_TWO, UNEVEN, cross_type=True)

    assert max(end_s or 0.0 for end_s in found) <= 300 / 0.75 + 2 * 300 + 100


def test_without_it_such_a_job_never_runs() -> None:
    with pytest.raises(RotaError, match=r"j0"):
        ends([3], TWO_BY_TWO, UNEVEN, cross_type=False)


def test_study_counts_all_types_only_where_jobs_spread() -> None:
    asked = [Submission(submit_s=0.0, job=job("j", workers=workers, work=1.0)) for workers in (3, 4, 5)]
    setting = Setting(cluster=TWO_BY_TWO, speed=UNEVEN)

    assert [each.tasks for each, _ in oversized(asked, setting)] == [3, 4, 5]
    assert [each.tasks for each, _ in oversized(asked, setting, spreads=True)] == [5]


def test_published_simulator_knows_nothing_of_it() -> None:
    declared, _ = find_policy("gavel/max_min_fairness_perf")

    with pytest.raises(RotaError, match=r"cross_type=true needs compat=none"):
        declared.read("cross_type=true")
