"""Every waiting job says why: a case for each code, and the sentence that a user reads."""

from __future__ import annotations

from typing import Any

import pytest

from builders import GIB, World, cluster, job, node, on
from rota.core.messages.events import NodeDrained, NodeLost
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import DeviceType, Elastic, JobId, Locality, NodeId, Role


def test_devices_busy() -> None:
    world = World(gpus=4).running("x", gpus=3)
    world.submit("a", gpus=2)

    assert world.why("a") == Reason(code=ReasonCode.DEVICES_BUSY, need_milli=2000, free_milli=1000)


def test_fragmented_with_the_time_from_which_anything_will_do() -> None:
    world = World(gpus=2, nodes=2, placement="consolidate:relax_after=60")
    world.running("x", at=on("n1", 1)).running("y", at=on("n2", 1)).pass_s(10.0)
    world.submit("a", workers=2)

    assert world.why("a") == Reason(code=ReasonCode.FRAGMENTED, need_milli=2000, free_milli=2000, until_s=70.0)
    assert world.engine.wakeup_s == 70.0


def test_fragmented_for_ever() -> None:
    world = World(gpus=2, nodes=2).running("x", at=on("n1", 1)).running("y", at=on("n2", 1))
    world.submit("a", gpus=2)
    world.submit("b", workers=2, locality=Locality(hard=True), policy="fifo:backfill=true")

    for name in "ab":
        assert world.why(name) == Reason(code=ReasonCode.FRAGMENTED, need_milli=2000, free_milli=2000)


def test_host_busy() -> None:
    world = World(of=cluster(node("n1", 4, cpu_milli=2000)))
    world.submit("a", gpus=1, cpu_milli=3000)

    assert world.why("a") == Reason(code=ReasonCode.HOST_BUSY, need_milli=1000, free_milli=4000)


@pytest.mark.parametrize("busy", [0, 4])
def test_task_that_is_larger_than_every_node_never_fits(busy: int) -> None:
    world = World(gpus=4, nodes=2)
    if busy:
        world.running("x", workers=2, gpus=busy)
    world.submit("a", gpus=8)

    reason = Reason(code=ReasonCode.NEVER_FITS, need_milli=8000, owned_milli=4000)
    assert world.why("a") == reason
    assert reason.sentence() == (
        "needs 8 devices; the cluster can never offer that: a task needs more than a node's 4 devices"
    )


@pytest.mark.parametrize("event", [NodeLost(NodeId("n2")), NodeDrained(NodeId("n2"))])
def test_nodes_down(event: NodeLost | NodeDrained) -> None:
    world = World(gpus=2, nodes=2)
    world.step(event)
    world.submit("a", workers=3)

    assert world.why("a") == Reason(code=ReasonCode.NODES_DOWN, need_milli=3000, free_milli=2000)


def test_nodes_held_exclusively_count_as_down() -> None:
    world = World(gpus=4).running("x", gpus=1, exclusive=True)
    world.submit("a", gpus=1)

    assert world.code("a") is ReasonCode.NODES_DOWN


@pytest.mark.parametrize(
    "fields",
    [
        {"workers": 5},
        {"workers": 3, "device_types": (DeviceType("a"),)},
        {"workers": 3},
        {"roles": (Role(count=2), Role(name="b", count=3))},
        {"gpus": 3},
    ],
    ids=["too many", "of its type", "of any one type", "roles together", "on one node"],
)
def test_never_fits(fields: dict[str, Any]) -> None:
    two = cluster(node("n1", 2, device_type=DeviceType("a")), node("n2", 2, device_type=DeviceType("b")))
    world = World(of=two)
    world.submit("a", **fields)

    assert world.code("a") is ReasonCode.NEVER_FITS


@pytest.mark.parametrize("busy", [0, 2])
@pytest.mark.parametrize("gpus", [0.5, 1, 2])
def test_device_memory_that_no_device_has_is_named(busy: int, gpus: float) -> None:
    world = World(of=cluster(node("n1", 2, device_memory_bytes=16 * GIB)))
    if busy:
        world.running("x", gpus=busy)
    world.submit("a", gpus=gpus, device_memory_bytes=17 * GIB)
    reason = world.why("a")

    assert reason == Reason(code=ReasonCode.MEMORY_TOO_SMALL, need_milli=round(gpus * 1000))
    assert "more memory than any device that it may use" in reason.sentence()


def test_device_memory_of_another_type_is_no_help() -> None:
    small, large = (
        node(name, 1, device_type=DeviceType(name), device_memory_bytes=int(name[1:]) * GIB) for name in ("m16", "m32")
    )
    world = World(of=cluster(small, large))
    world.submit("b", device_memory_bytes=20 * GIB)
    world.submit("a", device_memory_bytes=20 * GIB, device_types=(DeviceType("m16"),))

    assert world.code("a") is ReasonCode.MEMORY_TOO_SMALL
    assert world.states()["b"] != "waiting"


def test_elastic_job_needs_its_least_size() -> None:
    world = World(gpus=4).running("x", gpus=3)
    world.submit("a", workers=8, elastic=Elastic(min_tasks=2, max_tasks=8))

    assert world.code("a") is ReasonCode.DEVICES_BUSY


def test_roles_together_need_more_than_is_free() -> None:
    world = World(gpus=4).running("x", gpus=1)
    world.submit(job=job("a", roles=(Role(count=2), Role(name="b", count=2))))

    assert world.why("a") == Reason(code=ReasonCode.DEVICES_BUSY, need_milli=4000, free_milli=3000)


def test_behind_another_job() -> None:
    world = World(gpus=4, policy="fifo").running("x", gpus=4)
    world.submit("a", gpus=4)
    world.submit("b", gpus=1)

    assert world.why("b") == Reason(code=ReasonCode.BEHIND, job=JobId("a"))


def test_what_stays_when_its_turn_comes_is_told_before() -> None:
    world = World(gpus=4, policy="fifo").running("x", gpus=4)
    world.submit("a", gpus=4)
    world.submit("b", gpus=1, device_types=(DeviceType("tpu"),))

    assert world.why("b") == Reason(code=ReasonCode.NO_SUCH_TYPE, need_milli=1000, device_type=DeviceType("tpu"))


def test_would_delay_the_head() -> None:
    world = World(gpus=4, policy="easy").running("x", gpus=2, work=100.0)
    world.submit("head", gpus=4, work=10.0)
    world.submit("long", gpus=1, work=500.0)

    assert world.code("head") is ReasonCode.DEVICES_BUSY
    assert world.why("long") == Reason(code=ReasonCode.WOULD_DELAY, job=JobId("head"), until_s=100.0)


def test_devices_being_vacated() -> None:
    world = World(gpus=4, policy="priority").running("x", gpus=4)
    world.submit("a", gpus=2, priority=5)

    assert world.why("a") == Reason(code=ReasonCode.VACATING, need_milli=2000)


def test_dependency() -> None:
    world = World(gpus=4).running("x").running("y")
    world.ended("x")
    world.submit("a", depends_on=(JobId("x"), JobId("y")))

    assert world.why("a") == Reason(code=ReasonCode.DEPENDENCY, job=JobId("y"))


def test_held() -> None:
    world = World(gpus=4)
    world.submit("a", held=True)

    assert world.why("a") == Reason(code=ReasonCode.HELD)


def test_running_and_ended_jobs_wait_for_nothing() -> None:
    world = World(gpus=4).running("a").running("b")
    world.ended("b")

    assert world.why("a") is None
    assert world.why("b") is None


def test_each_code_has_its_sentence() -> None:
    sentences = [
        Reason(code=code, need_milli=1000, free_milli=500, job=JobId("other"), until_s=7.0).sentence()
        for code in ReasonCode
    ]

    assert len(set(sentences)) == len(ReasonCode)
    assert sentences[0] == "needs 1 device, 0.5 devices available now; starts when other jobs end"
    assert sentences[1] == (
        "needs 1 device close together; 0.5 devices are free but too scattered; accepts any placement from 7 s"
    )
    assert "other" in Reason(code=ReasonCode.BEHIND, job=JobId("other")).sentence()


def test_a_type_that_is_not_there_is_named() -> None:
    world = World(gpus=4)
    world.submit("a", gpus=2, device_types=(DeviceType("H100"), DeviceType("A100")))

    reason = world.why("a")
    assert reason == Reason(code=ReasonCode.NO_SUCH_TYPE, need_milli=2000, device_type=DeviceType("H100"))
    assert reason.sentence() == "needs 2 devices of type H100, which no node has; name another type"
