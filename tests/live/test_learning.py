"""What a manager learns from jobs that have succeeded, and when it learns anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rota.estimate.estimator import Estimate
from rota.files.job_shape import JobFile
from rota.live.learning import AGAIN_AFTER, _Learner, amount, settled_by
from rota.live.past_use import MB, over_requested, past_uses
from rota.store.database import open_database
from rota.store.records import Batch, Records


class Past:
    """A manager's records and folders, filled with jobs that are over."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.records = Records(open_database(home / "rota.db"))
        self._jobs = 0

    def add(
        self,
        used_mb: float,
        *,
        size: int,
        state: str = "succeeded",
        attempt: int = 1,
        gpus: dict[str, float] | None = None,
    ) -> None:
        number = self._jobs
        self._jobs += 1
        resources = {"memory": "1Gi", "cpus": 1, "gpus": 4}
        spec = {"name": "train", "run": f"python train.py --size {size}", "resources": resources}
        row = {
            "id": str(number),
            "seq": number,
            "name": "train",
            "tenant": "default",
            "owner": "ann",
            "state": state,
            "submitted_s": 0.0,
            "started_s": 100.0,
            "ended_s": 110.0,
            "job": "{}",
            "spec": json.dumps(spec),
            "live": "{}",
            "attempt": attempt,
            "failures": attempt - 1,
            "exit_code": 0,
            "message": "",
            "failure": None,
            "version": 0,
        }
        self.records.write(Batch(new_jobs=[row]))()
        folder = self.home / "runs" / str(number) / str(attempt) / "0"
        folder.mkdir(parents=True)
        (folder / "exit.json").write_text(json.dumps({"cpu_s": 5.0, "memory_bytes": int(used_mb * MB)}))
        if gpus is not None:
            (folder / "gpus.json").write_text(json.dumps(gpus))

    def ask(self, learner: _Learner, size: int, label: str = "host_memory_mb") -> Estimate:
        attributes = {"name": "train", "program": "train.py", "tenant": "default", "tasks": 1.0, "size": float(size)}
        question = {"database": self.records.url, "home": str(self.home), "attributes": attributes}
        return Estimate(**learner.answer(question)[label])


@pytest.fixture
def past(tmp_path: Path) -> Past:
    made = Past(tmp_path)
    for size in range(10, 200, 10):
        made.add(10 + 2 * size, size=size)
    return made


def test_memory_follows_the_flag(past: Past) -> None:
    learner = _Learner()

    small, large = past.ask(learner, 30), past.ask(learner, 170)

    assert small.value == pytest.approx(70, rel=0.3)
    assert large.value == pytest.approx(350, rel=0.3)
    assert large.is_trusted(0.25)


def test_it_learns_anew_when_enough_more_have_succeeded(past: Past) -> None:
    learner = _Learner()
    before = past.ask(learner, 1000).value

    for _ in range(AGAIN_AFTER - 1):
        past.add(4000, size=1000)
    assert past.ask(learner, 1000).value == before

    past.add(4000, size=1000)
    assert past.ask(learner, 1000).value > 5 * before


def test_jobs_that_failed_or_were_tried_again_teach_nothing(past: Past) -> None:
    past.add(1, size=5, state="failed")
    past.add(1, size=5, attempt=2)

    assert 5.0 not in {use.run.attributes["size"] for use in past_uses(past.records, past.home)}


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
    found = Estimate(label="any", value=3.2, low=1.0, high=50.0, error=0.1)

    assert amount(field, found) == given


def test_gpus_are_learned_from_what_was_used_and_never_from_what_was_asked_for(past: Past) -> None:
    assert all("gpus" not in use.run.labels for use in past_uses(past.records, past.home))

    for size in range(10, 200, 10):
        seen = {"gpus": 2, "gpu_memory_bytes": 3 * size * MB, "gpu_busy_mean": 40.0, "gpu_busy_std": 5.0}
        past.add(50, size=size, gpus={**seen, "busy_from_s": 102.0, "busy_until_s": 107.0})
    learner = _Learner()

    assert past.ask(learner, 100, "gpus").value == pytest.approx(2.0)
    assert past.ask(learner, 100, "gpu_memory_mb").value == pytest.approx(300, rel=0.3)
    labels = next(iter(past_uses(past.records, past.home))).run.labels
    assert (labels["gpu_util_mean"], labels["load_s"], labels["train_s"], labels["save_s"]) == (40.0, 2.0, 5.0, 3.0)
    over = [row for row in over_requested(past_uses(past.records, past.home)) if row["what"] == "gpus"]
    assert {(row["asked"], row["used"], row["over"]) for row in over} == {(4.0, 2.0, 2.0)}


def known(**errors: float | None) -> dict[str, Estimate]:
    """Estimates of 40, up to 50, with these measured errors."""
    return {name: Estimate(label=name, value=40.0, low=30.0, high=50.0, error=error) for name, error in errors.items()}


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
