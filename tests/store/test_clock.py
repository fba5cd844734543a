"""The manager's clock: steps of the wall clock do not move it, and a restart goes on with it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from rota.store import clock


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "_offset_s", clock.offset_s())


def step(monkeypatch: pytest.MonkeyPatch, by_s: float) -> None:
    """Set the wall clock of this process."""
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + by_s)


@pytest.mark.parametrize("by_s", [3600.0, -3600.0])
def test_step_of_the_wall_clock_is_shown_and_moves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_s: float
) -> None:
    clock.go_on(tmp_path)
    before_s = clock.now_s()
    step(monkeypatch, by_s)

    assert clock.now_s() == pytest.approx(before_s, abs=1.0)
    assert clock.shown_s(before_s) == before_s + by_s
    assert clock.from_wall_s(clock.shown_s(before_s)) == before_s


@pytest.mark.parametrize("by_s", [3600.0, -3600.0])
def test_restart_in_the_same_boot_goes_on_with_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_s: float
) -> None:
    clock.go_on(tmp_path)
    offset_s = clock.offset_s()
    step(monkeypatch, by_s)
    monkeypatch.setattr(clock, "_offset_s", 0.0)

    clock.go_on(tmp_path)

    assert clock.offset_s() == offset_s


def test_reboot_begins_with_the_date_but_never_before_the_last_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "clock.json").write_text(json.dumps({"boot": "an earlier one", "offset_s": 5.0}))

    clock.go_on(tmp_path)
    assert clock.now_s() == pytest.approx(time.time(), abs=1.0)

    last_s = time.time() + 7200.0
    clock.go_on(tmp_path, last_s)
    assert clock.now_s() == pytest.approx(last_s, abs=1.0)
    assert json.loads((tmp_path / "clock.json").read_text())["offset_s"] == clock.offset_s()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"boot": 3}', '{"offset_s": "x", "boot": ""}'])
def test_broken_file_is_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / "clock.json").write_text(text)

    clock.go_on(tmp_path)

    assert clock.now_s() == pytest.approx(time.time(), abs=1.0)
    assert json.loads((tmp_path / "clock.json").read_text())["boot"] == clock.boot_id()
