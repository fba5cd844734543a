"""Progress that running jobs report reaches the engine, and through it the policy."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

import pytest

from builders import World, on, start, stop
from rota.core.codec.snapshot import restore, take
from rota.core.codec.values import decode_event, encode_event
from rota.core.messages.events import Event, SpeedChanged
from rota.core.model.job import JobId
from rota.live.loop.progress_watch import from_files, news, watch_progress
from rota.store.run_folder import shared_folder

POLICY = "rota:base_gpu_s=100,margin=0"


def write(home: Path, name: str, **said: object) -> None:
    """Write the file of a job's first task."""
    folder = shared_folder(home, JobId(name))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "progress-0.json").write_text(json.dumps({"steps_per_s": 1.0, "values": {}, **said}))


async def told(world: World, home: Path, rounds: int) -> list[Event]:
    """What the watch tells in its first rounds."""
    events: list[Event] = []
    watch = asyncio.create_task(watch_progress(world.engine.state, from_files(home), events.append, every_s=0.01))
    for _ in range(rounds):
        await asyncio.sleep(0.01)
        if events:
            break
    watch.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watch
    return events


@pytest.mark.attack("reports a number of steps that can't be divided", stopped_by="numbers of steps are bounded")
def test_step_without_end_does_not_end_the_watch(tmp_path: Path) -> None:
    world = World(gpus=2).running("a").running("b")
    write(tmp_path, "a", step="9" * 4000, steps=3)
    write(tmp_path, "b", step=3, steps=4)

    events = asyncio.run(told(world, tmp_path, rounds=200))

    assert [event.job_id for event in events if isinstance(event, SpeedChanged)] == ["b"]


@pytest.mark.parametrize(
    ("said", "done"),
    [
        ({"step": 30, "steps": 40}, 0.75),
        ({"step": 50, "steps": 40}, 1.0),
        ({"step": 30}, None),
        ({"step": 30, "steps": 0}, None),
        ({"step": 30, "steps": -3}, None),
        ({"step": 30, "steps": "many"}, None),
        ({"step": "9" * 4000, "steps": 3}, None),
        ({"step": 1e300, "steps": 1}, None),
    ],
)
def test_fraction_of_the_steps_is_passed_on(tmp_path: Path, said: dict[str, object], done: float | None) -> None:
    world = World(gpus=1).running("a")
    write(tmp_path, "a", **said)

    events = asyncio.run(told(world, tmp_path, rounds=200 if done is not None else 3))

    assert {event.done for event in events if isinstance(event, SpeedChanged)} == (set() if done is None else {done})


def test_small_changes_are_not_journaled() -> None:
    world = World(gpus=1).running("a")
    live = world.live("a")
    live.reported = 0.5

    assert news([live], {JobId("a"): 0.52}, world.now_s) == []
    assert news([live], {JobId("a"): 0.56}, world.now_s) == [SpeedChanged(JobId("a"), live.work, 1.0, 0.56)]


def test_report_takes_a_job_back_to_a_low_level() -> None:
    """One that is nearly done keeps its device from a new job; one that says nothing does not."""
    world = World(gpus=1, policy=POLICY).running("a", attained_gpu_s=950.0)
    world.step(SpeedChanged(JobId("a"), 950.0, 1.0, 0.95))

    assert world.submit("b") == []

    silent = World(gpus=1, policy=POLICY).running("a", attained_gpu_s=950.0)
    assert silent.settle(silent.submit("b")) == [stop("a"), start("b", on("n1", 1))]


def test_report_survives_the_journal_and_snapshots() -> None:
    event = SpeedChanged(JobId("a"), 5.0, 1.0, 0.5)
    world = World(gpus=1).running("a")
    world.step(event)

    assert decode_event(encode_event(event)) == event
    assert "done" not in encode_event(SpeedChanged(JobId("a"), 5.0, 1.0))
    assert world.live("a").fork().reported == 0.5
    assert restore(world.cluster, take(world.engine.state)).jobs[JobId("a")].reported == 0.5
