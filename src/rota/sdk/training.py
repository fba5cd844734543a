"""A training loop that reports its progress, and is told when to save and stop.

The task writes its progress to the job's folder at most once a second; between two writes a step costs one
comparison. The order to stop arrives as the job's stop signal. All tasks of a gang stop at the same step, which rank 0
announces: otherwise one would wait in a collective operation for another that has left.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from pathlib import Path
from types import FrameType
from typing import Generic, TypeVar

from rota.sdk.curve import MetricCurve
from rota.sdk.reports import trial_reports
from rota.sdk.save_interval import SaveInterval
from rota.sdk.stops import ends_process, goes_on, note_done, tell

T = TypeVar("T")
REPORT_EVERY_S = 1.0
STEPS_TO_STOP = 2
"""The minimum number of steps ahead at which rank 0 sets the last one: tasks in step are at most one apart."""
POLL_S = 0.02
"""How often the other ranks look for the announcement; rank 0 allows five times as long."""
ANNOUNCEMENT_S = 5.0
"""How long a task that was told to stop waits for rank 0 to announce the step."""


class Steps(Generic[T]):
    """The steps of a loop over `source`; iterate over it once."""

    def __init__(
        self,
        source: Iterable[T] | Callable[[int], Iterable[T]],
        *,
        save_every_s: float | None = None,
        steps: int | None = None,
    ) -> None:
        self._interval = SaveInterval(save_every_s)
        folder = os.environ.get("ROTA_RUN_DIR")
        self._folder = None if folder is None else Path(folder)
        self._rank = os.environ.get("RANK", "0")  # torchrun sets it for each process that it starts
        self.step = self._saved("step", 0)
        """Steps done so far, including those saved by earlier runs."""
        self._source: Iterable[T] = source if isinstance(source, Iterable) else source(self.step)
        self._steps = steps or 0
        self._last = steps or (self.step + len(self._source) if isinstance(self._source, Sized) else None)
        """The step at which the loop has done all there is to do; None: that can't be known."""
        if not isinstance(source, Iterable) and self._last is not None:
            self._steps = self._last
        self.tasks = int(os.environ.get("WORLD_SIZE", "1"))
        """The number of processes in this run; after a resize it differs from that of the previous run."""
        self.rank = int(self._rank)
        """The rank of this process."""
        self.tasks_before = self._saved("tasks", self.tasks)
        """The number of tasks at the last save; after a resize, learning rates or shards may depend on it."""
        self.stop_asked = False
        """Whether the job was told to stop; `should_save` becomes true at the last step."""
        self._stop_asked_at = self._polled_at = 0.0
        self._stop_at: int | None = None
        attempt = os.environ.get("ROTA_ATTEMPT", "0")
        self._announcement = None if self._folder is None or self.tasks == 1 else self._folder / f"stop-{attempt}.json"
        self._stopped = False
        self._ran_out = False
        """Whether the loop has come to its end, and not been ended before."""
        self._first = self.step
        self._values: dict[str, float] = {}
        self._curve = None if self._folder is None else MetricCurve(self._folder / f"curve-{self._rank}.json")
        self._trial = trial_reports()
        self._begun = self._reported_at = self._saved_at = time.monotonic()

    def __iter__(self) -> Iterator[T]:
        if self._folder is None:
            yield from self._plain()
            return
        with self._listening():
            for item in self._source:
                yield item
                self.step += 1
                if time.monotonic() - self._reported_at >= REPORT_EVERY_S:
                    self._write_progress()
                if self._stopped:
                    break
            else:
                self._ran_out = self._last is not None and self.step >= self._last
            self._write_progress()

    def _plain(self) -> Iterator[T]:
        for item in self._source:
            yield item
            self.step += 1

    @property
    def should_save(self) -> bool:
        """Whether a checkpoint is due: the job is being stopped, or enough time has passed."""
        if self._must_stop():
            return True
        return self._interval.is_due(time.monotonic() - self._saved_at)

    def _must_stop(self) -> bool:
        """Whether this is the last step of a job that was told to stop."""
        if self._announcement is None:
            return self.stop_asked
        if self._stop_at is None:
            if self.rank == 0 and self.stop_asked:
                passed_s = max(time.monotonic() - self._begun, POLL_S)
                speed = (self.step - self._first) / passed_s
                self._stop_at = self.step + STEPS_TO_STOP + int(speed * 5 * POLL_S)
                write_file(self._announcement, json.dumps({"step": self._stop_at}))
            elif self.rank != 0:
                self._stop_at = self._announced_step()
        return self._stop_at is not None and self.step >= self._stop_at

    def _announced_step(self) -> int | None:
        """Return the step that rank 0 announced, or the current one if there is no announcement for too long."""
        assert self._announcement is not None
        now = time.monotonic()
        if now - self._polled_at < POLL_S:
            return None
        self._polled_at = now
        if os.path.exists(self._announcement):
            self.stop_asked = True
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                return int(json.loads(self._announcement.read_text(encoding="utf-8"))["step"])
        if self.stop_asked and now - self._stop_asked_at > ANNOUNCEMENT_S:
            return self.step
        return None

    def saved(self) -> None:
        """Record that progress is saved, including this step. A loop that was told to stop ends after this step."""
        self._saved_at = time.monotonic()
        self._interval.saved()
        self._stopped = self._must_stop()
        if self._folder is not None and self._rank == "0":
            write_file(self._folder / "saved.json", json.dumps({"step": self.step + 1, "tasks": self.tasks}))

    def report(self, **values: float) -> None:
        """Set metrics to show with the progress, such as the loss; in a trial of a sweep, those of this step."""
        self._values.update(values)
        if self._trial is not None:
            numbers = {name: float(value) for name, value in values.items()}
            self._trial.add(self.step + 1, numbers, lambda: self.stop_asked)

    def _saved(self, name: str, default: int) -> int:
        """Return a value recorded at the last save."""
        if self._folder is None:
            return default
        try:
            return int(json.loads((self._folder / "saved.json").read_text(encoding="utf-8"))[name])
        except (OSError, ValueError, KeyError, TypeError):
            return default

    def _write_progress(self) -> None:
        now = time.monotonic()
        self._reported_at = now
        passed_s = now - self._begun
        speed = (self.step - self._first) / passed_s if passed_s > 0 else 0.0
        values = {name: float(value) for name, value in self._values.items()}
        if self._folder is not None:
            at_s = time.time()
            write_file(
                self._folder / f"progress-{self._rank}.json",
                json.dumps(
                    {"step": self.step, "steps": self._steps, "steps_per_s": speed, "at_s": at_s, "values": values}
                ),
            )
            if self._curve is not None and (text := self._curve.add(at_s, self.step, values)) is not None:
                write_file(self._folder / f"curve-{self._rank}.json", text)

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """Handle the stop signal while the loop runs, and after one that ran out; only possible in the main thread."""
        number = getattr(signal, os.environ.get("ROTA_STOP_SIGNAL", "SIGTERM"))

        def on_signal(_: int, __: FrameType | None) -> None:
            self.stop_asked, self._stop_asked_at = True, time.monotonic()

        try:
            before = signal.signal(number, on_signal)
        except ValueError:
            yield
            return
        if goes_on():
            on_signal(number, None)
        try:
            yield
        finally:
            ends = self._ran_out and ends_process(before)
            signal.signal(number, note_done if ends else before)
            if self._ran_out and self.stop_asked:  # it came too late for a checkpoint
                note_done()


def steps(
    source: Iterable[T] | Callable[[int], Iterable[T]],
    *,
    save_every_s: float | None = None,
    steps: int | None = None,
) -> Steps[T]:
    """Iterate over a loader step by step, report progress and obey orders to stop.

    Instead of a loader, `source` may be a function that returns one, given the first step to do. `steps` is how many
    steps the whole training has, over all runs. Without it, they are counted where such a function returns a loader
    with a length. `save_every_s` is the time between two checkpoints; without it, a job that saves its progress follows
    the interval that the manager gives it, and adapts that to how long its checkpoints take.
    """
    return Steps(source, save_every_s=save_every_s, steps=steps)


def saving() -> None:
    """Report that this task no longer needs its devices: it only saves and then ends.

    Under a policy that overlaps jobs, the next job starts on the devices when all tasks of this one have reported.
    """
    tell("saving")  # without a listener the task keeps its devices until it ends


def date_s() -> float:
    """The date in seconds, by which other machines know when something was reported."""
    return time.time()


def write_file(path: Path, text: str) -> None:
    """Write a file atomically; errors are ignored, as a full disk must not end the training."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
