"""The policies that share devices, against small courses of events that were worked out by hand."""

from __future__ import annotations

import pytest

from builders import GIB, World, at_once, cluster, job, node, on, start
from policies.colocation.small_runs import GPU, ends, run, speeds
from rota.core.errors import RotaError
from rota.core.messages.decisions import Resize
from rota.core.messages.events import SpeedChanged
from rota.core.model.job import Job, JobId
from rota.core.model.placement import in_turn
from rota.perf.profiles.speed_table import Profiles
from rota.perf.speed.interleaving import throughput
from rota.perf.speed.model import SpeedModel
from rota.perf.speed.utilisation import Predictor
from rota.policies import find_policy

# -- antman --------------------------------------------------------------------------------------


def test_antman_throttles_an_opportunistic_job_to_what_the_guaranteed_one_tolerates() -> None:
    # Unhindered, the guaranteed job would lose 20 %: it may lose 5, so that the other does a quarter of what it could.
    speed = speeds(("g", "o", 8.0, 7.0), ("g", "g", 7.0, 7.0))
    rows = run("antman", job("rg", work=950.0, model="g"), job("ot", work=875.0, model="o", priority=-1), speed=speed)

    # 9.5 steps a second for 100 s; meanwhile 0.25 * 7 a second for the other, then 10 for the 700 that are left.
    assert ends(rows) == {"rg": 100.0, "ot": 170.0}


def test_antman_lets_a_guaranteed_job_in_beside_an_opportunistic_one() -> None:
    speed = speeds(("g", "o", 8.0, 7.0), ("g", "g", 7.0, 7.0))
    rows = run(
        "antman", job("ot", work=5000.0, model="o", priority=-1), (10.0, job("rg", work=950.0, model="g")), speed=speed
    )

    assert ends(rows)["rg"] == 110.0
    assert rows["ot"].preemptions == 0


def test_antman_stops_an_opportunistic_job_that_stands_in_the_way() -> None:
    rows = run("antman", job("ot", work=50.0, priority=-1), (10.0, job("rg", work=20.0)))

    assert ends(rows) == {"rg": 30.0, "ot": 70.0}
    assert rows["ot"].preemptions == 1


def test_antman_preempts_no_job_whose_devices_are_not_needed() -> None:
    # The youngest is looked at first, but shares the device of a guaranteed job: without it there is no more room.
    idle, busy = ((("utilization", text),) for text in ("0.3", "1.0"))
    rows = run(
        "antman",
        job("g1", work=100.0, labels=idle),
        *(job(name, work=100.0, priority=-1) for name in ("o1", "o2")),
        (10.0, job("g2", work=20.0, labels=busy)),
        gpus=2,
    )

    assert {name: row.preemptions for name, row in rows.items()} == {"g1": 0, "o1": 1, "o2": 0, "g2": 0}


@pytest.mark.parametrize(
    ("together", "priority", "end_s"),
    [
        # A loss of 5 % can be borne: the second half runs beside the first from the start.
        (9.5, 0, 100.0),
        (9.5, -1, 100.0),
        # One of 10 % can't: it waits for the end of the first at 95.
        (9.0, 0, 95.0 + 95.0),
        (9.0, -1, 95.0 + 95.0),
    ],
)
def test_antman_puts_parts_on_one_device_only_if_guarantees_hold(together: float, priority: int, end_s: float) -> None:
    speed = speeds(("g", "g", together, together))
    first = job("a", gpus=0.5, work=950.0, model="g")
    second = job("b", gpus=0.5, work=950.0, model="g", priority=priority)

    assert ends(run("antman", first, second, speed=speed))["b"] == end_s
    assert ends(run("antman", first, second, speed=speed, gpus=2))["b"] == (100.0 if together == 9.5 else 95.0)


def test_antman_does_not_try_again_what_was_too_much() -> None:
    # Nobody knows beforehand that the guaranteed job is slowed down by more than 150 thousandths, and by them alone.
    world = World(gpus=1, policy="antman:unknown=0.5")
    world.settle(world.submit("rg"))
    decisions = world.submit("ot", priority=-1)
    parts: list[int] = []
    while decisions:
        assert len(parts) < 20, parts
        world.settle(decisions)
        parts.append((world.live("ot").placement or ())[0].milli)
        decisions = world.step(SpeedChanged(JobId("rg"), 0.0, 1.0 if parts[-1] <= 150 else 0.8))

    assert max(parts[:-1]) > 150
    assert 1 < parts[-1] <= 150


def test_antman_holds_back_who_only_shares_the_node() -> None:
    # Each neighbour would cost a fifth. The guaranteed job may lose a twentieth, so that the other does a quarter of
    # its work, at 0.8 of its speed: 200 of 500 in the 1,000 s of the other.
    speed = SpeedModel(node_neighbour=0.8)
    rows = run("antman", job("rg", work=950.0), job("ot", work=500.0, priority=-1), gpus=2, speed=speed)

    assert ends(rows) == {"rg": 1000.0, "ot": 1300.0}
    assert rows["ot"].preemptions == 0


def test_antman_holds_back_parts_of_devices_too() -> None:
    # As above, but half of another device: it has 125 thousandths of it, a quarter of what it asked for.
    speed = SpeedModel(node_neighbour=0.8)
    rows = run("antman", job("rg", work=950.0), job("ot", gpus=0.5, work=500.0, priority=-1), gpus=2, speed=speed)

    assert ends(rows) == {"rg": 1000.0, "ot": 1300.0}


def test_antman_shares_out_what_can_be_borne_evenly_between_all_who_are_near() -> None:
    # Both together may cost a twentieth: (1 - 0.2 x)^2 = 0.95 for x = 0.1266, of which 63 thousandths are 0.126.
    speed = SpeedModel(node_neighbour=0.8)
    others = [job(name, work=1000.0, priority=-1) for name in ("o1", "o2")]

    rows = run("antman", job("rg", work=950.0), *others, gpus=3, speed=speed)

    end_s = 950.0 / (1 - 0.2 * 0.126) ** 2
    did = end_s * 0.126 * 0.8 * (1 - 0.2 * 0.126)
    assert ends(rows) == {
        name: pytest.approx(at_s)
        for name, at_s in zip(("rg", "o1", "o2"), (end_s, *[end_s + (1000.0 - did) / 0.8] * 2), strict=True)
    }


def test_antman_lets_others_pause_where_even_a_little_of_each_is_too_much() -> None:
    # 15 of them, each of which would halve the speed: with two thousandths each, (1 - 0.002)^15 = 0.97 is left.
    speed = SpeedModel(node_neighbour=0.5)
    others = [job(f"o{number}", work=100.0 * 0.5**14, priority=-1) for number in range(15)]

    rows = run("antman:guard=0.98", job("rg", work=100.0), *others, gpus=16, speed=speed)

    assert ends(rows) == {"rg": 100.0} | {each.id: 200.0 for each in others}


def test_antman_does_not_leave_a_job_paused_that_it_finds_so() -> None:
    # As after a change of policy: nothing is remembered, and no speed changes.
    world = World(gpus=1, policy="antman:unknown=0.5")
    world.running("rg", at=on("n1", 1, milli=999))
    world.running("ot", at=on("n1", 1, milli=1), priority=-1)

    world.settle(world.timer())

    assert [(world.live(name).placement or ())[0].milli for name in ("rg", "ot")] == [500, 500]


def test_antman_does_not_throttle_for_loss_by_guaranteed_neighbours() -> None:
    # The two guaranteed ones take a fifth from each other in any case; of the rest they keep 95 %.
    speed = SpeedModel(node_neighbour=0.8)
    both = [job(name, work=760.0) for name in ("a", "b")]

    rows = run("antman", *both, job("ot", work=5000.0, priority=-1), gpus=3, speed=speed)

    assert ends(rows)["a"] == ends(rows)["b"] == 1000.0


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
