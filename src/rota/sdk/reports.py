"""Metrics that a training script reports by itself, and the parameters of a trial of a sweep.

    import rota.sdk

    lr = rota.sdk.params()["lr"]
    for epoch in range(20):
        ...
        rota.sdk.report(loss=loss, step=epoch + 1)

Reports of a trial are appended to a file in the job's folder, from which the sweep decides. The steps at which it does
are always kept; of many reports between them only some. At a rung a report returns when it is decided what follows.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rota.sdk.curve import MetricCurve
from rota.sdk.stops import await_decision, rungs_of_trial

ALL_LINES = 500
"""So many reports are kept whatever they are; later ones at intervals that double."""
EVERY_S = 1.0
LINES_TO_DOUBLE = 1000


def params() -> dict[str, Any]:
    """Return the parameters of this trial by name; empty outside of a sweep."""
    found = json.loads(os.environ.get("ROTA_PARAMS", "{}"))
    assert isinstance(found, dict)
    return found


class TrialReports:
    """The reports of one trial; kept in a file over restarts."""

    def __init__(self, path: Path, marks: tuple[int, ...], rungs: tuple[int, ...] = ()) -> None:
        self._path = path
        self._marks = marks
        self._rungs = rungs
        self._lines = 0
        self.step = 0
        """The last step that was reported."""
        self._written_s = -math.inf
        self._pending: tuple[int, dict[str, float]] | None = None
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            lines = path.read_text(encoding="utf-8").splitlines()
            self._lines = len(lines)
            self.step = int(json.loads(lines[-1])["step"])

    def add(self, step: int, values: dict[str, float], is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Keep a report if it is at a mark or enough time has passed; the last one is written at the end.

        At a rung, wait for the decision, unless the job was told to stop anyway.
        """
        passes = any(self.step < mark <= step for mark in self._marks)
        rung = max((each for each in self._rungs if self.step < each <= step), default=None)
        self.step = step
        now_s = time.monotonic()
        every_s = EVERY_S * 2.0 ** ((self._lines - ALL_LINES) // LINES_TO_DOUBLE)
        if passes or self._lines < ALL_LINES or now_s - self._written_s >= every_s:
            self._written_s = now_s
            self._write(step, values)
        else:
            self._pending = (step, dict(values))
        if rung is not None:
            await_decision(self._path.parent, rung, is_stopped)

    def flush(self) -> None:
        """Write the last report, if it was not written."""
        if self._pending is not None:
            self._write(*self._pending)

    def _write(self, step: int, values: dict[str, float]) -> None:
        self._pending = None
        self._lines += 1
        line = json.dumps({"step": step, "values": values}) + "\n"
        with contextlib.suppress(OSError):  # a full disk must not end the training
            end = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                os.write(end, line.encode())
            finally:
                os.close(end)


_reports: dict[Path, TrialReports] = {}


def trial_reports() -> TrialReports | None:
    """Return the reports of this process's trial; None outside of a sweep, and for all ranks but the first."""
    folder = os.environ.get("ROTA_RUN_DIR")
    if folder is None or "ROTA_TRIAL" not in os.environ or os.environ.get("RANK", "0") != "0":
        return None
    path = Path(folder) / "reports.jsonl"
    if path not in _reports:
        marks = tuple(int(mark) for mark in os.environ.get("ROTA_MARKS", "").split(",") if mark)
        _reports[path] = TrialReports(path, marks, rungs_of_trial())
        atexit.register(_reports[path].flush)
    return _reports[path]


class _Progress:
    """What `report` shows of a job on its page: the latest values at most once a second, and their curve."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._curve = MetricCurve(folder / "curve-0.json")
        self._begun_s = time.monotonic()
        self._first: int | None = None
        self._shown_s = -math.inf
        self.step = self._curve.points[-1][1] if self._curve.points else 0

    def show(self, step: int, values: dict[str, float]) -> None:
        from rota.sdk.training import date_s, write_file

        self.step = step
        now_s, at_s = time.monotonic(), date_s()
        self._first = step if self._first is None else self._first
        if now_s - self._shown_s < EVERY_S:
            return
        self._shown_s = now_s
        speed = (step - self._first) / max(now_s - self._begun_s, 1e-9)
        told = {"step": step, "steps": 0, "steps_per_s": max(speed, 0.0), "at_s": at_s, "values": values}
        write_file(self._folder / "progress-0.json", json.dumps(told))
        if (text := self._curve.add(at_s, step, values)) is not None:
            write_file(self._folder / "curve-0.json", text)


_progress: dict[Path, _Progress] = {}


def report(*, step: int | None = None, **values: float) -> None:
    """Report metrics at a step, such as `report(loss=0.3, step=10)`; without a step, reports are counted.

    They are shown on the job's page, and a sweep decides by them. Outside of a job this does nothing. In a loop over
    `rota.sdk.steps`, use its own `report`, which knows the step.
    """
    folder = os.environ.get("ROTA_RUN_DIR")
    if folder is None or os.environ.get("RANK", "0") != "0":
        return
    path = Path(folder)
    if path not in _progress:
        _progress[path] = _Progress(path)
    reports = trial_reports()
    last = _progress[path].step if reports is None else reports.step
    at = last + 1 if step is None else int(step)
    numbers = {name: float(value) for name, value in values.items()}
    if reports is not None:
        reports.add(at, numbers)
    _progress[path].show(at, numbers)
