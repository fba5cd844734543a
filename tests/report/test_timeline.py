from __future__ import annotations

import pickle
import time

import numpy as np
import pytest

from builders import Script, World, job, on
from report.histories import simulated, sub
from rota.core.engine.draft import Draft
from rota.core.messages.decisions import Start
from rota.core.messages.events import End, JobEnded, NodeAdded, Started, TimerFired
from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import Elastic, JobId, NodeId
from rota.core.state.history import history_of
from rota.report.metrics import measure
from rota.report.series import Series
from rota.report.timeline import Tee, Timeline


def points(series: Series) -> list[tuple[float, float]]:
    return list(zip(series.times_s.tolist(), series.values.tolist(), strict=True))


def bars(timeline: Timeline) -> list[tuple[str, int, int, float, float]]:
    held = timeline.segments()
    nodes, start_s, end_s = held.nodes.tolist(), held.start_s.tolist(), held.end_s.tolist()
    return sorted(zip(held.job_ids, nodes, held.masks, start_s, end_s, strict=True))


def watched(**fields: object) -> tuple[World, Timeline]:
    cluster = Cluster.uniform(("gpu", 4, 4))
    timeline = Timeline(cluster)
    return World(of=cluster, journal=timeline, **fields), timeline  # type: ignore[arg-type]  # as given


def test_jobs_wait_then_run_then_leave() -> None:
    result, timeline = simulated(
        [sub("a", 0.0, 100.0, gpus=4), sub("b", 10.0, 50.0, gpus=2), sub("c", 20.0, 50.0, gpus=2)]
    )

    assert points(timeline.waiting(result.history)) == [
        (0.0, 0.0),
        (10.0, 1.0),
        (20.0, 2.0),
        (100.0, 0.0),
        (150.0, 0.0),
    ]
    assert points(timeline.running()) == [(0.0, 1.0), (100.0, 2.0), (150.0, 0.0)]
    assert points(timeline.devices_in_use()) == [(0.0, 4.0), (100.0, 4.0), (150.0, 0.0)]
    assert bars(timeline) == [
        ("a", 0, 0b1111, 0.0, 100.0),
        ("b", 0, 0b0011, 100.0, 150.0),
        ("c", 0, 0b1100, 100.0, 150.0),
    ]
    assert timeline.events == result.events


def test_preempted_job_waits_again_and_has_two_bars() -> None:
    jobs = [sub("long", 0.0, 100.0, gpus=4), sub("short", 10.0, 5.0, gpus=4)]
    result, timeline = simulated(jobs, "srtf", restart_s=2.0)

    assert bars(timeline) == [
        ("long", 0, 0b1111, 0.0, 10.0),
        ("long", 0, 0b1111, 15.0, 107.0),
        ("short", 0, 0b1111, 10.0, 15.0),
    ]
    assert points(timeline.waiting(result.history)) == [(0.0, 0.0), (10.0, 1.0), (15.0, 0.0), (107.0, 0.0)]


def test_job_of_a_lost_node_waits_and_the_capacity_falls() -> None:
    result, timeline = simulated(
        [sub("a", 0.0, 100.0, gpus=8, workers=1)],
        gpus=8,
        per_node=8,
        faults=[(30.0, "n1", False), (50.0, "n1", True)],
    )

    assert bars(timeline) == [("a", 0, 0xFF, 0.0, 30.0), ("a", 0, 0xFF, 50.0, 120.0)]
    assert points(timeline.capacity()) == [(0.0, 8.0), (30.0, 0.0), (50.0, 8.0)]
    assert points(timeline.waiting(result.history)) == [(0.0, 0.0), (30.0, 1.0), (50.0, 0.0), (120.0, 0.0)]


def test_gang_over_two_nodes_is_one_running_job_with_a_bar_on_each() -> None:
    _, timeline = simulated([sub("a", 0.0, 10.0, gpus=2, workers=2)], gpus=4, per_node=2)

    assert bars(timeline) == [("a", 0, 0b11, 0.0, 10.0), ("a", 1, 0b11, 0.0, 10.0)]
    assert points(timeline.running()) == [(0.0, 1.0), (10.0, 0.0)]
    assert points(timeline.devices_in_use()) == [(0.0, 4.0), (10.0, 0.0)]


def test_part_of_a_device_counts_as_that_part() -> None:
    _, timeline = simulated([sub("a", 0.0, 10.0, gpus=0.5), sub("b", 5.0, 10.0, gpus=0.25)])

    assert points(timeline.devices_in_use()) == [(0.0, 0.5), (5.0, 0.75), (10.0, 0.25), (15.0, 0.0)]


def test_resized_job_changes_its_bar_and_keeps_running() -> None:
    script = Script()
    world, timeline = watched(policy=script)
    world.submit(job=job("e", workers=4, elastic=Elastic(min_tasks=1, max_tasks=4), work=1e6))
    live = world.live("e")
    script.todo, script.wakeup_s = [lambda draft: draft.assign(live, on("n1", 4, tasks=4))], 0.0
    world.settle(world.timer())

    def shrink(draft: Draft) -> None:
        draft.release(live)
        draft.assign(live, on("n1", 1, tasks=1))

    world.pass_s(10.0)
    script.todo, script.wakeup_s = [shrink], world.now_s
    world.settle(world.timer())
    world.pass_s(10.0).ended("e")

    assert bars(timeline) == [("e", 0, 0b0001, 10.0, 20.0), ("e", 0, 0b1111, 0.0, 10.0)]
    assert points(timeline.running()) == [(0.0, 1.0), (10.0, 1.0), (20.0, 0.0)]


def test_held_job_does_not_wait() -> None:
    world, timeline = watched()
    world.settle(world.submit("busy", gpus=4))
    world.submit("kept", held=True)
    world.pass_s(10.0).submit("b")
    world.pass_s(10.0).hold("b")
    world.pass_s(10.0).release("kept")
    world.pass_s(10.0).cancel("b")
    world.pass_s(10.0).hold("busy")
    world.settle(world.ended("busy"))
    world.hold("busy")
    world.pass_s(10.0).ended("kept")

    waiting = timeline.waiting(history_of(world.state))

    assert [waiting.at(t) for t in (5.0, 15.0, 25.0, 35.0, 45.0, 55.0, 65.0)] == [0, 1, 0, 1, 1, 0, 0]


def test_job_that_fails_to_start_never_ran() -> None:
    world, timeline = watched()
    world.submit("a")
    world.pass_s(5.0).settle(world.start_failed("a"))
    world.pass_s(5.0).ended("a")

    assert bars(timeline) == [("a", 0, 0b1, 5.0, 10.0)]
    assert timeline.waiting(history_of(world.state)).at(4.0) == 1.0


def test_job_that_waits_for_another_is_waiting() -> None:
    result, timeline = simulated([sub("a", 0.0, 100.0), sub("b", 10.0, 5.0, depends_on=("a",))])

    assert timeline.waiting(result.history).at(50.0) == 1.0
    assert timeline.waiting(result.history).at(101.0) == 0.0


def test_what_still_runs_has_a_bar_up_to_now() -> None:
    world, timeline = watched()
    world.settle(world.submit("a", gpus=2))
    world.pass_s(30.0).submit("b", gpus=4)

    assert bars(timeline) == [("a", 0, 0b11, 0.0, 30.0)]
    assert timeline.waiting(history_of(world.state)).at(30.0) == 0.0  # both series end with the last step


def test_added_node_has_its_place() -> None:
    world, timeline = watched()
    world.pass_s(7.0).step(NodeAdded(Node(id=NodeId("new"), devices=2)))
    world.timer()

    assert timeline.node_ids == ["n1", "new"]
    assert points(timeline.capacity()) == [(7.0, 6.0)]


def test_node_of_more_than_64_devices_is_kept_whole() -> None:
    _, timeline = simulated([sub("a", 0.0, 10.0, gpus=100)], gpus=100, per_node=100)

    assert bars(timeline) == [("a", 0, (1 << 100) - 1, 0.0, 10.0)]
    assert timeline.devices_in_use().at(5.0) == 100.0


@pytest.mark.parametrize("policy", ["fifo", "srtf", "las", "tiresias"])
def test_curves_agree_with_the_metrics(policy: str) -> None:
    jobs = [sub(f"j{i}", 10.0 * (i % 7), 5.0 + 37 * i % 50, gpus=1 + i % 4) for i in range(40)]
    result, timeline = simulated(sorted(jobs, key=lambda s: s.submit_s), policy, gpus=8)

    figures = measure(result.history)
    use, waiting = timeline.devices_in_use(), timeline.waiting(result.history)

    assert use.mean() / 8 == pytest.approx(figures.gpu_allocation)
    assert figures.avg_wait_s is not None
    assert waiting.mean() * figures.makespan_s / 40 == pytest.approx(figures.avg_wait_s)
    assert (waiting.values.min(), use.values.max() <= 8) == (0.0, True)


def test_tee_passes_every_step_to_all() -> None:
    cluster = Cluster.uniform(("gpu", 4, 4))
    one, two = Timeline(cluster), Timeline(cluster)
    world = World(of=cluster, journal=Tee(one, two))
    world.settle(world.submit("a"))
    world.pass_s(10.0).ended("a")

    assert bars(one) == bars(two) == [("a", 0, 0b1, 0.0, 10.0)]


def test_timeline_travels_between_processes() -> None:
    result, timeline = simulated([sub(f"j{i}", float(i), 30.0) for i in range(20)])

    twin = pickle.loads(pickle.dumps(timeline))

    assert bars(twin) == bars(timeline)
    assert points(twin.waiting(result.history)) == points(timeline.waiting(result.history))


@pytest.mark.slow
def test_many_steps_are_cheap_and_small() -> None:
    cluster = Cluster.uniform(("gpu", 440, 8))
    timeline = Timeline(cluster)
    begun = time.process_time()
    for i in range(20_000):
        name = JobId(f"job-{i}")
        timeline.append(float(i), [TimerFired()], [Start(name, on("n1", 2))], [])
        timeline.append(float(i), [Started(name, 1.0, float(i))], [], [])
        timeline.append(i + 5.0, [JobEnded(name, End.SUCCEEDED, 1.0)], [], [])
    spent_s = time.process_time() - begun

    assert spent_s / 20_000 < 60e-6  # about 5 measured; the bound allows for a slow and busy machine
    assert len(pickle.dumps(timeline)) / 20_000 < 80
    assert len(timeline.segments()) == 20_000
    assert np.all(timeline.running().values <= 7)
