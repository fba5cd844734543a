"""Jobs placed by a chooser at each interval; what it can't place goes where the placement by name has it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rota.core.model.job import WHOLE, Job, JobId, Role
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.drivers.simulator.study import Setting, simulate
from rota.learn.evaluation.oracle import Oracle
from rota.learn.evaluation.play import AsOffered, mean_jct_s, play
from rota.learn.workloads import WorkloadShape, cluster_of, workload
from rota.mechanisms.learned.actor import Actor
from rota.mechanisms.learned.heuristics import Scored, fullest, least_loaded
from rota.mechanisms.learned.interval_placement import Chooser
from rota.mechanisms.learned.server_arrays import ServerArrays, as_placement
from rota.perf.speed.model import SpeedModel
from rota.policies.published.learned.harmony import learned
from rota.traces.workload import Submission, Workload


def job(name: str, model: str = "vgg16", workers: int = 2, servers: int = 0, **more: object) -> Job:
    roles = [Role(name="worker", count=workers, cpu_milli=3 * WHOLE)]
    if servers:
        roles.append(Role(name="ps", count=servers, device_milli=0, cpu_milli=2 * WHOLE))
    return Job(id=JobId(name), roles=tuple(roles), model=model, work=600.0, **more)  # type: ignore[arg-type]


def of(*jobs: Job, at_s: float = 10.0) -> Workload:
    return Workload(submissions=tuple(Submission(job=one, submit_s=at_s) for one in jobs), source="test", format="rota")


CHOOSERS = {"learned": Actor(learned("").network), "balance": Scored(least_loaded), "pack": Scored(fullest)}


@pytest.mark.parametrize("chooser", CHOOSERS.values(), ids=CHOOSERS)
def test_choice_is_a_whole_gang_within_what_is_free_and_leaves_the_room_as_it_was(chooser: Chooser) -> None:
    inventory = Inventory(cluster_of(3))
    arrays = ServerArrays(inventory, chooser.kinds)
    before = arrays.free.copy()
    wide = job("a", workers=6, servers=3)

    chosen = chooser.choose(arrays, LiveJob(wide, 0, 0.0, 1.0), 0.0)

    assert chosen is not None
    assert [sum(tasks for (role, _), tasks in chosen.items() if role == index) for index in (0, 1)] == [6, 3]
    assert as_placement(inventory, wide, chosen) is not None
    assert np.array_equal(arrays.free, before)


def test_balancing_spreads_and_packing_keeps_together() -> None:
    arrays = ServerArrays(Inventory(cluster_of(3)), ())
    live = LiveJob(job("a", workers=3), 0, 0.0, 1.0)

    spread, packed = (Scored(score).choose(arrays, live, 0.0) for score in (least_loaded, fullest))

    assert spread == {(0, 0): 1, (0, 1): 1, (0, 2): 1}
    assert packed == {(0, 0): 3}


def test_learned_placement_keeps_a_job_that_sends_much_on_one_server() -> None:
    actor = Actor(learned("").network)
    arrays = ServerArrays(Inventory(cluster_of(6)), actor.kinds)

    chosen = actor.choose(arrays, LiveJob(job("a", "vgg16", workers=4, servers=2), 0, 0.0, 1.0), 0.0)

    assert chosen is not None
    assert len({node for _, node in chosen}) == 1


def test_learned_placement_keeps_two_hungry_for_cores_apart() -> None:
    actor = Actor(learned("").network)
    arrays = ServerArrays(Inventory(cluster_of(6)), actor.kinds)
    first, second = job("a", "alexnet", workers=1), job("b", "alexnet", workers=1)
    chosen = actor.choose(arrays, LiveJob(first, 0, 0.0, 1.0), 0.0)
    assert chosen is not None
    arrays.add(first, chosen)

    other = actor.choose(arrays, LiveJob(second, 1, 0.0, 1.0), 0.0)

    assert other is not None
    assert {node for _, node in other}.isdisjoint(node for _, node in chosen)


def test_jobs_wait_for_the_end_of_the_interval() -> None:
    rows = play(of(job("a"), job("b"), at_s=70.0), 2, Scored(fullest), interval_s=60.0).jobs

    assert [row.start_s for row in rows] == [120.0, 120.0]


def test_interval_of_zero_places_at_once() -> None:
    rows = play(of(job("a")), 2, Scored(fullest), interval_s=0.0).jobs

    assert [row.start_s for row in rows] == [10.0]


def test_placed_jobs_are_never_moved_and_all_end() -> None:
    rows = play(workload(WorkloadShape(servers=3, jobs_per_server=6), 5), 3, Actor(learned("").network)).jobs

    assert all(row.end_s is not None and row.moves == row.preemptions == 0 for row in rows)


def test_search_that_knows_the_truth_beats_balancing() -> None:
    work = workload(WorkloadShape(servers=4, jobs_per_server=8), 2)

    knowing, balancing, offered = (
        mean_jct_s(play(work, 4, chooser))
        for chooser in (Oracle(cluster_of(4).nodes), Scored(least_loaded), AsOffered())
    )

    assert knowing < 0.95 * balancing
    assert offered != knowing


@pytest.mark.parametrize(
    ("given", "by_heuristic"),
    [
        (job("whole"), False),
        (job("own", exclusive=True), True),
        (Job(id=JobId("part"), roles=(Role(device_milli=500),), work=60.0), True),
    ],
    ids=lambda value: str(getattr(value, "id", value)),
)
def test_journal_says_what_the_network_did_not_place(given: Job, by_heuristic: bool, tmp_path: Path) -> None:
    from rota.core.messages.events import Event
    from rota.core.messages.reasons import Reason

    told: list[Reason] = []

    class Tape:
        def append(
            self, now_s: float, events: list[Event], decisions: object, waits: list[tuple[JobId, Reason]]
        ) -> None:
            told.extend(reason for _, reason in waits)

    setting = Setting(cluster=cluster_of(2), speed=SpeedModel(contention=True))

    simulate(of(given), "harmony", setting, journal=Tape())  # type: ignore[arg-type]  # a tape is enough

    assert [reason.code.value for reason in told] == ["placed-by-heuristic"] * by_heuristic
    assert all("learned policy" in reason.sentence() for reason in told)


def test_shipped_weights_are_small_and_say_how_they_were_made() -> None:
    from rota.policies.published.learned.harmony import SHIPPED

    assert SHIPPED.stat().st_size < 1_000_000
    about = learned("").about
    assert about["command"].startswith("rota learn train ")
    assert about["reward_model"]["median_error"] < 0.1
    json.dumps(about)
