"""A job alone on some of its devices and packed with a smaller one on the others."""

from __future__ import annotations

import pytest

from builders import World, job, on
from rota.core.errors import RotaError
from rota.core.messages.decisions import Lease, Renew, Start
from rota.core.messages.events import End, JobEnded, Lapsed, SpeedChanged
from rota.core.model.cluster import Cluster
from rota.core.model.job import WHOLE, DeviceType, JobId
from rota.core.model.placement import Slot, same_devices, whole
from rota.core.state.job_record import LiveJob
from rota.drivers.simulator.study import Setting, simulate
from rota.mechanisms.rounds.pair_speeds import PairSpeeds, nests
from rota.mechanisms.rounds.rule import ShareQuestion, round_job
from rota.perf.profiles.speed_table import Profiles
from rota.perf.speed.model import SpeedModel
from rota.policies import find_policy
from rota.policies.published.gavel.declare import PackParams
from rota.policies.published.gavel.makespan import MinTotalDuration
from rota.traces.workload import Submission, Workload

POLICY = "gavel/min_total_duration_packed:compat=none,round_s=100,mixed_sharing=true"
HALF = WHOLE // 2
SLOWEST, UNEVEN = SpeedModel(device_neighbour=0.8), SpeedModel(device_neighbour=0.8, uneven=True)
V100 = DeviceType("v100")


def both(world: World, *, large: int = 2, small: int = 1) -> dict[str, Start]:
    """What a round decides for a large and a small job of 1000 s that come together."""
    world.submit("first", workers=large, work=10.0)
    world.started("first")
    world.submit("l", workers=large, work=1000.0)
    world.submit("s", workers=small, work=1000.0)
    decisions = world.settle(world.ended("first"))
    return {each.job_id: each for each in decisions if isinstance(each, Start)}


@pytest.mark.parametrize(("speed", "steps"), [(SLOWEST, 80.0), (UNEVEN, 90.0)], ids=["slowest", "uneven"])
def test_large_job_shares_one_of_its_two_devices(speed: SpeedModel, steps: float) -> None:
    """In turn both would be through after 2000 s, together after 1250: each does 0.8 a second.

    With uneven batches the large one does (0.8 + 1) / 2.
    """
    found = both(World(gpus=2, policy=POLICY, speed=speed))

    assert found["l"].placement == (*on("n1", [0], milli=HALF), *on("n1", [1]))
    assert found["l"].lease == Lease(steps, 100.0)
    assert found["s"].placement == on("n1", [0], milli=HALF)
    assert found["s"].lease == Lease(80.0, 100.0)


def test_pair_uses_the_devices_of_the_larger_one_whoever_is_older() -> None:
    """Two small jobs and a large one on two devices: only what is really there is shared out."""
    sizes = {0: 1, 1: 2, 2: 1}
    lives = [LiveJob(job(f"j{seq}", workers=size, work=1000.0), seq, 0.0, 1.0) for seq, size in sizes.items()]
    jobs = [round_job(live, SLOWEST, (V100,), [True]) for live in lives]
    question = ShareQuestion(0.0, jobs, (V100,), (2,), PairSpeeds(SLOWEST, (V100,), mixed=True), mixed=True)

    shares = MinTotalDuration(PackParams(), sees_types=True, packs=True).shares(question)

    used = sum(max(sizes[seq] for seq in contender) * part for contender, (part,) in shares.items())
    assert used == pytest.approx(2.0)
    assert any(len({sizes[seq] for seq in contender}) > 1 and part > 0 for contender, (part,) in shares.items())


def test_without_it_they_take_turns() -> None:
    found = both(World(gpus=2, policy=POLICY.replace("=true", "=false"), speed=SLOWEST))

    assert len(found) == 1


def test_large_job_stays_where_it_is_when_the_small_one_ends() -> None:
    world = World(gpus=2, policy=POLICY, speed=SLOWEST)
    both(world)
    world.pass_s(50.0)
    world.step(JobEnded(JobId("s"), End.SUCCEEDED, 1000.0))
    world.step(SpeedChanged(JobId("l"), 40.0, 1.0))
    world.pass_s(40.0)

    (renewed,) = world.step(Lapsed(JobId("l"), 80.0))

    assert isinstance(renewed, Renew)
    assert renewed.placement == on("n1", 2, tasks=2)


@pytest.mark.parametrize("knows_pairs", [False, True], ids=["factor", "profile"])
@pytest.mark.parametrize(("uneven", "large"), [(False, 80.0), (True, 90.0)], ids=["slowest", "uneven"])
def test_simulated_speed_is_that_of_the_shared_devices(knows_pairs: bool, uneven: bool, large: float) -> None:
    """At 0.8 for the small one and for the large one at 0.8 or 0.9, both are through with this work after 100 s."""
    speed = SpeedModel(device_neighbour=0.8, uneven=uneven)
    if knows_pairs:
        singles = {(V100, "big", 1): 1.0, (V100, "big", 2): 1.0, (V100, "tiny", 1): 1.0}
        pairs = {(V100, "big", "tiny", 1): (0.8, 0.8), (V100, "tiny", "big", 1): (0.8, 0.8)}
        speed = SpeedModel(profiles=Profiles(steps_per_s=singles, pairs=pairs, source="made up"), uneven=uneven)
    jobs = [job("l", workers=2, work=large, model="big"), job("s", workers=1, work=80.0, model="tiny")]
    workload = Workload(
        submissions=tuple(Submission(submit_s=0.0, job=each) for each in jobs), source="made up", format="jobs"
    )
    setting = Setting(cluster=Cluster.uniform(("v100", 2, 2)), speed=speed)

    rows = simulate(workload, POLICY, setting).history.jobs

    assert [row.end_s for row in rows] == pytest.approx([100.0, 100.0])


def test_shapes_that_nest() -> None:
    assert nests((2, 1), (1, 1))
    assert nests((4, 1), (1, 2))
    assert not nests((1, 2), (1, 1)), "half of a task can't share"
    assert not nests((2, 1), (2, 1))
    assert not nests(None, (1, 1))


def test_small_job_over_two_nodes_of_the_large_one() -> None:
    """Of the four devices on two nodes, three are shared and the last is the large job's own."""
    world = World(gpus=2, nodes=2, policy=POLICY, speed=SLOWEST)

    found = both(world, large=4, small=3)

    assert found["s"].placement == (
        *on("n1", 2, tasks=2, milli=HALF),
        *on("n2", [0], milli=HALF),
    )
    assert found["l"].placement == (
        *on("n1", 2, tasks=2, milli=HALF),
        *on("n2", [0], milli=HALF),
        *on("n2", [1]),
    )


def test_same_devices_however_they_are_held() -> None:
    split = (Slot(0, 0b01, 1, 0, HALF), Slot(0, 0b10, 1))

    assert same_devices(split, (Slot(0, 0b11, 2),))
    assert same_devices(split, (Slot(0, 0b10, 1, 0, HALF), Slot(0, 0b01, 1)))
    assert not same_devices(split, (Slot(0, 0b111, 3),))
    assert not same_devices((Slot(0, 1, 1, 0, 300), Slot(0, 1, 1, 0, 300)), (Slot(0, 1, 2, 0, 300),))
    assert whole(split) == (Slot(0, 0b11, 2),)


def test_published_simulator_knows_nothing_of_it() -> None:
    for name in ("max_min_fairness_packed", "max_sum_throughput_normalized_by_cost_packed_SLOs"):
        declared, _ = find_policy(f"gavel/{name}")
        with pytest.raises(RotaError, match=r"mixed_sharing=true needs compat=none"):
            declared.read("mixed_sharing=true")


def test_policies_without_pairs_refuse_it_by_name() -> None:
    declared, _ = find_policy("gavel/max_min_fairness_perf")

    with pytest.raises(RotaError, match=r"has no parameter 'mixed_sharing'"):
        declared.read("compat=none,mixed_sharing=true")
