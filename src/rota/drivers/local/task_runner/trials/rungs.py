"""A trial at a rung, a step at which its sweep decides whether it goes on: it is stopped while no manager can decide.

The task tells its steps, or its output does, by the pattern of the sweep. As long as a manager runs, that decides, and
writes to the job's folder that a trial goes on. While none runs, the supervisor orders a stop in its place, so that the
trial saves and leaves its devices. The order is a file, from which the next manager knows why the trial has stopped.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal

from rota.drivers.local.task_runner.files import AT_RUNG, write
from rota.drivers.local.task_runner.processes import send_if, start_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.drivers.local.task_runner.files import Json
    from rota.sweeps.log_pattern import LinePattern

WORD = b"rung:"
EVERY_S = 0.25
"""How often it is looked whether the manager still runs that is to decide."""
_DECIDED = "../../shared/rung.json"
_MOST_BYTES = 4096
_MOST_DIGITS = 18
_LONGEST_LINE = 65536


class RungWatch:
    """The steps of one trial, compared with its rungs."""

    def __init__(self, task: Json, rungs: list[int], pattern: LinePattern | None) -> None:
        self._task = task
        self._rungs = rungs
        self._pattern = pattern
        self._line = b""
        self._step = int(_decided().get("step") or 0)
        """The last step that the output told."""
        self._undecided = 0
        """The rung that it has come to, while it is not known whether it goes on; 0 if there is none."""

    def due_in_s(self, now: float) -> float:
        """Return how long until the next look."""
        return EVERY_S if self._undecided else float("inf")

    def hear(self, words: list[bytes]) -> None:
        """Take what the task says."""
        for word in words:
            step = word.removeprefix(WORD)
            if word.startswith(WORD) and step.isdigit() and len(step) <= _MOST_DIGITS:
                self._come_to(int(step))

    def read(self, output: bytes) -> None:
        """Take a piece of the task's output."""
        if self._pattern is None:
            return
        *lines, self._line = (self._line + output).split(b"\n")
        if len(self._line) > _LONGEST_LINE:
            self._line = b""
        for step in _steps_in(lines, self._pattern, self._step):
            self._step = max(step, self._step)
            self._come_to(step)

    def _come_to(self, step: int) -> None:
        self._undecided = max([self._undecided, *(rung for rung in self._rungs if rung <= step)])

    def orders_stop(self) -> bool:
        """Whether a stop is ordered here and now: at a rung, while no manager can decide."""
        if not self._undecided:
            return False
        found = _decided()
        if found.get("goes_on") and int(found.get("rung") or 0) >= self._undecided:
            self._undecided = 0
            return False
        if _is_listened_to(self._task["notify"]):
            return False
        order = {"signal": self._task["env"].get("ROTA_STOP_SIGNAL", "SIGTERM"), "grace_s": self._task["grace_s"]}
        try:
            _order_all({**order, "cause": AT_RUNG})
        except OSError:  # the disk is full; the next manager would not know that it was not done
            return False
        self._undecided = 0
        return True


def watch_rungs(task: Json) -> RungWatch | None:
    """Return the watch of a trial that pauses; None for other tasks, and for all of a gang but the first."""
    told = task["env"].get("ROTA_RUNGS")
    if not told or task["env"].get("ROTA_RANK", "0") != "0":
        return None
    pattern = None
    try:
        rungs = [int(rung) for rung in told.split(",")]
        if text := task["env"].get("ROTA_RUNG_PATTERN"):
            from rota.sweeps.log_pattern import compiled

            pattern = compiled(text)
    except ValueError:  # variables of the user's own
        return None
    return RungWatch(task, rungs, pattern)


def _steps_in(lines: list[bytes], pattern: LinePattern, after: int) -> Iterator[int]:
    from rota.sweeps.log_pattern import found_in

    for step, _ in found_in((line.decode("utf-8", errors="replace") for line in lines), pattern, after):
        yield step


def _decided() -> Json:
    """What the manager decided last. The file is in the task's own folder: it may be anything."""
    try:
        end = os.open(_DECIDED, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        found = json.loads(os.read(end, _MOST_BYTES))
        return {name: int(found[name]) for name in ("rung", "step", "goes_on")}
    except (OSError, ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return {}
    finally:
        os.close(end)


def _is_listened_to(pipe: str) -> bool:
    """Whether a manager reads the pipe of its supervisors."""
    try:
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _order_all(order: Json) -> None:
    """Order all tasks of the attempt to stop, unless one was ordered before; this one's order is the last."""
    mine = os.path.basename(os.getcwd())
    others = sorted(name for name in os.listdir("..") if name.isdigit() and name != mine)
    for name in (*others, mine):
        _order(f"../{name}", order)


def _order(folder: str, order: Json) -> None:
    draft = f"stop.json.{os.getpid()}"
    write(draft, order)
    try:
        os.link(draft, f"{folder}/stop.json")
    except FileExistsError:
        return
    finally:
        os.unlink(draft)
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        with open(f"{folder}/claim", encoding="utf-8") as file:
            claim = json.load(file)
        pid, start = int(claim["supervisor"]), claim["supervisor_start"]
        if pid not in (0, os.getpid()):
            send_if(pid, lambda: start_time(pid) == start, signal.SIGUSR1)
