"""The invariants must be able to fail: break a state by hand and see it named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import builders
from builders import Script, World, cluster, job, node, on
from rota.core.engine.invariants import check
from rota.core.errors import InvariantBroken
from rota.core.messages.decisions import Cause
from rota.core.messages.events import JobArrived
from rota.core.model.job import Elastic, JobId, JobState, Role
from rota.core.state.phases import Phase


def busy() -> World:
    """`half` and `whole` run on n1, `leaves` vacates n2 for `comes`, `waits` for its turn, `held` is held."""
    of = cluster(node("n1", 4, cpu_milli=4000), node("n2", 4))
    world = World(of=of, policy="priority")
    world.running("half", gpus=0.5, cpu_milli=1000, at=on("n1", 1, milli=500))
    world.running("whole", gpus=1, at=on("n1", [1]))
    world.running("leaves", gpus=4, at=on("n2", 4)).pass_s(5.0)
    world.submit("comes", gpus=4, priority=3)
    world.submit("waits", gpus=4, work=100.0)
    world.submit("later", depends_on=(JobId("whole"),))
    check(world.state)
    builders.made.clear()  # what follows is broken on purpose
    return world


Breaks = Callable[[World], object]


def setter(name: str, field: str, value: object) -> Breaks:
    return lambda world: setattr(world.live(name), field, value)


def pool(field: str, value: object) -> Breaks:
    return lambda world: setattr(world.state.inventory.pools[0], field, value)


def books(field: str, value: object) -> Breaks:
    return lambda world: setattr(world.state.inventory.nodes[0], field, value)


def totals(field: str, value: object) -> Breaks:
    return lambda world: setattr(world.state.inventory, field, value)


def grab(name: str, *slots: object) -> Breaks:
    """Change a job's claim without telling the inventory."""
    return lambda world: world.live(name).set_placement(slots)  # type: ignore[arg-type]  # slots by `on`


@pytest.mark.parametrize(
    ("breaks", "message"),
    [
        (setter("whole", "run_since_s", None), "its clock is wrong"),
        (setter("comes", "phase", Phase.WAITING), "reservation is not registered"),
        (lambda w: w.state.reserved.clear(), "reservation is not registered"),
        (lambda w: w.live("comes").set_placement(None), "a reservation of nothing"),
        (lambda w: w.state.vacating.clear(), "vacates nothing"),
        (lambda w: w.live("whole").set_placement(None), "it holds nothing"),
        (setter("whole", "run_milli", 7), "runs on 7 thousandths"),
        (setter("whole", "stopping", Cause.PREEMPTED), "being stopped but vacates nothing"),
        (setter("comes", "stopping", Cause.MOVED), "being stopped but vacates nothing"),
        (setter("whole", "state", JobState.WAITING), "its clock is wrong"),
        (setter("waits", "state", JobState.SUCCEEDED), "its end does not fit"),
        (setter("waits", "phase", Phase.BLOCKED), "its record is that of a job which is waiting"),
        (setter("whole", "phase", Phase.RESIZING), "its record is that of a job which is running"),
        (setter("leaves", "phase", Phase.RUNNING), "its record is that of a job which is stopping"),
        (setter("waits", "ended_s", 3.0), "its end does not fit"),
        (setter("waits", "work", 101.0), "it has done 101.0 of 100.0"),
        (setter("waits", "work", -1.0), "it has done -1.0"),
        (setter("whole", "ran_s", -1.0), "negative time"),
        (setter("whole", "ran_s", 1e9), "longer than it has lived"),
        (setter("waits", "ran_s", 1e-9), "without ever starting"),
        (setter("whole", "first_start_s", -7.0), "out of order"),
        (setter("waits", "gpu_milli", 7), "counts 7 thousandths"),
        (setter("waits", "seq", 0), "sequence numbers"),
        (setter("later", "unmet", 0), "counts 0 unmet"),
        (lambda w: w.state.dependents.clear(), "does not know that it waits"),
        (grab("whole", *on("n1", [0])), "device 0 is claimed twice"),
        (grab("whole", *on("n1", [7])), "device 7 is claimed, it has 4"),
        (grab("whole", *on("n1", [2])), "free devices: the accounts have"),
        (grab("comes", *on("n1", [0])), "hold 1000 thousandths"),
        (pool("free", 9), "pool gpu: free devices"),
        (pool("usable", 9), "usable devices"),
        (pool("devices", 9), "pool gpu: devices"),
        (pool("nodes", 1), "pool gpu: nodes"),
        (pool("by_free", [0, 0, 0, 0, 0]), "nodes by free devices"),
        (pool("partial", []), "fractionally held devices"),
        (totals("free", 9), "inventory: free devices"),
        (totals("idle_free", 9), "free devices of idle nodes"),
        (totals("racks", {}), "racks"),
        (totals("domains", {}), "domains"),
        (totals("by_name", {}), "nodes by name"),
        (totals("cpu_total", 1), "all CPUs"),
        (totals("memory_total", 1), "all memory"),
        (books("users", 1), "slots"),
        (books("locked", True), "exclusive use"),
        (books("shares", {}), "shares"),
        (books("cpu_milli", 9), "CPUs"),
        (books("memory_bytes", 9), "memory"),
        (books("network_bps", 9), "network"),
        (books("disk_bps", 9), "disk"),
        (books("free", 9), "number of free devices"),
        (books("all_mask", 1), "n1: devices"),
    ],
)
def test_broken_state_is_named(breaks: Breaks, message: str) -> None:
    world = busy()

    breaks(world)

    with pytest.raises(InvariantBroken, match=message):
        check(world.state)


def test_job_under_another_name_is_found() -> None:
    world = busy()
    world.state.jobs[JobId("alias")] = world.state.jobs.pop(JobId("waits"))

    with pytest.raises(InvariantBroken, match="filed under another name"):
        check(world.state)


def test_parts_of_devices_of_two_types_are_found() -> None:
    two = cluster(node("n1", 1, device_type="a"), node("n2", 1, device_type="b"))
    world = World(of=two, policy=Script())
    world.engine.step(0.0, [JobArrived(job("a", workers=2, gpus=0.5))])
    builders.made.clear()
    live = world.live("a")
    live.set_placement(on("n1", 1, milli=500) + on("n2", 1, milli=500))
    live.enter(Phase.STARTING)
    live.run_milli = 1000

    with pytest.raises(InvariantBroken, match="is on two types"):
        check(world.state)


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"device_types": ("b",)}, "is on type 'a'"), ({"device_memory_bytes": 99}, "less memory than a task needs")],
)
def test_unfit_device_is_found(fields: dict[str, object], message: str) -> None:
    world = World(of=cluster(node("n1", 1, device_type="a", device_memory_bytes=10)), policy=Script())
    world.engine.step(0.0, [JobArrived(job("a", roles=(Role(**fields),)))])  # type: ignore[arg-type]  # a table
    builders.made.clear()
    live = world.live("a")
    live.set_placement(on("n1", 1))
    live.enter(Phase.STARTING)
    live.run_milli = 1000

    with pytest.raises(InvariantBroken, match=message):
        check(world.state)


def test_neighbour_of_an_exclusive_job_is_found() -> None:
    world = World(gpus=2).running("alone", exclusive=True, at=on("n1", 1))
    world.engine.step(0.0, [JobArrived(job("b"))])
    builders.made.clear()
    live = world.live("b")
    live.set_placement(on("n1", [1]))
    live.enter(Phase.STARTING)
    live.run_milli = 1000

    with pytest.raises(InvariantBroken, match="though alone is exclusive"):
        check(world.state)


def test_tasks_on_devices_that_another_has_not_left_are_found() -> None:
    """The claims are in order, but `comes` was started before `leaves` had gone."""
    world = busy()
    live = world.live("comes")
    world.state.begin(live)

    with pytest.raises(InvariantBroken, match="physically held twice"):
        check(world.state)


def test_overlap_of_two_sizes_of_one_job_is_no_fault() -> None:
    world = World(gpus=4).running("e", workers=4, elastic=Elastic(min_tasks=1, max_tasks=4), at=on("n1", 2, tasks=2))
    live = world.live("e")
    world.state.inventory.give(on("n1", 2, tasks=2), live.job.roles)
    world.state.inventory.take(on("n1", 3, tasks=3), live.job.roles)
    live.set_placement(on("n1", 3, tasks=3))
    world.state.order_resize(live, on("n1", 2, tasks=2))

    check(world.state)
