"""A trial that comes to a rung of its sweep: with a manager it goes on until that decides, without one it stops."""

from __future__ import annotations

import json
import math
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from local_drivers import Bench, until, with_driver
from rota.core.messages.events import Event, Interrupted, JobEnded, JobRequeued, Started, Stopped
from rota.drivers.local.launch_order import LaunchOrder
from rota.drivers.local.task_runner.trials.rungs import watch_rungs
from rota.files.job import job_file, launch_of
from rota.store.run_folder import read_json, stop_causes

pytestmark = pytest.mark.slow
SAVES = "trap 'touch {0}/saved; exit 0' TERM; "
"""A shell script that saves when it is told to stop."""
WAITS = "while true; do sleep 0.02; done"
TELLS = 'until [ -e {0}/at-rung ]; do sleep 0.02; done; echo rung:4 > "$ROTA_TELL"; touch {0}/told; '
PRINTS = "until [ -e {0}/at-rung ]; do sleep 0.02; done; echo epoch 4: loss 0.5; touch {0}/told; "


def trial(bench: Bench, run: str, folder: Path, *, workers: int = 1, env: dict[str, str] | None = None) -> LaunchOrder:
    """The order for a trial with rungs at 4 and 16 steps."""
    order = bench.order("true", workers=workers)
    values: dict[str, Any] = {
        "run": run.format(folder),
        "workers": workers,
        "resources": {"gpus": 1},
        "checkpoint": {"grace": "30s"},
        "env": {"ROTA_RUNGS": "4,16", **(env or {})},
    }
    object.__setattr__(order, "launch", launch_of(job_file(values), order.job.id))
    return order


def kinds(bench: Bench) -> list[type[Event]]:
    return [type(event) for event, _ in bench.answers]


async def goes_to_rung(bench: Bench, folder: Path) -> None:
    """Let the trial come to its rung; return once its supervisor has ordered it to stop."""
    (folder / "at-rung").touch()
    await until((bench.folder() / "stop.json").exists)


async def next_manager_hears(
    bench: Bench, order: LaunchOrder, *last: type[Event], meanwhile: Callable[[], None] = lambda: None
) -> list[type[Event]]:
    """What the driver of another manager reports of a job until one of the last events."""
    again = Bench(bench.home)
    again.driver.find(order)
    meanwhile()
    await until(lambda: any(again.events(each) for each in last))
    heard = kinds(again)
    again.close()
    return heard


@pytest.mark.parametrize(
    ("run", "env"),
    [(TELLS, {}), (PRINTS, {"ROTA_RUNG_PATTERN": "epoch {step}: loss {value}"})],
    ids=["told", "printed"],
)
def test_trial_without_a_manager_saves_and_leaves(run: str, env: dict[str, str], tmp_path: Path) -> None:
    async def course(bench: Bench) -> None:
        order = trial(bench, SAVES + run + WAITS, tmp_path, env=env)
        bench.driver.start(order)
        await until(lambda: bench.events(Started))
        bench.close()

        await goes_to_rung(bench, tmp_path)
        await until(lambda: bench.state().get("phase") == "ended")

        assert (tmp_path / "saved").exists()
        assert stop_causes(bench.home, order.job.id, 1) == {"rung"}
        assert await next_manager_hears(bench, order, Stopped) == [JobRequeued, Stopped], (
            "the engine has not ordered it"
        )

    with_driver(tmp_path, course)


def test_manager_that_comes_back_while_it_saves_hears_the_same(tmp_path: Path) -> None:
    slow = "trap 'until [ -e {0}/end ]; do sleep 0.02; done; exit 0' TERM; "

    async def course(bench: Bench) -> None:
        order = trial(bench, slow + TELLS + WAITS, tmp_path)
        bench.driver.start(order)
        await until(lambda: bench.events(Started))
        bench.close()
        await goes_to_rung(bench, tmp_path)

        assert await next_manager_hears(bench, order, Stopped, meanwhile=(tmp_path / "end").touch) == [
            JobRequeued,
            Stopped,
        ]

    with_driver(tmp_path, course)


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The order of a trial, whose supervisor works in its folder."""
    folder = tmp_path / "runs" / "7" / "2" / "0"
    folder.mkdir(parents=True)
    (tmp_path / "runs" / "7" / "shared").mkdir()
    os.mkfifo(tmp_path / "notify")
    monkeypatch.chdir(folder)
    return {"env": {"ROTA_RUNGS": "4,16"}, "notify": str(tmp_path / "notify"), "grace_s": 30.0}


def decided(**told: object) -> None:
    Path("../../shared/rung.json").write_text(json.dumps(told))


def test_manager_that_runs_is_left_to_decide(task: dict[str, Any]) -> None:
    watch = watch_rungs(task)
    assert watch is not None
    reader = os.open(task["notify"], os.O_RDWR | os.O_NONBLOCK)

    watch.hear([b"saving", b"rung:3"])
    assert watch.due_in_s(0.0) == math.inf, "it is at no rung yet"
    watch.hear([b"rung:5"])
    assert watch.due_in_s(0.0) < 1.0
    assert not watch.orders_stop()
    os.close(reader)
    assert watch.orders_stop()
    assert json.loads(Path("stop.json").read_text()) == {"signal": "SIGTERM", "grace_s": 30.0, "cause": "rung"}


def test_decision_to_go_on_holds_for_its_rung_and_those_before(task: dict[str, Any]) -> None:
    watch = watch_rungs(task)
    assert watch is not None
    decided(rung=4, step=5, goes_on=True)

    watch.hear([b"rung:4"])
    assert not watch.orders_stop()
    assert watch.due_in_s(0.0) == math.inf
    watch.hear([b"rung:16"])
    assert watch.orders_stop()


@pytest.mark.parametrize(
    ("pattern", "output"),
    [("epoch {step}: loss {value}", b"epoch %d: loss 0.5\n"), ("loss {value}", b"loss 0.%d\n")],
    ids=["named", "counted"],
)
def test_output_of_a_resumed_trial_counts_on(pattern: str, output: bytes, task: dict[str, Any]) -> None:
    decided(rung=4, step=6, goes_on=True)
    task["env"]["ROTA_RUNG_PATTERN"] = pattern
    watch = watch_rungs(task)
    assert watch is not None

    for step in range(7, 16):
        watch.read(output % step)
    assert not watch.orders_stop()
    watch.read((output % 16)[:6])
    assert not watch.orders_stop(), "the line is not complete"
    watch.read((output % 16)[6:])
    assert watch.orders_stop()


def test_order_that_was_there_before_is_kept(task: dict[str, Any]) -> None:
    watch = watch_rungs(task)
    assert watch is not None
    Path("stop.json").write_text('{"signal": "SIGTERM", "grace_s": 1.0, "cause": "cancelled"}')
    watch.hear([b"rung:4"])

    assert watch.orders_stop()
    assert json.loads(Path("stop.json").read_text())["cause"] == "cancelled"


@pytest.mark.parametrize("env", [{}, {"ROTA_RUNGS": "many"}, {"ROTA_RUNGS": "4", "ROTA_RANK": "1"}])
def test_other_tasks_have_no_rungs(env: dict[str, str], task: dict[str, Any]) -> None:
    assert watch_rungs({**task, "env": env}) is None


@pytest.mark.parametrize("text", ["", "[]", "[" * 3000, '{"rung": "x"}', '{"rung": 4, "step": 1e999, "goes_on": 1}'])
def test_damaged_decision_is_none(text: str, task: dict[str, Any]) -> None:
    Path("../../shared/rung.json").write_text(text)
    watch = watch_rungs(task)
    assert watch is not None
    watch.hear([b"rung:4", b"rung:", b"rung:-1", b"rung:" + b"9" * 5000])

    assert watch.orders_stop()


def test_decision_against_it_by_a_manager_that_died_is_carried_out(tmp_path: Path) -> None:
    async def course(bench: Bench) -> None:
        order = trial(bench, SAVES + TELLS + WAITS, tmp_path)
        bench.driver.start(order)
        await until(lambda: bench.events(Started))
        (tmp_path / "at-rung").touch()
        await until((tmp_path / "told").exists)
        shared = bench.home / "runs" / "1" / "shared"
        (shared / "rung.json").write_text(json.dumps({"rung": 4, "step": 4, "goes_on": False}))
        assert not (bench.folder() / "stop.json").exists()
        bench.close()

        await until(lambda: bench.state().get("phase") == "ended")

    with_driver(tmp_path, course)


def test_whatever_a_task_puts_in_place_of_the_decision_does_no_harm(tmp_path: Path) -> None:
    made = 'mkfifo "$ROTA_RUN_DIR/rung.json"; '

    async def course(bench: Bench) -> None:
        order = trial(bench, SAVES + made + TELLS + WAITS, tmp_path)
        bench.driver.start(order)
        await until(lambda: bench.events(Started))
        bench.close()

        await goes_to_rung(bench, tmp_path)
        await until(lambda: bench.state().get("phase") == "ended")

    with_driver(tmp_path, course)


def test_whole_gang_leaves(tmp_path: Path) -> None:
    first = '[ "$ROTA_RANK" != 0 ] || {{ ' + TELLS + "}}; "

    async def course(bench: Bench) -> None:
        order = trial(bench, SAVES + first + WAITS, tmp_path, workers=2)
        bench.driver.start(order)
        await until(lambda: bench.events(Started))
        bench.close()

        await goes_to_rung(bench, tmp_path)
        await until(lambda: all(bench.state(rank).get("phase") == "ended" for rank in range(2)))

        assert await next_manager_hears(bench, order, Stopped) == [JobRequeued, Stopped]

    with_driver(tmp_path, course)


def test_trial_that_ended_well_though_it_was_told_to_stop_has_ended(tmp_path: Path) -> None:
    done = "trap 'echo done > \"$ROTA_TELL\"; exit 0' TERM; "

    async def course(bench: Bench) -> None:
        order = trial(bench, done + TELLS + WAITS, tmp_path)
        bench.driver.start(order)
        await until(lambda: bench.events(Started))
        bench.close()
        await goes_to_rung(bench, tmp_path)
        await until(lambda: bench.state().get("phase") == "ended")

        assert await next_manager_hears(bench, order, JobEnded) == [JobEnded]

    with_driver(tmp_path, course)


def test_stop_of_a_supervisor_that_died_before_its_trial_is_still_one(tmp_path: Path) -> None:
    slow = "trap 'until [ -e {0}/end ]; do sleep 0.02; done; exit 0' TERM; "

    async def course(bench: Bench) -> None:
        order = trial(bench, slow + TELLS + WAITS, tmp_path)
        bench.driver.start(order)
        await until(lambda: bench.events(Started))
        bench.close()
        await goes_to_rung(bench, tmp_path)
        claim = read_json(bench.folder() / "claim")
        assert claim is not None
        os.kill(claim["supervisor"], signal.SIGKILL)

        assert await next_manager_hears(bench, order, Stopped, Interrupted, JobEnded) == [JobRequeued, Stopped]

    with_driver(tmp_path, course)
