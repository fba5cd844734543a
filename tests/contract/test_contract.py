"""What every driver must do alike: the same scenes in the simulator, on this machine, on Kubernetes and on Slurm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import forked
from contract.scenes import (
    CANCEL,
    FAILURE,
    LOST_NODE,
    MOVE,
    PER_NODE,
    RESIZE,
    ROUNDS,
    SEQUENCE,
    SHARE,
    SLICES,
    URGENT,
    Course,
    Scene,
)
from contract.stages import on_pods, on_slurm, on_this_machine, simulated
from rota.drivers.kubernetes.driver import CONTRACT as KUBERNETES
from rota.drivers.local.driver import CONTRACT as LOCAL
from rota.drivers.simulator.world import CONTRACT as SIMULATOR
from rota.drivers.slurm.driver import CONTRACT as SLURM

pytestmark = pytest.mark.slow
CONTRACTS = {"simulator": SIMULATOR, "local": LOCAL, "kubernetes": KUBERNETES, "slurm": SLURM}
Play = Callable[[Scene], Course]


@pytest.fixture(params=["simulator", "local", "kubernetes", pytest.param("slurm", marks=pytest.mark.long)])
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Play:
    """Plays a scene on one of the stages; every journal is replayed and checked the same way."""

    def stage() -> Callable[[Scene, Path], Path]:
        match request.param:
            case "simulator":
                return simulated
            case "local":
                return on_this_machine
            case "slurm":
                return on_slurm(request.getfixturevalue("accounting_slurm"), request.getfixturevalue("launch_slurm"))
            case _:
                parts: list[Any] = [request.getfixturevalue(name) for name in ("managed", "launch", "kubelets")]
                return on_pods(*parts)

    def begin(scene: Scene) -> Course:
        contract = CONTRACTS[request.param]
        if not scene.needs <= contract.supports:
            pytest.skip(f"the {contract.name} driver does not support {scene.policy}")
        if contract is SLURM and any(part.elastic for part in scene.parts):
            pytest.skip("batch jobs of Slurm are not elastic")
        if scene.loses is not None and contract is LOCAL:
            pytest.skip("a manager of one machine is lost with its node")
        journal = stage()(scene, tmp_path)
        replay = forked.run(["sim", "--replay", str(journal)])
        assert replay.returncode == 0, replay.stderr
        course = Course(journal)
        for _, slot in course.slots():
            assert set(slot[1]) <= set(range(PER_NODE))
        return course

    return begin


def test_gang_starts_whole_and_the_next_when_there_is_room(play: Play) -> None:
    course = play(SEQUENCE)

    assert course.of("first")[-1] == course.of("second")[-1] == "succeeded"
    assert course.before(("first", "succeeded"), ("second", "-> start"))
    assert course.reasons["second"] == ["devices-busy"]
    for part in SEQUENCE.parts:
        (placement,) = course.starts[part.name]
        assert sum(slot[2] for slot in placement) == part.tasks
        assert sum(len(slot[1]) for slot in placement) == part.tasks * part.gpus


def test_urgent_job_displaces_another_which_goes_on_afterwards(play: Play) -> None:
    course = play(URGENT)

    assert course.before(("low", "started"), ("low", "-> stop"))
    assert course.before(("low", "stopped"), ("high", "-> start"))
    assert course.before(("high", "started"), ("high", "succeeded"))
    told = course.of("low")
    assert [word for word in told if word in ("-> start", "-> stop")] == ["-> start", "-> stop", "-> start"]
    assert told[-1] == "succeeded"


def test_failed_job_fails_and_the_others_go_on(play: Play) -> None:
    course = play(FAILURE)

    assert course.of("bad")[-1] == "failed"
    assert course.of("good")[-1] == "succeeded"


def test_elastic_job_shrinks_for_another_and_both_end(play: Play) -> None:
    course = play(RESIZE)

    assert course.before(("one", "started"), ("one", "-> resize"))
    assert course.before(("one", "-> resize"), ("one", "resized"))
    assert course.before(("one", "resized"), ("two", "-> start"))
    assert course.of("one")[-1] == course.of("two")[-1] == "succeeded"
    sizes = [sum(slot[2] for slot in on) for _, on in course.placements["one"]]
    assert sizes[:2] == [8, 4]


def test_jobs_are_suspended_and_resumed_by_turns(play: Play) -> None:
    course = play(SLICES)

    assert course.before(("one", "-> suspend"), ("one", "suspended"))
    assert course.before(("one", "suspended"), ("two", "-> start"))
    assert course.before(("one", "-> resume"), ("one", "resumed"))
    assert course.of("one").count("-> start") == course.of("two").count("-> start") == 1
    assert course.of("one")[-1] == course.of("two")[-1] == "succeeded"


def test_job_is_moved_to_a_node_with_others(play: Play) -> None:
    course = play(MOVE)

    (moved,) = {name for name, word in course.story if word == "-> move"}
    assert course.before((moved, "-> move"), (moved, "moved"))
    nodes = {name: held[-1][1][0][0] for name, held in course.placements.items()}
    assert nodes["one"] == nodes["two"]
    assert course.of("one")[-1] == course.of("two")[-1] == "succeeded"


def test_jobs_share_devices_and_the_last_has_them_whole(play: Play) -> None:
    course = play(SHARE)

    assert course.before(("two", "-> start"), ("one", "succeeded"))
    held = [[slot[4] for slot in on] for _, on in course.placements["one"]]
    assert held == [[1000, 1000], [500, 500], [1000, 1000]]
    assert course.of("one").count("-> resize") == course.of("one").count("resized") == 2
    assert course.of("one")[-1] == course.of("two")[-1] == "succeeded"


def test_leases_end_and_are_renewed_without_a_restart(play: Play) -> None:
    course = play(ROUNDS)

    for name in ("one", "two"):
        told = course.of(name)
        assert told.count("-> start") == 1
        assert told.count("-> renew") >= 2
        assert told.index("lapsed") < told.index("-> renew")
        late = told[told.index("succeeded") + 1 :]
        assert not [word for word in late if word.startswith("->")], "nothing is ordered for a job that has ended"
        assert set(late) <= {"lapsed", "speed-changed"}, "what was under way at the end may come after it"


def test_cancelled_job_leaves_its_devices_to_the_next(play: Play) -> None:
    course = play(CANCEL)

    assert course.before(("one", "cancelled"), ("one", "-> stop"))
    assert course.before(("one", "-> stop"), ("two", "-> start"))
    assert course.of("one").count("-> start") == 1
    assert course.of("two")[-1] == "succeeded"


def test_job_of_a_lost_node_starts_again_on_another(play: Play) -> None:
    course = play(LOST_NODE)

    (lost,) = {name for name, word in course.story if word == "interrupted"}
    (kept,) = {"one", "two"} - {lost}
    assert course.of(kept).count("-> start") == 1
    first, second = (on[0][0] for on in course.starts[lost])
    assert (first, second) == ("n1", "n2")
    assert course.of("one")[-1] == course.of("two")[-1] == "succeeded"
