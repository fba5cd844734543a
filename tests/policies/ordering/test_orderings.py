"""The other orderings by small examples: who goes first, and the arithmetic behind it."""

from __future__ import annotations

import math

import pytest

from builders import GIB, World, cluster, job, node, on, start, stop
from rota.core.codec.snapshot import restore, take
from rota.core.errors import RotaError
from rota.core.messages.events import End, Interrupted, JobEnded
from rota.core.model.job import JobId, TenantId
from rota.policies import find_policy
from rota.policies.published.ordering.gittins import SizeTable, index_of

# -- shortest first ------------------------------------------------------------------------------


def test_fewest_devices_first() -> None:
    world = World(gpus=4, policy="fewest-gpus").running("x", gpus=4)

    assert world.submit("four", gpus=4) == []
    assert world.submit("two", gpus=2) == [stop("x")]


def test_shortest_remaining_time_first() -> None:
    """After 70 of 100 s, `x` has 30 s left: 31 waits, 29 does not."""
    world = World(gpus=1, policy="srtf").running("x", work=100.0).pass_s(70.0)

    assert world.submit("longer", work=31.0) == []
    assert world.submit("shorter", work=29.0) == [stop("x")]


def test_shortest_remaining_service_weighs_time_by_devices() -> None:
    """`x` has 40 s x 4 = 160 left; 2 x 81 = 162 is more, 2 x 79 = 158 less; equal service goes to fewer devices."""
    world = World(gpus=4, policy="srsf").running("x", gpus=4, work=100.0).pass_s(60.0)

    assert world.submit("more", gpus=2, work=81.0) == []
    assert world.submit("less", gpus=2, work=79.0) == [stop("x")]


def test_equal_service_goes_to_fewer_devices() -> None:
    world = World(gpus=4, policy="srsf").running("x", gpus=4, work=1.0)
    world.submit("wide", gpus=4, work=10.0)
    world.submit("narrow", gpus=2, work=20.0)

    assert world.ended("x") == [start("narrow", on("n1", 2))]


def test_speed_counts_in_what_is_left_of_a_job() -> None:
    """At twice its nominal speed, 20 s do 40 of 100: 60 are left, and a job of 59 goes first."""
    world = World(gpus=1, policy="srtf").running("x", work=100.0, rate=2.0).pass_s(20.0)

    assert world.submit("longer", work=61.0) == []
    assert world.submit("shorter", work=59.0) == [stop("x")]


# -- Gittins -------------------------------------------------------------------------------------


def test_index_is_the_chance_to_end_over_the_service_that_takes() -> None:
    """Sizes 2, 4, 10; nothing had yet; a quantum of 5: two of three end, after 2 + 4 + 5 of service."""
    assert index_of([2.0, 4.0, 10.0], 0.0, 5.0) == pytest.approx(2 / 11)


def test_size_that_a_quantum_just_covers_ends_within_it() -> None:
    assert index_of([5.0], 0.0, 5.0) == 1 / 5


def test_index_looks_only_at_larger_sizes() -> None:
    """After 3, size 2 is out: 4 ends after 1 more, 10 takes the whole quantum of 5."""
    assert index_of([2.0, 4.0, 10.0], 3.0, 5.0) == pytest.approx(1 / 6)
    assert index_of([2.0, 4.0, 10.0], 10.0, 5.0) == 0.0


def test_table_is_learned_from_sixteen_jobs_and_again_at_each_doubling() -> None:
    table = SizeTable((8.0, 16.0), steps=2)
    lessons = [number for number in range(1, 70) if table.learn(float(number % 16 + 1))]

    assert lessons == [16, 32, 64]
    assert len(table.memory) == 69


def test_table_is_read_by_queue_and_step() -> None:
    table = SizeTable((8.0, 16.0), steps=2)
    assert table.read(0, 3.0) == (0.0, math.inf)
    sizes = [float(size) for size in range(1, 17)]
    for size in sizes:
        table.learn(size)

    assert table.read(0, 3.0) == (index_of(sizes, 0.0, 8.0), 4.0)
    assert table.read(0, 4.0) == (index_of(sizes, 4.0, 8.0), 8.0)
    assert table.read(1, 13.0) == (index_of(sizes, 12.0, 16.0), 16.0)
    assert table.read(2, 99.0) == (0.0, math.inf)


def test_long_history_is_thinned() -> None:
    table = SizeTable((8.0,), steps=1)
    for number in range(8192):
        table.learn(float(number))

    assert len(table.memory) == 2048
    assert table.memory[:3] == (0.0, 4.0, 8.0)


@pytest.mark.parametrize(("policy", "first"), [("gittins:thresholds=40", "old"), ("tiresias:thresholds=40", "new")])
def test_gittins_prefers_who_is_likelier_to_end(policy: str, first: str) -> None:
    """Sixteen jobs ended after 10. In steps of 5, the index is 1 / 10 at 0 and 1 / 5 at 5: `old`, which has had 6,
    is likelier to end than `new`, which has had nothing but was there first.
    """
    world = World(gpus=2, policy=policy)
    for number in range(16):
        world.settle(world.submit(f"l{number}"))
        world.pass_s(10.0)
        world.ended(f"l{number}")
    world.settle(world.submit("x"))
    world.settle(world.submit("new", gpus=2))
    world.pass_s(0.5)
    world.settle(world.submit("old"))
    assert world.states()["old"] == "running"
    world.pass_s(6.0)

    decisions = world.step(JobEnded(JobId("x"), End.SUCCEEDED, 6.5), Interrupted(JobId("old"), 6.0))

    assert [str(decision.job_id) for decision in decisions] == [first]


def test_gittins_forgets_nothing_between_lessons() -> None:
    world = World(gpus=1, policy="gittins")
    world.settle(world.submit("a"))
    world.pass_s(7.0)
    world.ended("a")

    assert world.engine._policy.memory == (7.0,)


# -- Tiresias ------------------------------------------------------------------------------------


def test_starved_job_is_promoted_after_waiting_its_share() -> None:
    """`a` ran for 50 s and fell; with promote=2 it is back in the first queue after 100 s of waiting."""
    world = World(gpus=2, policy="tiresias:thresholds=100/400,promote=2", placement="any")
    world.settle(world.submit("a", gpus=2))
    world.pass_s(10.0)
    world.submit("b", gpus=2)
    world.settle(world.timer(50.0))
    assert world.states() == {"a": "waiting", "b": "running"}
    assert world.live("a").memo.queue == 1
    world.settle(world.timer(100.0))
    assert world.live("b").memo.queue == 1
    assert world.states() == {"a": "waiting", "b": "running"}

    assert world.engine.wakeup_s == 50.0 + 2 * 50.0
    assert world.settle(world.timer(150.0)) == [stop("b"), start("a", on("n1", 2))]
    assert world.live("a").memo.queue == 0
    assert world.live("a").memo.attained_from_gpu_s == 100.0


def test_promotion_can_be_switched_off() -> None:
    world = World(gpus=1, policy="tiresias:thresholds=10,promote=0", placement="any")
    world.settle(world.submit("a"))
    world.settle(world.submit("b"))
    world.settle(world.timer(10.0))
    world.settle(world.timer(20.0))

    assert world.engine.wakeup_s == math.inf


@pytest.mark.parametrize(
    ("options", "message"),
    [("promote=-1", "promote is -1"), ("order=best", "order is 'best'; it must be one of las, gittins")],
)
def test_wrong_parameters_of_tiresias_are_refused(options: str, message: str) -> None:
    with pytest.raises(RotaError, match=message):
        find_policy("tiresias")[0].read(options)


# -- E-LAS ---------------------------------------------------------------------------------------


def test_first_epoch_goes_before_all() -> None:
    """Ten epochs of 10 s: `x` has done one at 10 s, and has 10 x (1 - 0.1) / 0.1 = 90 of service to come."""
    world = World(gpus=1, policy="e-las:epochs=10")
    world.settle(world.submit("x", work=100.0))
    assert world.submit("new", work=1000.0) == []

    assert world.engine.wakeup_s == 10.0
    assert world.settle(world.timer(10.0)) == [stop("x"), start("new", on("n1", 1))]
    assert world.live("x").memo == (1, pytest.approx(90.0))


def test_less_service_to_come_goes_first() -> None:
    """After an epoch each (of 10 and of 100), `short` has 10 x 9 = 90 to come, `long` 100 x 9 = 900."""
    world = World(gpus=1, policy="e-las:epochs=10")
    world.settle(world.submit("long", work=1000.0))
    world.submit("short", work=100.0)
    world.settle(world.timer(100.0))
    assert world.states() == {"long": "waiting", "short": "running"}
    assert world.settle(world.timer(110.0)) == []
    assert world.live("long").memo == (1, pytest.approx(900.0))
    assert world.live("short").memo == (1, pytest.approx(90.0))


def test_job_of_unknown_length_goes_by_its_service() -> None:
    world = World(gpus=1, policy="e-las").running("x").pass_s(5.0)

    assert world.submit("new") == [stop("x")]


def test_job_that_reports_goes_by_its_report() -> None:
    """Both have had 100 s and say nothing of their length; `a` reports a tenth of its epochs, `b` nine tenths."""
    world = World(gpus=2, policy="e-las").running("a", attained_gpu_s=100.0).running("b", attained_gpu_s=100.0)
    world.live("a").reported, world.live("b").reported = 0.1, 0.9

    assert world.submit("new") == [stop("a")]


def test_epochs_must_be_some() -> None:
    with pytest.raises(RotaError, match="epochs is 0"):
        find_policy("e-las")[0].read("epochs=0")


# -- DRF -----------------------------------------------------------------------------------------


def test_smallest_dominant_share_goes_first() -> None:
    """8 devices, 16 CPUs. `red` holds 1 device with 8 CPUs: 1/2 of the CPUs. `blue` holds 3 devices: 3/8."""
    of = cluster(node("n1", 8, cpu_milli=16_000, memory_bytes=64 * GIB))
    red, blue = TenantId("red"), TenantId("blue")
    world = World(of=of, policy="drf")
    world.running("r", gpus=1, cpu_milli=8000, tenant=red).running("b", gpus=3, tenant=blue)
    world.running("x", gpus=4, tenant=TenantId("other"))
    world.submit("r1", gpus=1, tenant=red)
    world.submit("b1", gpus=1, tenant=blue)
    world.submit("r2", gpus=1, tenant=red)
    world.submit("b2", gpus=1, tenant=blue)

    # blue 3/8 -> b1 -> 4/8, as red, whose r1 was submitted first -> still 1/2 (CPUs), so r2; then b2
    starts = [str(decision.job_id) for decision in world.ended("x")]
    assert starts == ["b1", "r1", "r2", "b2"]


def test_shares_can_be_compared_by_user() -> None:
    world = World(gpus=4, policy="drf:by=user").running("a", gpus=2, user="ann").running("x", gpus=2)
    world.submit("a1", gpus=1, user="ann")
    world.submit("b1", gpus=2, user="bob")

    assert world.ended("x") == [start("b1", on("n1", [2, 3]))]


def test_what_a_tenant_gives_back_no_longer_counts() -> None:
    """`red` had 2 and has none when a device becomes free; `blue` has 1, so that `red` goes first."""
    red, blue, other = TenantId("red"), TenantId("blue"), TenantId("other")
    world = World(gpus=4, policy="drf").running("r", gpus=2, tenant=red).running("b", gpus=1, tenant=blue)
    world.running("x", gpus=1, tenant=other)
    world.settle(world.ended("r"))
    world.settle(world.submit("y", gpus=2, tenant=other))
    world.submit("b1", gpus=1, tenant=blue)
    world.submit("r1", gpus=1, tenant=red)

    assert world.ended("x") == [start("r1", on("n1", [3]))]


def test_memory_can_be_the_dominant_share() -> None:
    of = cluster(node("n1", 4, memory_bytes=8 * GIB))
    world = World(of=of, policy="drf")
    world.running("r", gpus=1, memory_bytes=6 * GIB, tenant=TenantId("red"))
    world.running("b", gpus=2, tenant=TenantId("blue")).running("x", gpus=1, tenant=TenantId("other"))
    world.submit(job=job("r1", tenant=TenantId("red")))
    world.submit(job=job("b1", tenant=TenantId("blue")))

    assert world.ended("x") == [start("b1", on("n1", [3]))]


def test_who_has_had_least_lately_goes_first() -> None:
    """Half-life 10 s. Red has 2 devices from 0 to 10: 2 x 10/ln 2 x (1 - 1/2) = 14.4, faded to 7.0 at 20.5;
    blue 1 device from 10 on: 10/ln 2 x (1 - 1/2^1.05) = 7.5 at 20.5, more than red."""
    w = World(gpus=2, policy="fair-share:half_life_s=10")
    w.settle(w.submit("r", gpus=2, tenant=TenantId("red")))
    w.pass_s(10.0).settle(w.ended("r"))
    w.settle(w.submit("b", gpus=1, tenant=TenantId("blue")))
    w.settle(w.submit("o", gpus=1, tenant=TenantId("other")))
    w.pass_s(10.5)
    w.settle(w.submit("b2", gpus=1, tenant=TenantId("blue")))
    w.settle(w.submit("r2", gpus=1, tenant=TenantId("red")))

    w.settle(w.ended("o"))

    assert w.states() == {"r": "succeeded", "b": "running", "o": "succeeded", "b2": "waiting", "r2": "running"}
    use = {name: entry[0] for name, entry in w.state.past["fair-share"].items() if " user " not in name}
    half, fade = 10 / math.log(2), 0.5 ** (10.5 / 10)
    assert use["tenant red"] == pytest.approx(2 * half * 0.5 * fade)
    assert use["tenant blue"] == pytest.approx(half * (1 - fade))


def test_a_tenant_with_twice_the_weight_may_have_had_twice_as_much() -> None:
    """Red has had 2 x 10 device-seconds and weighs 3; blue has had 1 x 10: red is first."""
    w = World(gpus=3, policy="fair-share:half_life_s=1e9,entities=red/blue,weights=3/1")
    w.settle(w.submit("r", gpus=2, tenant=TenantId("red")))
    w.settle(w.submit("b", gpus=1, tenant=TenantId("blue")))
    w.settle(w.submit("b2", gpus=1, tenant=TenantId("blue")))
    w.settle(w.submit("r2", gpus=1, tenant=TenantId("red")))

    w.pass_s(10.0).settle(w.ended("b"))

    assert w.states()["r2"] == "running"
    assert w.states()["b2"] == "waiting"


def test_users_of_a_tenant_take_turns_by_what_they_have_had() -> None:
    w = World(gpus=2, policy="fair-share:half_life_s=1e9")
    w.settle(w.submit("ann1", gpus=1, user="ann"))
    w.settle(w.submit("bob1", gpus=1, user="bob"))
    w.pass_s(10.0).settle(w.ended("bob1"))
    w.settle(w.submit("bob2", gpus=1, user="bob"))
    w.pass_s(5.0)
    w.settle(w.submit("ann2", gpus=1, user="ann"))
    w.settle(w.submit("cy", gpus=1, user="cy"))

    w.settle(w.ended("ann1"))
    assert w.states()["cy"] == "running", "it has had nothing"
    w.settle(w.ended("cy"))
    assert w.states()["ann2"] == "running"


def test_what_was_had_survives_a_restart() -> None:
    w = World(gpus=2, policy="fair-share:half_life_s=1e9")
    w.settle(w.submit("r", gpus=2, tenant=TenantId("red")))
    w.pass_s(10.0).settle(w.ended("r"))
    state = restore(w.cluster, take(w.state))
    again = World(gpus=2, policy="fair-share:half_life_s=1e9")
    again.state, again.now_s = state, w.now_s
    again.settle(again.submit("full", gpus=2, tenant=TenantId("other")))
    again.settle(again.submit("r2", gpus=2, tenant=TenantId("red")))
    again.settle(again.submit("b2", gpus=2, tenant=TenantId("blue")))

    again.settle(again.ended("full"))

    assert again.states() == {"full": "succeeded", "r2": "waiting", "b2": "running"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("half_life_s=0", "half_life_s is 0"),
        ("entities=a/b,weights=1", "give one each"),
        ("entities=a,weights=0", "weights must be finite numbers above 0"),
        ("entities=a,weights=inf", "weights must be finite numbers above 0"),
        ("entities=a/a,weights=1/2", "entities name 'a' twice"),
    ],
)
def test_fair_shares_that_make_no_sense_are_refused(options: str, message: str) -> None:
    with pytest.raises(RotaError, match=message):
        find_policy("fair-share")[0].read(options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("entities=a/b,weights=1", "entities are 2 and weights 1; give one each"),
        ("entities=a,weights=inf", "weights must be finite numbers above 0"),
        ("entities=a/a,weights=1/2", "entities name 'a' twice; give its weights once"),
    ],
)
def test_capacities_that_make_no_sense_are_refused(options: str, message: str) -> None:
    with pytest.raises(RotaError, match=message):
        find_policy("capacity")[0].read(options)


@pytest.mark.parametrize(
    ("policy", "options", "message"),
    [
        ("themis", "lease_s=inf", "lease_s is inf; it must be a finite number above 0"),
        ("optimus", "round_s=inf", "round_s is inf; it must be above 0 and not endless"),
        ("pollux", "round_s=inf", "round_s is inf; it must be above 0 and not endless"),
        ("sia", "round_s=inf", "round_s is inf; it must be above 0 and not endless"),
        ("shockwave", "round_s=inf", "round_s is inf; it must be a finite number above 0"),
        ("elasticflow", "restarts=-1", "restarts is -1; it must not be negative"),
    ],
)
def test_endless_rounds_and_negative_counts_are_refused(policy: str, options: str, message: str) -> None:
    with pytest.raises(RotaError, match=message):
        find_policy(policy)[0].read(options)
