"""KubeShare's labels, for single tasks and gangs: what may be on one device, worked out by hand and for any jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import GIB, World, cluster, job, node
from rota.core.engine.engine import Engine
from rota.core.messages.events import Event
from rota.core.model.job import DeviceType, Job, Level, Locality, Role
from rota.core.model.placement import device_indexes
from rota.core.state.state import State
from rota.drivers.simulator.run import run
from rota.drivers.simulator.study import Setting, scheduler
from rota.drivers.simulator.world import World as Simulated
from rota.mechanisms.colocation.declare import label
from rota.perf.speed.model import Costs, SpeedModel
from rota.traces.workload import Submission
from watches import Watch

Devices = set[tuple[int, int]]


def gang(name: str, gpus: float, tasks: int, **labels: str) -> Job:
    return job(
        name, gpus=gpus, workers=tasks, labels=tuple((key.replace("_", "-"), value) for key, value in labels.items())
    )


def devices(world: World, name: str) -> list[int]:
    """The devices of a job's tasks on the one node."""
    return sorted(slot.devices.bit_length() - 1 for slot in world.live(name).placement or ())


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # Without labels a gang fills what others leave, the tightest device first.
        ({}, {}, [0, 1]),
        ({"exclusion": "x"}, {}, [1, 1]),
        ({}, {"exclusion": "x"}, [1, 1]),
        ({"exclusion": "x"}, {"exclusion": "x"}, [0, 1]),
        ({"anti_affinity": "x"}, {"anti_affinity": "x"}, [1, 2]),
        ({"affinity": "x"}, {"affinity": "y"}, [1, 1]),
        # The device of its affinity has room for one of its tasks only.
        ({"affinity": "x"}, {"affinity": "x"}, []),
    ],
    ids=str,
)
def test_gang_obeys_labels(first: dict[str, str], second: dict[str, str], expected: list[int]) -> None:
    world = World(gpus=3, policy="kubeshare")
    world.settle(world.submit(job=gang("a", 0.5, 1, **first)))

    world.settle(world.submit(job=gang("b", 0.5, 2, **second)))

    assert devices(world, "b") == expected


@pytest.mark.parametrize("policy", ["kubeshare", "antman"])
def test_parts_of_a_gang_are_all_of_one_type(policy: str) -> None:
    # The first task would fit tightest beside `a`; then there is no room on that type for the second.
    mixed = cluster(node("n1", 1, device_type=DeviceType("v100")), node("n2", 1, device_type=DeviceType("k80")))
    world = World(of=mixed, policy=policy)
    world.settle(world.submit(job=job("a", gpus=0.5, device_types=(DeviceType("v100"),))))

    world.settle(world.submit(job=gang("b", 0.5, 2)))

    assert [slot.node for slot in world.live("b").placement or ()] == [1, 1]


@pytest.mark.parametrize("policy", ["kubeshare", "antman"])
@pytest.mark.parametrize(
    ("memory", "expected"), [(0, [(1, 4), (2, 1)]), (4, [(1, 4), (2, 1)]), (6, [(1, 2), (2, 2), (4, 1)])]
)
def test_parts_that_may_not_be_shared_are_on_as_few_devices_as_will_do(
    policy: str, memory: int, expected: list[tuple[int, int]]
) -> None:
    world = World(of=cluster(node("n1", 4, device_memory_bytes=16 * GIB)), policy=policy)
    near = Locality(level=Level.NODE, hard=True)

    world.settle(world.submit(job=job("a", gpus=0.25, workers=5, locality=near, device_memory_bytes=memory * GIB)))

    assert [(slot.devices, slot.tasks) for slot in world.live("a").placement or ()] == expected


def test_gang_joins_its_like_when_there_is_room() -> None:
    world = World(gpus=3, policy="kubeshare")
    world.settle(world.submit(job=gang("a", 0.4, 1, affinity="x")))
    world.settle(world.submit(job=gang("other", 0.1, 1)))

    world.settle(world.submit(job=gang("b", 0.2, 2, affinity="x")))

    assert devices(world, "b") == [0, 0]


def test_job_waits_for_room_on_the_device_of_its_affinity() -> None:
    world = World(gpus=2, policy="kubeshare")
    for name in ("a", "b", "c"):
        world.settle(world.submit(job=gang(name, 0.4, 1, affinity="x")))
    reason = world.engine.explain(world.live("c").job.id)

    assert reason is not None
    assert reason.code.value == "labels-keep-off"
    world.settle(world.ended("a"))
    assert devices(world, "c") == [0]


def test_affinity_that_a_device_can_never_hold_is_said_to_be_so() -> None:
    world = World(gpus=2, policy="kubeshare")
    world.settle(world.submit(job=gang("a", 0.6, 2, affinity="x")))
    reason = world.engine.explain(world.live("a").job.id)

    assert reason is not None
    assert reason.code.value == "never-fits"


def test_single_job_gives_a_gang_back_what_it_has_beyond_its_request() -> None:
    world = World(gpus=1, policy="kubeshare")
    world.settle(world.submit(job=gang("a", 0.3, 1, limit="1")))
    assert world.live("a").placement[0].milli == 1000  # type: ignore[index]

    world.settle(world.submit(job=gang("b", 0.2, 2)))

    assert world.live("a").placement[0].milli == 600  # type: ignore[index]
    world.settle(world.ended("b"))
    world.settle(world.timer())
    assert world.live("a").placement[0].milli == 1000  # type: ignore[index]


class Kept(Watch):
    """Labels hold on every device after every step."""

    def look(self, now_s: float, events: Sequence[Event]) -> None:
        """Tasks by device, without the policy's books."""
        assert self.engine is not None
        tasks: dict[tuple[int, int], list[Job]] = {}
        homes: dict[str, Devices] = {}
        for live in self.engine.state.jobs.values():
            for slot in live.placement or ():
                at = [(slot.node, device) for device in device_indexes(slot.devices)]
                for device in at:
                    tasks.setdefault(device, []).extend([live.job] * slot.tasks)
                near = label(live.job, "affinity")
                if near is not None and live.job.roles[slot.role].is_fraction and len(live.job.roles) == 1:
                    homes.setdefault(near, set()).update(at)
        for there in tasks.values():
            assert len({label(each, "exclusion") for each in there}) == 1
            apart = [label(each, "anti-affinity") for each in there if each.roles[0].is_fraction]
            said = [each for each in apart if each is not None]
            assert len(said) == len(set(said))
        assert all(len(home) == 1 for home in homes.values())


some = st.sampled_from([None, None, "x", "y"])
asked_for: st.SearchStrategy[list[dict[str, Any]]] = st.lists(
    st.fixed_dictionaries(
        {
            "gpus": st.sampled_from([0.2, 0.3, 0.5, 0.7, 1]),
            "tasks": st.integers(1, 3),
            "roles": st.sampled_from([1, 1, 1, 2]),
            "work": st.integers(10, 200),
            "submit_s": st.integers(0, 60),
            "limit": st.sampled_from([None, "1"]),
            "exclusion": some,
            "affinity": some,
            "anti-affinity": some,
        }
    ),
    min_size=2,
    max_size=9,
)


def _job(number: int, asked: dict[str, Any]) -> Job:
    role = Role(count=asked["tasks"], device_milli=round(asked["gpus"] * 1000))
    roles = (role, Role(name="other", device_milli=300))[: asked["roles"]]
    names = ("limit", "exclusion", "affinity", "anti-affinity")
    labels = tuple((name, asked[name]) for name in names if asked[name] is not None)
    return job(f"j{number}", roles=roles, work=float(asked["work"]), labels=labels)


def _can_be_kept(asked: Job) -> bool:
    if label(asked, "affinity") is None or len(asked.roles) > 1 or not asked.roles[0].is_fraction:
        return True
    return asked.gpu_milli <= 1000 and (asked.tasks == 1 or label(asked, "anti-affinity") is None)


@pytest.mark.slow
@given(asked=asked_for)
@settings(max_examples=40)
def test_labels_hold_for_any_jobs_and_all_of_them_end(asked: list[dict[str, Any]]) -> None:
    made = [Submission(job=_job(n, each), submit_s=float(each["submit_s"])) for n, each in enumerate(asked)]
    submissions = sorted((each for each in made if _can_be_kept(each.job)), key=lambda each: each.submit_s)
    setting = Setting(cluster=cluster(node("n1", 3), node("n2", 2)), speed=SpeedModel(), costs=Costs())
    built, alloc, _ = scheduler("kubeshare", setting)
    watch = Kept()
    watch.engine = Engine(State(setting.cluster), built, alloc, journal=watch)

    run(watch.engine, Simulated(setting.cluster, setting.speed, setting.costs), submissions)

    assert all(watch.engine.state.live(each.job.id).state.value == "succeeded" for each in submissions)
