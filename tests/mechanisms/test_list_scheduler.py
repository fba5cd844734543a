"""The list scheduler: strict queues, backfill, reservations, preemption that moves only who must."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import World, at_once, cluster, job, node, on, start, stop
from rota.core.engine.engine import Engine
from rota.core.messages.decisions import Cause, Stop
from rota.core.messages.events import NodeDrained, NodeOccupied
from rota.core.model.cluster import Cluster
from rota.core.model.job import DeviceType, JobId, JobState, Locality, NodeId, Role
from rota.core.state.state import State
from rota.drivers.simulator.run import run
from rota.drivers.simulator.world import World as SimulatedWorld
from rota.perf.speed.model import Costs, SpeedModel
from rota.placement import style
from rota.policies import find_policy
from rota.tenancy import allocator
from rota.traces.workload import Submission

A, B = DeviceType("a"), DeviceType("b")


def test_strict_queue_keeps_its_order_when_localities_differ() -> None:
    """A job that insists on one node and one that does not stand in the same queue."""
    world = World(gpus=2, nodes=2, policy="fifo")
    world.running("x", gpus=1, at=on("n1", 1)).running("y", gpus=1, at=on("n2", 1))
    assert world.submit("insists", gpus=1, workers=2, locality=Locality(hard=True)) == []

    assert world.submit("later", gpus=1) == []


def test_strict_queue_keeps_its_order_when_the_first_has_relaxed() -> None:
    world = World(gpus=2, policy="fifo", placement="consolidate:relax_after=100").running("x", gpus=1)
    world.submit("first", gpus=2)
    world.timer(200.0)

    assert world.submit("later", gpus=1) == []


def test_job_that_need_not_yield_stays_on_a_drained_node() -> None:
    """Making room looks at the last in order first; one who can't help keeps its devices."""
    world = World(gpus=2, nodes=2, policy="priority")
    world.running("first", gpus=2, at=on("n1", 2)).running("last", gpus=2, at=on("n2", 2))
    world.step(NodeDrained(NodeId("n2")))

    assert world.submit("high", gpus=2, priority=5) == [stop("first")]


def test_job_that_must_not_preempt_waits_for_free_devices() -> None:
    world = World(gpus=2, policy="priority").running("low", gpus=2)

    assert world.submit("polite", gpus=2, priority=9, preempts=False) == []
    assert world.submit("high", gpus=2, priority=5) == [stop("low")]


def test_node_of_which_others_hold_more_than_it_has_gets_no_job() -> None:
    """Pods that a node was given by name may ask for more CPUs than it has."""
    nodes = [node(name, devices=2, cpu_milli=4000) for name in ("n1", "n2")]
    world = World(of=Cluster(nodes=tuple(nodes)), policy="priority")
    world.step(NodeOccupied(NodeId("n1"), 0, 9000, 0))

    assert world.submit("one", gpus=1, cpu_milli=1000) == [start("one", on("n2", 1))]
    assert world.submit("two", gpus=0, cpu_milli=4000) == []


def test_whole_device_is_taken_from_one_who_holds_half_of_it() -> None:
    world = World(gpus=1, policy="priority").running("half", gpus=0.5)

    assert world.submit("high", gpus=1, priority=5) == [stop("half")]


def test_whole_node_is_taken_from_one_who_holds_it_alone() -> None:
    world = World(gpus=4, policy="priority").running("alone", gpus=1, exclusive=True)

    assert world.submit("high", gpus=4, priority=5) == [stop("alone")]


def test_devices_of_the_second_role_are_taken_too() -> None:
    two = cluster(node("n1", 2, device_type=A), node("n2", 2, device_type=B))
    world = World(of=two, policy="priority").running("x", gpus=2, at=on("n2", 2))
    roles = (Role(name="ps", device_milli=0, device_types=(A,)), Role(device_milli=2000, device_types=(B,)))

    assert world.submit(job=job("high", roles=roles, priority=5)) == [stop("x", Cause.MOVED)]
    assert world.live("x").placement == on("n1", 2)


def test_exclusive_job_of_two_roles_goes_back_to_its_own_devices() -> None:
    """`pair` is the last in order and of no use to `high`: it is put back as it was."""
    roles = (Role(name="a", count=1), Role(name="b", count=1))
    two = cluster(node("n1", 2, device_type=A), node("n2", 2, device_type=B))
    world = World(of=two, policy="priority").running("low", gpus=2, device_types=(A,))
    world.running("pair", job=job("pair", roles=roles, exclusive=True), at=on("n2", 1) + on("n2", [1], role=1))

    decisions = world.submit("high", gpus=2, priority=5, device_types=(A,))

    assert decisions == [stop("low")]


# -- strict, backfill ----------------------------------------------------------------------------


def test_strict_queue_waits_for_its_head() -> None:
    world = World(gpus=4, policy="fifo").running("x", gpus=2)
    world.submit("big", gpus=4)

    assert world.submit("small", gpus=1) == []
    assert world.ended("x") == [start("big", on("n1", 4))]


def test_backfill_passes_what_does_not_fit() -> None:
    world = World(gpus=4, policy="fifo:backfill=true").running("x", gpus=2)
    world.submit("big", gpus=4)

    assert world.submit("small", gpus=1) == [start("small", on("n1", [2]))]
    assert world.submit("other", gpus=2) == []
    assert world.ended("x") == [start("other", on("n1", 2))]


def test_alike_jobs_go_in_order() -> None:
    world = World(gpus=2, policy="fifo:backfill=true").running("x", gpus=2)
    for name in "abc":
        world.submit(name)

    assert world.ended("x") == [start("a", on("n1", 1)), start("b", on("n1", [1]))]


def test_job_that_relaxes_starts_at_that_moment() -> None:
    world = World(gpus=2, nodes=2, policy="fifo", placement="consolidate:relax_after=60")
    world.running("x", at=on("n1", 1)).running("y", at=on("n2", 1))
    assert world.submit("a", workers=2) == []

    assert world.engine.wakeup_s == 60.0
    assert world.timer(60.0) == [start("a", on("n1", [1]), on("n2", [1]))]


# -- EASY ----------------------------------------------------------------------------------------


def test_head_has_a_date_and_short_jobs_fill_the_time_before_it() -> None:
    """`x` frees 2 of 4 at 100; the head needs all 4, at 100. What ends by then may pass, what does not may not."""
    world = World(gpus=4, policy="easy").running("x", gpus=2, work=100.0)
    world.submit("head", gpus=4, work=50.0)

    assert world.submit("short", gpus=1, work=100.0) == [start("short", on("n1", [2]))]
    assert world.submit("long", gpus=1, work=101.0) == []


def test_what_the_head_leaves_over_may_be_used_for_long() -> None:
    """At 100 there are 4 free and the head takes 3: one device may be held beyond that, two may not."""
    world = World(gpus=4, policy="easy").running("x", gpus=2, work=100.0)
    world.submit("head", gpus=3, work=50.0)

    assert world.submit("wide", gpus=2, work=1000.0) == []
    assert world.submit("narrow", gpus=1, work=1000.0) == [start("narrow", on("n1", [2]))]
    assert world.submit("more", gpus=1, work=1000.0) == []
    assert world.submit("brief", gpus=1, work=100.0) == [start("brief", on("n1", [3]))]


def test_what_the_head_leaves_over_is_used_once() -> None:
    """3 of 5 become free; at 100 the head takes 4 of 5. `a` may have the fifth for long, `b` then may not."""
    world = World(gpus=5, policy="easy").running("x", gpus=2, work=100.0, at=on("n1", 2)).running("y", gpus=3)
    world.submit("head", gpus=4, work=50.0)
    world.submit("a", work=1000.0)
    world.submit("b", work=1000.0)
    world.submit("c", work=100.0)

    assert world.ended("y") == [start("a", on("n1", [2])), start("c", on("n1", [3]))]


def test_shorter_job_of_the_same_shape_may_pass_a_longer_one() -> None:
    world = World(gpus=4, policy="easy").running("x", gpus=3, work=100.0)
    world.submit("head", gpus=4, work=50.0)
    world.submit("long", work=500.0)
    world.submit("longer", work=600.0)

    assert world.submit("short", work=10.0) == [start("short", on("n1", [3]))]


def test_head_that_no_end_helps_holds_nobody_back() -> None:
    world = World(gpus=4, nodes=1, policy="easy").running("x", gpus=2, work=100.0)
    world.submit("head", gpus=8, work=50.0)

    assert world.submit("long", gpus=2, work=1e6) == [start("long", on("n1", [2, 3]))]


def test_first_jobs_start_in_order_before_any_reservation() -> None:
    world = World(gpus=4, policy="easy").running("x", gpus=4, work=10.0)
    world.submit("a", gpus=2, work=10.0)
    world.submit("b", gpus=4, work=10.0)
    world.submit("c", gpus=2, work=1000.0)
    world.submit("d", gpus=2, work=5.0)
    world.pass_s(10.0)

    assert world.ended("x") == [start("a", on("n1", 2)), start("d", on("n1", [2, 3]))]


@given(rows=st.lists(st.tuples(st.integers(0, 20), st.integers(1, 8), st.integers(1, 60)), min_size=2, max_size=14))
def test_head_never_starts_later_than_its_first_date(rows: list[tuple[int, int, int]]) -> None:
    """With exact estimates, the date that the head is given when it comes to the front is kept."""
    now_s = 0.0
    submissions = []
    for number, (gap_s, gpus, work_s) in enumerate(rows):
        now_s += gap_s
        submissions.append(Submission(job=job(f"j{number}", workers=gpus, work=float(work_s)), submit_s=now_s))
    dates: dict[str, float] = {}
    of = Cluster.uniform(("gpu", 8, 4))
    alloc = allocator("none", style("any"))
    declared, _ = find_policy("easy")

    class Watch:
        """Works out the head's date from the ends of those that hold devices, by count."""

        def append(self, now_s: float, *_: object) -> None:
            waiting = [live for live in engine.state.jobs.values() if live.state is JobState.WAITING]
            if not waiting or waiting[0].job.id in dates:
                return
            head = waiting[0]
            free = engine.state.inventory.free
            holders = sorted(
                (now_s + live.remaining_s(now_s), live.gpus)
                for live in engine.state.jobs.values()
                if live.placement is not None
            )
            for end_s, gpus in holders:
                free += int(gpus)
                if free >= head.gpus:
                    dates[head.job.id] = end_s
                    return

    engine = Engine(State(of), declared.build("", alloc), alloc, journal=Watch())
    run(engine, SimulatedWorld(of, SpeedModel(), Costs()), submissions)

    for name, date_s in dates.items():
        started_s = engine.state.live(JobId(name)).first_start_s
        assert started_s is not None
        assert started_s <= date_s


# -- preemption ---------------------------------------------------------------------------------


def test_last_in_order_yields_first_and_only_as_many_as_must() -> None:
    world = World(gpus=4, policy="priority")
    for name in "abcd":
        world.running(name)

    assert world.submit("high", gpus=2, priority=5) == [stop("d"), stop("c")]
    assert world.stopped("c") == []
    assert world.stopped("d") == [start("high", on("n1", [2, 3]))]


def test_evicted_job_that_still_fits_goes_back_to_its_own_devices() -> None:
    """`high` needs 2: `last` (1) is evicted first and is not enough, `wide` (2) follows, and `last` fits again."""
    world = World(gpus=4, policy="priority")
    world.running("first", at=on("n1", 1)).running("wide", gpus=2, at=on("n1", [1, 2]))
    world.running("last", at=on("n1", [3]))

    assert world.submit("high", gpus=2, priority=5) == [stop("wide")]
    assert world.live("last").placement == on("n1", [3])
    assert world.live("high").placement == on("n1", [1, 2])


def test_room_left_by_an_eviction_goes_to_those_who_wait() -> None:
    world = World(gpus=4, policy="priority").running("wide", gpus=4)
    world.submit("small", gpus=1)

    decisions = world.settle(world.submit("high", gpus=2, priority=5))

    assert decisions == [stop("wide"), start("high", on("n1", 2)), start("small", on("n1", [2]))]
    assert world.states()["wide"] == "waiting"


def test_nobody_yields_to_one_who_would_not_fit_anyway() -> None:
    world = World(gpus=4, policy="priority").running("a", priority=9).running("b", gpus=3)

    assert world.submit("high", gpus=4, priority=5) == []
    assert world.live("b").placement == on("n1", [1, 2, 3])


def test_jobs_are_moved_together_to_make_room_on_one_node() -> None:
    world = World(gpus=2, nodes=2, policy="priority")
    world.running("x", at=on("n1", 1)).running("y", at=on("n2", 1))

    decisions = world.settle(world.submit("high", gpus=2, priority=5))

    assert decisions == [stop("y", Cause.MOVED), start("y", on("n1", [1])), start("high", on("n2", 2))]


@pytest.mark.slow
def test_nobody_moves_when_everybody_fits() -> None:
    for policy in at_once():
        world = World(gpus=4, nodes=2, policy=policy)
        stops = []
        for number in range(8):
            decisions = world.settle(world.submit(f"j{number}", work=10.0 + number, priority=number % 3))
            stops += [decision for decision in decisions if isinstance(decision, Stop)]
            world.pass_s(1.0)
        assert stops == []
        assert set(world.states().values()) == {"running"}
