"""What a manager learns from jobs that have succeeded, when it learns again, and that nobody waits for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pasts import Past
from rota.core.model.job import JobId
from rota.estimate import forest
from rota.estimate.estimator import Estimator, RunEstimate
from rota.files.job_shape import JobFile
from rota.live.estimates import learning
from rota.live.estimates.learning import AGAIN_AFTER, Learning, amount, learn, settled_by
from rota.live.estimates.past_use import MB, attributes, over_requested, past_uses
from rota.live.loop.entry import News


def ask(estimator: Estimator, size: int, label: str = "host_memory_mb") -> RunEstimate:
    return estimator.predict(label, attributes({"name": "train", "run": f"python train.py --size {size}"}))


def learned(past: Past) -> Estimator:
    return learn(past.records.url, past.home)


@pytest.fixture(autouse=True)
def _few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is learned from so few jobs needs no more."""
    monkeypatch.setattr(forest, "TREES", 15)


@pytest.fixture
def past(tmp_path: Path) -> Past:
    made = Past(tmp_path)
    for size in range(10, 200, 10):
        made.add(10 + 2 * size, size=size)
    return made


@pytest.mark.slow
def test_memory_follows_the_flag(past: Past) -> None:
    estimator = learned(past)

    small, large = ask(estimator, 30), ask(estimator, 170)

    assert small.value == pytest.approx(70, rel=0.3)
    assert large.value == pytest.approx(350, rel=0.3)
    assert large.is_trusted(0.25)
    said = "size is 100000; known runs of name=train have 10 to 190"
    assert ask(estimator, 100000).doubt(0.25) == said


def test_jobs_that_failed_or_were_tried_again_teach_nothing(past: Past) -> None:
    past.add(1, size=5, state="failed")
    past.add(1, size=5, attempt=2)

    assert 5.0 not in {use.run.attributes["size"] for use in past_uses(past.records, past.home)}


def test_of_one_that_was_tried_again_with_more_memory_that_is_known(past: Past) -> None:
    ours = {"memory": {"given": "2Gi", "trusted": False, "raised": 1}}
    past.add(1500, size=5, attempt=2, memory="2Gi", estimated=ours)

    (found,) = [use for use in past_uses(past.records, past.home) if use.run.attributes["size"] == 5.0]

    assert found.run.labels == {"host_memory_mb": 1500.0}
    assert found.used == {"memory": 1500 * MB}


def test_what_the_manager_chose_is_nobodys_waste(past: Past) -> None:
    ours = {"memory": {"given": "4Gi", "trusted": False}, "cpus": {"given": 1, "trusted": False}}
    past.add(10, size=5, memory="4Gi", estimated=ours)

    found = [row for row in over_requested(past_uses(past.records, past.home)) if row["id"] == "19"]

    assert [row["what"] for row in found] == []


def test_most_wasteful_is_listed_first_and_the_modest_not_at_all(past: Past) -> None:
    past.add(900, size=500)

    rows = [row for row in over_requested(past_uses(past.records, past.home)) if row["what"] == "memory"]

    assert [row["over"] for row in rows] == sorted((row["over"] for row in rows), reverse=True)
    assert rows[0]["used"] == 30 * MB
    assert {row["owner"] for row in rows} == {"ann"}
    assert 900 * MB not in {row["used"] for row in rows}


@pytest.mark.parametrize(
    ("field", "given"), [("gpus", 3), ("cpus", 4), ("memory", 64 * MB), ("gpu_memory", 64 * MB)], ids=str
)
def test_memory_is_given_by_the_upper_end(field: str, given: float) -> None:
    found = RunEstimate(label="any", value=3.2, low=1.0, high=50.0, error=0.1)

    assert amount(field, found) == given


@pytest.mark.slow
def test_gpus_are_learned_from_what_was_used_and_never_from_what_was_asked_for(past: Past) -> None:
    assert all("gpus" not in use.run.labels for use in past_uses(past.records, past.home))

    for size in range(10, 200, 10):
        seen = {"gpus": 2, "gpu_memory_bytes": 3 * size * MB, "gpu_busy_mean": 40.0, "gpu_busy_std": 5.0}
        past.add(50, size=size, gpus={**seen, "busy_from_s": 102.0, "busy_until_s": 107.0})
    estimator = learned(past)

    assert ask(estimator, 100, "gpus").value == pytest.approx(2.0)
    assert ask(estimator, 100, "gpu_memory_mb").value == pytest.approx(300, rel=0.3)
    labels = next(iter(past_uses(past.records, past.home))).run.labels
    assert (labels["gpu_util_mean"], labels["load_s"], labels["train_s"], labels["save_s"]) == (40.0, 2.0, 5.0, 3.0)
    over = [row for row in over_requested(past_uses(past.records, past.home)) if row["what"] == "gpus"]
    assert {(row["asked"], row["used"], row["over"]) for row in over} == {(4.0, 2.0, 2.0)}


def known(**errors: float | None) -> dict[str, RunEstimate]:
    """Estimates of 40, up to 50, with these measured errors."""
    return {
        name: RunEstimate(label=name, value=40.0, low=30.0, high=50.0, error=error) for name, error in errors.items()
    }


def test_a_job_that_may_share_its_gpu_gets_what_is_known_of_its_use() -> None:
    asked = {"run": "train", "resources": {"gpus": "1", "cpus": "auto"}}

    made = settled_by(known(utilization=0.1, gpu_memory=0.1, cpus=0.1), asked, 0.25, predicts_use=True)

    assert made["labels"] == {"utilization": "0.4"}
    assert made["resources"] == {"gpus": "1", "cpus": 40, "gpu_memory": 64 * MB}
    assert {name: part["given"] for name, part in made["estimated"].items()} == {
        "utilization": 0.4,
        "gpu_memory": 64 * MB,
        "cpus": 40,
    }
    JobFile.model_validate(made)
    assert "labels" not in settled_by(known(utilization=0.1), asked, 0.25)


@pytest.mark.parametrize(
    "asked",
    [
        {"run": "train", "resources": {"gpus": 2}},
        {"run": "train", "resources": {"gpus": "1"}, "workers": 2},
        {"run": "train", "resources": {"gpus": 1}, "labels": {"utilization": "0.9"}},
        {"roles": {"worker": {"gpus": 1, "run": "train"}}},
    ],
    ids=["two", "gang", "says-itself", "roles"],
)
def test_others_are_left_as_they_are(asked: dict[str, object]) -> None:
    assert settled_by(known(utilization=0.1, gpu_memory=0.1), asked, 0.25, predicts_use=True) == asked


def test_what_is_not_trusted_is_not_said() -> None:
    asked = {"run": "train", "resources": {"gpus": 1}}

    assert settled_by(known(utilization=0.5, gpu_memory=0.1), asked, 0.25, predicts_use=True) == asked
    assert (
        "gpu_memory"
        not in settled_by(known(utilization=0.1, gpu_memory=None), asked, 0.25, predicts_use=True)["resources"]
    )


# -- learning beside the manager's work ------------------------------------------------------------

PUPIL = """
import os, sys, time
from pathlib import Path
from rota.live.workers.worker_process import answer_all

HOME = Path(os.environ["PUPIL_HOME"])
known = []

def answer(question):
    if "learn" not in question:
        return {"host_memory_mb": dict(label="host_memory_mb", value=known[0], low=1, high=9, error=0, outside=[])}
    time.sleep(0.01)
    while not (HOME / "go").exists():
        time.sleep(0.01)
    if (HOME / "go").read_text() == "die":
        os._exit(1)
    known.append(float((HOME / "go").read_text()))
    (HOME / "go").unlink()
    return {"runs": 0}

def main():
    answer_all(answer)
"""
SPEC = {"name": "train", "run": "python train.py --size 5"}


@pytest.fixture
def pupil(past: Past, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Learning], Awaitable[None]]], None]:
    """Runs a course of events against learning by a program that takes as long as the test wants."""
    (past.home / "pupil.py").write_text(PUPIL)
    monkeypatch.setenv("PYTHONPATH", str(past.home))
    monkeypatch.setenv("PUPIL_HOME", str(past.home))
    for name, value in (("REST", 0.0), ("FIRST_PAUSE_S", 0.01), ("LONG_S", 0.05)):
        monkeypatch.setattr(learning, name, value)

    def run(course: Callable[[Learning], Awaitable[None]]) -> None:
        async def main() -> None:
            asked = Learning(past.records, past.home, module="pupil")
            working = asyncio.create_task(asked.run())
            try:
                async with asyncio.timeout(20):
                    await course(asked)
            finally:
                working.cancel()
                await asked.close()

        asyncio.run(main())

    return run


async def until(asked: Learning, value: float) -> None:
    """Wait until an estimate says so."""
    while (found := await asked.estimates(SPEC)).get("memory") is None or found["memory"].value != value:
        await asyncio.sleep(0.01)


@pytest.mark.slow
def test_nobody_waits_for_what_is_being_learned(
    past: Past, pupil: Callable[[Callable[[Learning], Awaitable[None]]], None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    async def course(asked: Learning) -> None:
        while "learning takes long" not in caplog.text:
            assert await asked.estimates(SPEC) == {}
            await asyncio.sleep(0.01)
        (past.home / "go").write_text("1")
        await until(asked, 1.0)
        caplog.clear()
        news = News(JobId("1"), "default", "succeeded", 0)
        asked.noticed([news] * (AGAIN_AFTER - 1))
        await asyncio.sleep(0.1)
        assert asked._learns is None
        asked.noticed([news])
        while "learning takes long" not in caplog.text:
            assert (await asked.estimates(SPEC))["memory"].value == 1.0
            await asyncio.sleep(0.01)
        (past.home / "go").write_text("2")
        await until(asked, 2.0)

    pupil(course)


@pytest.mark.slow
def test_learning_that_broke_off_is_begun_again(
    past: Past, pupil: Callable[[Callable[[Learning], Awaitable[None]]], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def course(asked: Learning) -> None:
        (past.home / "go").write_text("die")
        while caplog.text.count("learning broke off") < 2:
            await asyncio.sleep(0.01)
        (past.home / "go").write_text("3")
        await until(asked, 3.0)

    pupil(course)
