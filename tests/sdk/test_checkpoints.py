"""Checkpoints in two levels, and the interval between them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.health.failure_rate import FailureRate
from rota.sdk import CheckpointLost, Checkpoints
from rota.sdk.save_interval import SaveInterval


def test_newest_state_comes_back_and_older_ones_are_removed(tmp_path: Path) -> None:
    saver = Checkpoints(tmp_path, keep=2)
    for step in (1, 2, 3, 4):
        saver.save(step, {"step": step, "weights": [step] * 1000})
        saver.flush(10)
    saver.close()

    assert Checkpoints(tmp_path).load() == ({"step": 4, "weights": [4] * 1000}, 4)
    assert sorted(path.name for path in tmp_path.glob("*.ckpt")) == [
        "rank0-000000000003.ckpt",
        "rank0-000000000004.ckpt",
    ]


def test_damaged_checkpoint_is_passed_over_for_the_last_good_one(tmp_path: Path) -> None:
    saver = Checkpoints(tmp_path)
    for step in (1, 2):
        saver.save(step, f"state {step}")
        saver.flush(10)
    saver.close()
    newest = tmp_path / "rank0-000000000002.ckpt"
    newest.write_bytes(newest.read_bytes()[:-3] + b"xyz")

    assert Checkpoints(tmp_path).load() == ("state 1", 1)
    (tmp_path / "rank0-000000000001.json").unlink()
    assert Checkpoints(tmp_path).load() is None


def test_good_checkpoint_stays_while_newer_ones_are_damaged(tmp_path: Path) -> None:
    saver = Checkpoints(tmp_path, keep=2)
    saver.save(1, "good")
    saver.flush(10)
    saver.save(2, "damaged later")
    saver.flush(10)
    (tmp_path / "rank0-000000000002.ckpt").write_bytes(b"?")
    saver.save(3, "newest")
    saver.close()

    assert (tmp_path / "rank0-000000000001.ckpt").exists()
    assert not (tmp_path / "rank0-000000000002.ckpt").exists()


def test_training_goes_on_from_memory_while_the_disk_fails(tmp_path: Path) -> None:
    saver = Checkpoints(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    saver.save(1, "kept in memory")

    with pytest.raises(CheckpointLost, match="step 1 could not be written"):
        saver.flush(10)
    assert saver.load() == ("kept in memory", 1)


def test_interval_of_the_script_wins_and_without_a_manager_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROTA_CHECKPOINT_EVERY", raising=False)
    assert SaveInterval(None).interval_s is None
    monkeypatch.setenv("ROTA_CHECKPOINT_EVERY", "600")
    assert SaveInterval(30.0).interval_s == 30.0
    assert SaveInterval(None).interval_s == 600.0


def test_interval_follows_the_measured_time_of_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_CHECKPOINT_EVERY", "600")
    monkeypatch.setenv("ROTA_MTTF", "7200")
    interval = SaveInterval(None)

    assert not interval.is_due(59.0)
    assert interval.is_due(60.0)  # the first one soon, for its time
    interval.saved()
    assert interval.write_s is not None
    interval.write_s = 4.0
    assert interval.interval_s == pytest.approx(240.0)
    assert not interval.is_due(239.0)
    assert interval.is_due(240.0)


def test_interval_of_the_script_holds_for_the_first_checkpoint_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_CHECKPOINT_EVERY", "600")

    assert not SaveInterval(30.0).is_due(29.0)
    assert SaveInterval(30.0).is_due(30.0)


@pytest.mark.parametrize("text", ["", "soon", "-3", "nan", "inf"])
def test_interval_that_makes_no_sense_is_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_CHECKPOINT_EVERY", text)

    assert SaveInterval(None).interval_s is None


def test_failure_rate_begins_with_the_published_one_and_follows_what_is_seen() -> None:
    rate = FailureRate(6.5)
    assert rate.per_1000_node_days == pytest.approx(6.5)
    before = float(rate.variables(128)["ROTA_CHECKPOINT_EVERY"])

    rate.watched(1000, 10 * 86_400.0)
    for _ in range(200):
        rate.failed()

    assert rate.per_1000_node_days == pytest.approx(19.8, rel=0.02)
    assert float(rate.variables(128)["ROTA_CHECKPOINT_EVERY"]) < before


def test_runs_lost_on_one_node_at_once_and_its_drain_are_one_failure() -> None:
    rate = FailureRate(6.5)
    alone = FailureRate(6.5)
    alone.failed()

    assert rate.failed_on(["n1", "n2"], 1000.0, 5.0)
    assert not rate.failed_on(["n1"], 1001.0, 5.0)
    assert not rate.failed_on(["n2"], 1300.0, 600.0)
    assert rate.per_1000_node_days == alone.per_1000_node_days
    assert rate.failed_on(["n3"], 1300.0, 600.0)
    assert rate.failed_on(["n1"], 1400.0, 5.0)
