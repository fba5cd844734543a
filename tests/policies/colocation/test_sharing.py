"""The policies that share devices, against small courses of events that were worked out by hand."""

from __future__ import annotations

import pytest

from builders import GIB, World, at_once, cluster, job, node, on, start
from policies.colocation.small_runs import GPU, ends, run, speeds
from rota.core.errors import RotaError
from rota.core.messages.decisions import Resize
from rota.core.model.job import Job, JobId
from rota.core.model.placement import in_turn
from rota.perf.profiles.speed_table import Profiles
from rota.perf.speed.interleaving import throughput
from rota.perf.speed.model import SpeedModel
from rota.perf.speed.utilisation import Predictor
from rota.policies import find_policy
from rota.policies.published.colocation.arrivals import HOUR_S, HourlyDemand

# -- kubeshare -----------------------------------------------------------------------------------


def labelled(name: str, gpus: float, **labels: str) -> Job:
    return job(name, gpus=gpus, labels=tuple((key.replace("_", "-"), value) for key, value in labels.items()))


def test_kubeshare_gives_what_is_left_up_to_limits() -> None:
    world = World(gpus=2, policy="kubeshare")

    assert world.submit(job=labelled("a", 0.3, limit="0.6")) == [start("a", in_turn(on("n1", 1), 600))]
    world.started("a", rate=2.0)
    assert world.submit(job=labelled("b", 0.5)) == [
        Resize(JobId("a"), in_turn(on("n1", 1), 500)),
        start("b", in_turn(on("n1", 1), 500)),
    ]


def test_kubeshare_takes_the_tightest_device() -> None:
    world = World(gpus=3, policy="kubeshare")
    for name, gpus in (("a", 0.5), ("b", 0.7)):
        world.settle(world.submit(job=labelled(name, gpus)))

    world.settle(world.submit(job=labelled("c", 0.3)))

    assert world.live("b").placement == in_turn(on("n1", [1]), 700)
    assert world.live("c").placement == in_turn(on("n1", [1]), 300)


@pytest.mark.parametrize("said", ["inf", "1e400", "nan", "-inf", "much", "-1", ""])
@pytest.mark.parametrize(
    ("policy", "name"), [("kubeshare", "limit"), ("salus", "persistent"), ("olympian:turns=weighted", "weight")]
)
def test_label_that_is_no_finite_number_is_passed_over(policy: str, name: str, said: str) -> None:
    world = World(gpus=1, policy=policy)

    for each in ("a", "b"):
        world.settle(world.submit(job=job(each, labels=((name, said), ("utilization", said)))))

    assert world.live("a").placement is not None


@pytest.mark.parametrize(
    ("labels", "device"),
    [
        ({}, 0),
        ({"affinity": "x"}, 0),
        ({"affinity": "y"}, 1),
        ({"anti_affinity": "x"}, 1),
        ({"anti_affinity": "y"}, 0),
        ({"exclusion": "x"}, 1),
    ],
    ids=str,
)
def test_kubeshare_obeys_labels(labels: dict[str, str], device: int) -> None:
    world = World(gpus=2, policy="kubeshare")
    world.settle(world.submit(job=labelled("a", 0.3, affinity="x", anti_affinity="x")))

    world.settle(world.submit(job=labelled("b", 0.3, **labels)))

    assert world.live("b").placement == in_turn(on("n1", [device]), 300)


def test_kubeshare_never_shares_out_more_memory_than_a_device_has() -> None:
    world = World(of=cluster(node("n1", 2, device_memory_bytes=16 * GIB)), policy="kubeshare")
    for name in ("a", "b"):
        world.settle(world.submit(job=job(name, gpus=0.3, device_memory_bytes=10 * GIB)))

    assert world.live("a").placement == in_turn(on("n1", [0]), 300)
    assert world.live("b").placement == in_turn(on("n1", [1]), 300)


# -- salus and olympian --------------------------------------------------------------------------


def test_salus_lets_the_shortest_go_first_between_iterations() -> None:
    rows = run("salus", job("long", work=100.0), (10.0, job("short", work=20.0)))

    # 999 thousandths for the short one; the long one has the rest, and loses nothing over all.
    assert ends(rows) == {"short": round(10.0 + 20.0 / 0.999, 6), "long": 120.0}
    assert rows["long"].preemptions == 0


@pytest.mark.parametrize(
    ("order", "expected"),
    [("fair", {"short": 50.0, "long": 120.0}), ("fifo", {"long": 100.01, "short": 120.0})],
)
def test_salus_has_other_orders(order: str, expected: dict[str, float]) -> None:
    rows = run(f"salus:order={order}", job("long", work=100.0), (10.0, job("short", work=20.0)))

    assert ends(rows) == pytest.approx(expected, abs=0.1)


def test_olympian_gives_equal_cost() -> None:
    rows = run("olympian", job("a", work=50.0), job("b", work=100.0))

    assert ends(rows) == {"a": 100.0, "b": 150.0}


def test_olympian_weighs_cost() -> None:
    heavy = job("a", work=75.0, labels=(("weight", "3"),))
    rows = run("olympian:turns=weighted", heavy, job("b", work=100.0))

    assert ends(rows) == {"a": 100.0, "b": 175.0}


def test_switching_costs_what_the_speed_model_says() -> None:
    rows = run("olympian", job("a", work=50.0), job("b", work=50.0), speed=SpeedModel(turns=0.98))

    assert ends(rows)["a"] == pytest.approx(100.0 / 0.98)


# -- lucid, horus, muri --------------------------------------------------------------------------


def test_lucid_packs_what_its_scores_allow() -> None:
    # Tiny beside tiny, tiny beside jumbo; two of those that fill a device are never packed.
    speed = speeds(("tiny", "tiny", 10.0, 10.0), ("jumbo", "jumbo", 5.0, 5.0), ("tiny", "jumbo", 8.0, 6.0))

    packed = run("lucid", job("t", work=80.0, model="tiny"), job("j", work=100.0, model="jumbo"), speed=speed)
    apart = run("lucid", job("i", work=80.0, model="jumbo"), job("j", work=100.0, model="jumbo"), speed=speed)

    # 10 s together, in which the large one does 60; then 4 s for the rest.
    assert ends(packed) == {"t": 10.0, "j": 14.0}
    assert ends(apart) == {"i": 8.0, "j": 18.0}


def test_lucid_packs_only_when_much_is_predicted_to_be_requested() -> None:
    """In the first hour as little is known as without the rule; in the second, by what the first brought.

    Two jobs of 80 s were requested then: 160 of the 3,600 device-seconds of an hour.
    """
    speed = speeds(("tiny", "tiny", 10.0, 10.0))
    jobs = [(at_s, job(f"j{at_s:g}", work=800.0, model="tiny")) for at_s in (0.0, 1.0, 4000.0, 4001.0)]

    busy, quiet = (ends(run(f"lucid:durations=known,quiet={least}", *jobs, speed=speed)) for least in (0.04, 0.05))

    assert busy == {"j0": 80.0, "j1": 81.0, "j4000": 4080.0, "j4001": 4081.0}
    assert quiet == {"j0": 80.0, "j1": 81.0, "j4000": 4080.0, "j4001": 4160.0}


def test_job_that_waits_in_a_quiet_hour_is_packed_when_the_next_begins() -> None:
    speed = speeds(("tiny", "tiny", 10.0, 10.0))
    jobs = [
        (at_s, job(f"j{at_s:g}", work=work, model="tiny"))
        for at_s, work in ((0.0, 10.0), (3700.0, 90_000.0), (7100.0, 100.0))
    ]

    found = ends(run("lucid:durations=known,quiet=0.5", *jobs, speed=speed))

    assert found["j7100"] == 7210.0


def test_forecast_is_restored_from_memory() -> None:
    forecast, again = HourlyDemand(), HourlyDemand()
    for seq, (hour, gpu_s) in enumerate([(0, 100.0), (23, 20.0), (0, 50.0)]):
        forecast.arrived(seq, hour * HOUR_S, gpu_s)
        forecast.arrived(seq, hour * HOUR_S, gpu_s)

    again.recall(forecast.memory)

    assert HourlyDemand().predicted_gpu_s(0.0) is None
    assert forecast.predicted_gpu_s(10.0) is None
    assert again.predicted_gpu_s(24 * HOUR_S) == (20.0 + 150.0) / 2


def test_lucid_learns_who_is_short() -> None:
    """While nothing is known, first come first served; then who was short before goes before who was long."""
    jobs = [
        (float(at), job(f"{user}{at}", work=work, user=user))
        for at, (user, work) in enumerate([("long", 1000.0), ("short", 10.0), ("long", 1000.0), ("short", 10.0)])
    ]
    jobs += [(1500.0, job("long9", work=1000.0, user="long")), (1501.0, job("short9", work=10.0, user="short"))]

    learned, known = ends(run("lucid", *jobs)), ends(run("lucid:durations=known", *jobs))

    assert (learned["short1"], learned["long2"], learned["short3"]) == (1010.0, 2020.0, 1020.0)
    assert learned["short9"] == 2030.0
    assert learned["long9"] == 3030.0
    assert known == learned


def test_utilisation_follows_from_two_copies_side_by_side() -> None:
    speed = speeds(("idle", "idle", 10.0, 10.0), ("half", "half", 7.0, 7.0), ("full", "full", 5.0, 5.0))

    found = {name: speed.use(job("j", model=name), GPU) for name in ("idle", "half", "full")}

    assert found == {"idle": 0.5, "half": pytest.approx(1 / 1.4), "full": 1.0}
    assert speed.use(job("j"), GPU) == 1.0
    assert speed.use(job("j", gpus=0.2), GPU) == 0.2


def test_utilisation_is_predicted_from_the_nearest_of_the_family() -> None:
    names = ["net (batch size 8)", "net (batch size 16)", "net (batch size 64)", "other"]
    speed = speeds(*((name, name, rate, rate) for name, rate in zip(names, (10.0, 8.0, 5.0, 6.25), strict=True)))
    assert isinstance(speed.profiles, Profiles)
    predictor = Predictor(speed.profiles, GPU)

    assert predictor.of("net (batch size 8)") == pytest.approx(1 / 1.6)
    assert predictor.of("net (batch size 128)") == 1.0
    assert predictor.of("other") == pytest.approx((0.5 + 1 / 1.6 + 1.0) / 3)


def test_horus_packs_while_the_predicted_use_is_low() -> None:
    # Each is predicted from its like: 0.5 for the one, 0.8 for the other.
    one, other = "net (batch size 8)", "net (batch size 16)"
    speed = speeds((one, one, 6.25, 6.25), (other, other, 10.0, 10.0), (one, other, 9.0, 9.0))
    jobs = [job("a", work=90.0, model=one), job("b", work=90.0, model=other)]

    assert ends(run("horus:limit=1.3", *jobs, speed=speed)) == {"a": 10.0, "b": 10.0}
    assert ends(run("horus:limit=1.2", *jobs, speed=speed)) == {"a": 9.0, "b": 18.0}


def test_muri_counts_what_a_group_does_in_the_time_of_one() -> None:
    storage, gpu = (1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 1.0, 0.0)

    assert throughput((gpu,)) == 1.0
    assert throughput((gpu, gpu)) == 1.0
    assert throughput((storage, gpu)) == 2.0
    assert throughput(((0.5, 0.0, 0.5, 0.0), (0.5, 0.0, 0.5, 0.0))) == 2.0


def test_muri_interleaves_only_jobs_that_use_different_resources() -> None:
    reads = job("r", work=100.0, labels=(("stages", "1/0/0/0"),))
    computes = job("c", work=100.0, labels=(("stages", "0/0/1/0"),))
    also = job("d", work=100.0, labels=(("stages", "0/0/1/0"),))

    assert ends(run("muri", reads, computes)) == {"r": 100.0, "c": 100.0}
    assert ends(run("muri", computes, also)) == {"c": 100.0, "d": 200.0}


@pytest.mark.parametrize("regroup_s", ["1800", "inf"], ids=["matched", "admitted"])
def test_muri_interleaves_from_the_least_gain_on(regroup_s: str) -> None:
    """Together the jobs do as much as two alone: a gain of 1."""
    reads = job("r", work=100.0, labels=(("stages", "1/0/0/0"),))
    computes = job("c", work=100.0, labels=(("stages", "0/0/1/0"),))
    enough, too_little = (f"muri:gain={gain},regroup_s={regroup_s}" for gain in (1, 1.01))

    assert ends(run(enough, reads, computes)) == {"r": 100.0, "c": 100.0}
    assert ends(run(too_little, reads, computes)) == {"r": 100.0, "c": 200.0}


# -- all of them ---------------------------------------------------------------------------------

SHARING = ("gandiva", "antman", "kubeshare", "salus", "olympian", "lucid", "muri", "horus")


def test_names_do_not_collide() -> None:
    assert find_policy("gandiva")[0].cites != find_policy("gavel/gandiva")[0].cites
    assert set(SHARING) <= set(at_once())


@pytest.mark.parametrize(
    "policy",
    [
        "gandiva:quantum_s=0",
        "gandiva:most=0",
        "antman:guard=1",
        "salus:most=0",
        "olympian:most=0",
        "lucid:tiny=2",
        "muri:most=5",
        "muri:gain=-1",
        "lucid:most=-1",
        "lucid:quiet=-1",
        "horus:limit=0",
        "horus:unknown=0",
        "antman:unknown=nan",
    ],
)
def test_parameters_out_of_bounds_are_refused(policy: str) -> None:
    declared, options = find_policy(policy)
    name = options.partition("=")[0]

    with pytest.raises(RotaError, match=name):
        declared.read(options)


@pytest.mark.parametrize("policy", SHARING)
def test_work_is_done_once_under_any_sharing(policy: str) -> None:
    jobs = [job(f"j{number}", work=50.0 + 10 * number) for number in range(6)]

    rows = run(policy, *jobs, gpus=2)

    assert [row.ideal_s for row in rows.values()] == [50.0 + 10 * number for number in range(6)]
