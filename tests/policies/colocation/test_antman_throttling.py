"""AntMan holds opportunistic jobs back so that guaranteed ones keep their speed."""

from __future__ import annotations

import pytest

from builders import World, job, on
from policies.colocation.small_runs import ends, run, speeds
from rota.core.messages.events import SpeedChanged
from rota.core.model.job import JobId
from rota.perf.speed.model import SpeedModel

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
