"""A training loop that says how far it is, and hears when to save and stop.

The task writes its progress into the job's folder at most once a second; between two writes a step costs a
comparison. The order to stop arrives as the job's stop signal. The tasks of a gang stop at the same step, which the
first of them names: otherwise one would wait in a collective for another that has left.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Generic, TypeVar

from rota.sdk.curve import MetricCurve

T = TypeVar("T")
REPORT_EVERY_S = 1.0
STEPS_TO_STOP = 2
"""How far ahead the first task names the last step at least: tasks that meet in every step are at most one apart."""
LOOK_EVERY_S = 0.02
"""How often the others look for its word; it leaves them five times as long."""
WORD_S = 5.0
"""How long a task that was told to stop waits for the first one to name the step."""


class Steps(Generic[T]):
    """The steps of a loop over `source`: iterate over it once."""

    def __init__(
        self, source: Iterable[T] | Callable[[int], Iterable[T]], *, save_every_s: float | None = None
    ) -> None:
        self._save_every_s = save_every_s
        folder = os.environ.get("ROTA_RUN_DIR")
        self._folder = None if folder is None else Path(folder)
        self._rank = os.environ.get("RANK", "0")  # torchrun sets it anew for the processes that it starts
        self.step = self._saved("step", 0)
        """Steps done so far, those before the last save in earlier runs included."""
        self._source: Iterable[T] = source if isinstance(source, Iterable) else source(self.step)
        self.tasks = int(os.environ.get("WORLD_SIZE", "1"))
        """How many processes train together in this run; after a resize it differs from the run before."""
        self.rank = int(self._rank)
        """Which of them this is."""
        self.tasks_before = self._saved("tasks", self.tasks)
        """How many tasks the job had when it last saved: after a resize, what learning rates or shards depend on."""
        self.stop_asked = False
        """Whether the job was told to stop; `should_save` says at which step it is time."""
        self._heard_at = self._looked_at = 0.0
        self._stop_at: int | None = None
        attempt = os.environ.get("ROTA_ATTEMPT", "0")
        self._word = None if self._folder is None or self.tasks == 1 else self._folder / f"stop-{attempt}.json"
        self._stopped = False
        self._first = self.step
        self._values: dict[str, float] = {}
        self._curve = None if self._folder is None else MetricCurve(self._folder / f"curve-{self._rank}.json")
        self._begun = self._told = self._saved_at = time.monotonic()

    def __iter__(self) -> Iterator[T]:
        if self._folder is None:
            yield from self._plain()
            return
        with self._listening():
            for item in self._source:
                yield item
                self.step += 1
                if time.monotonic() - self._told >= REPORT_EVERY_S:
                    self._tell()
                if self._stopped:
                    break
            self._tell()

    def _plain(self) -> Iterator[T]:
        for item in self._source:
            yield item
            self.step += 1

    @property
    def should_save(self) -> bool:
        """Whether a checkpoint is due: the scheduler wants the devices back, or enough time has passed."""
        if self._must_stop():
            return True
        return self._save_every_s is not None and time.monotonic() - self._saved_at >= self._save_every_s

    def _must_stop(self) -> bool:
        """Whether this is the last step of a job that was told to stop."""
        if self._word is None:
            return self.stop_asked
        if self._stop_at is None:
            if self.rank == 0 and self.stop_asked:
                passed_s = max(time.monotonic() - self._begun, LOOK_EVERY_S)
                speed = (self.step - self._first) / passed_s
                self._stop_at = self.step + STEPS_TO_STOP + int(speed * 5 * LOOK_EVERY_S)
                _write(self._word, json.dumps({"step": self._stop_at}))
            elif self.rank != 0:
                self._stop_at = self._named_step()
        return self._stop_at is not None and self.step >= self._stop_at

    def _named_step(self) -> int | None:
        """The step that the first task named; this one if there is no word from it for too long."""
        assert self._word is not None
        now = time.monotonic()
        if now - self._looked_at < LOOK_EVERY_S:
            return None
        self._looked_at = now
        if os.path.exists(self._word):
            self.stop_asked = True
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                return int(json.loads(self._word.read_text(encoding="utf-8"))["step"])
        if self.stop_asked and now - self._heard_at > WORD_S:
            return self.step
        return None

    def saved(self) -> None:
        """The loop has saved its progress, this step included. If it was asked to stop, it ends after this step."""
        self._saved_at = time.monotonic()
        self._stopped = self._must_stop()
        if self._folder is not None and self._rank == "0":
            _write(self._folder / "saved.json", json.dumps({"step": self.step + 1, "tasks": self.tasks}))

    def report(self, **values: float) -> None:
        """Numbers to show with the progress, such as the loss."""
        self._values.update(values)

    def _saved(self, name: str, otherwise: int) -> int:
        """What was written down with the last save."""
        if self._folder is None:
            return otherwise
        try:
            return int(json.loads((self._folder / "saved.json").read_text(encoding="utf-8"))[name])
        except (OSError, ValueError, KeyError, TypeError):
            return otherwise

    def _tell(self) -> None:
        now = time.monotonic()
        self._told = now
        passed_s = now - self._begun
        speed = (self.step - self._first) / passed_s if passed_s > 0 else 0.0
        values = {name: float(value) for name, value in self._values.items()}
        if self._folder is not None:
            at_s = time.time()
            _write(
                self._folder / f"progress-{self._rank}.json",
                json.dumps({"step": self.step, "steps_per_s": speed, "at_s": at_s, "values": values}),
            )
            if self._curve is not None and (text := self._curve.add(at_s, self.step, values)) is not None:
                _write(self._folder / f"curve-{self._rank}.json", text)

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """Hear the stop signal while the loop runs; only a main thread can."""
        number = getattr(signal, os.environ.get("ROTA_STOP_SIGNAL", "SIGTERM"))

        def heard(_: int, __: FrameType | None) -> None:
            self.stop_asked, self._heard_at = True, time.monotonic()

        try:
            before = signal.signal(number, heard)
        except ValueError:
            yield
            return
        try:
            yield
        finally:
            signal.signal(number, before)


def steps(source: Iterable[T] | Callable[[int], Iterable[T]], *, save_every_s: float | None = None) -> Steps[T]:
    """Iterate over a loader, step by step, with progress reported and orders heard.

    A function instead of a loader is asked for one from the step on that is to be done first.
    """
    return Steps(source, save_every_s=save_every_s)


def saving() -> None:
    """Say that this task needs its devices no more: it only saves and then ends.

    Under a policy that overlaps jobs, the next one is started on its devices when all its tasks have said so.
    """
    pipe = os.environ.get("ROTA_TELL")
    if pipe is None:
        return
    with contextlib.suppress(OSError):  # nobody listens any more: then the devices are its own until it ends
        end = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(end, b"saving\n")
        finally:
            os.close(end)


def _write(path: Path, text: str) -> None:
    """Progress is worth little: a full disk must not end the training."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
