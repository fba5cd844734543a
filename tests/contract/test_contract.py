"""What every driver must do alike: the same scenes in the simulator, on this machine and on Kubernetes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from contract.scenes import FAILURE, PER_NODE, SEQUENCE, URGENT, Course, Part
from contract.stages import on_pods, on_this_machine, simulated
from managers import ROTA

pytestmark = pytest.mark.slow
Play = Callable[[Sequence[Part], Path], Path]


@pytest.fixture(params=["simulator", "local", "kubernetes"])
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Sequence[Part]], Course]:
    """Plays a scene on one of the stages; every journal is replayed and checked the same way."""
    stage: Play
    match request.param:
        case "simulator":
            stage = simulated
        case "local":
            stage = on_this_machine
        case _:
            parts = [request.getfixturevalue(name) for name in ("managed", "launch", "kubelets")]
            stage = on_pods(*parts)

    def begin(scene: Sequence[Part]) -> Course:
        journal = stage(scene, tmp_path)
        replay = subprocess.run([*ROTA, "sim", "--replay", str(journal)], capture_output=True, text=True, timeout=60)
        assert replay.returncode == 0, replay.stderr
        return Course(journal)

    return begin


def test_gang_starts_whole_and_the_next_when_there_is_room(play: Callable[[Sequence[Part]], Course]) -> None:
    course = play(SEQUENCE)

    assert course.of("first")[-1] == course.of("second")[-1] == "succeeded"
    assert course.before(("first", "succeeded"), ("second", "-> start"))
    assert course.reasons["second"] == ["devices-busy"]
    for part in SEQUENCE:
        (placement,) = course.starts[part.name]
        assert sum(slot[2] for slot in placement) == part.tasks
        assert sum(len(slot[1]) for slot in placement) == part.tasks * part.gpus
    for _, slot in course.slots():
        assert set(slot[1]) <= set(range(PER_NODE))


def test_urgent_job_displaces_another_which_goes_on_afterwards(play: Callable[[Sequence[Part]], Course]) -> None:
    course = play(URGENT)

    assert course.before(("low", "started"), ("low", "-> stop"))
    assert course.before(("low", "stopped"), ("high", "-> start"))
    assert course.before(("high", "started"), ("high", "succeeded"))
    told = course.of("low")
    assert [word for word in told if word in ("-> start", "-> stop")] == ["-> start", "-> stop", "-> start"]
    assert told[-1] == "succeeded"


def test_failed_job_fails_and_the_others_go_on(play: Callable[[Sequence[Part]], Course]) -> None:
    course = play(FAILURE)

    assert course.of("bad")[-1] == "failed"
    assert course.of("good")[-1] == "succeeded"
