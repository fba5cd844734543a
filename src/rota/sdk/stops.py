"""How a task agrees with its supervisor about stops: at the rungs of a trial, and after a training loop.

At a rung, a step at which its sweep decides whether it goes on, a trial says so and waits for the decision, as it can
save best right after a step. The manager writes its decision to the trial's folder, and asks a trial that pauses to
stop. While no manager runs, the supervisor does that.

After a loop that has run to its end, what is left of the script is short, and if it died of the stop signal, its job
would repeat the steps since the last checkpoint. So the supervisor is told that the work is done, and the script has
the grace of the stop to end.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

RUNG_FILE = "rung.json"
"""What the manager has decided about a trial at its rung, in the job's folder."""
WAIT_S = 5.0
"""How long a decision is waited for: a manager that can't decide for now must not keep devices idle."""
POLL_S = 0.02
_was_stopped = False
"""Whether this process was told to stop, and has run a loop to its end since or before."""


def tell(word: str) -> None:
    """Say a word; outside of a job, and without a supervisor, nothing happens."""
    pipe = os.environ.get("ROTA_TELL")
    if pipe is None:
        return
    with contextlib.suppress(OSError):
        end = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(end, f"{word}\n".encode())
        finally:
            os.close(end)


def rungs_of_trial() -> tuple[int, ...]:
    """Return the rungs of this process's trial; none outside of a sweep that pauses trials by what they report here."""
    if "ROTA_RUNG_PATTERN" in os.environ:  # it decides by the output
        return ()
    return tuple(int(rung) for rung in os.environ.get("ROTA_RUNGS", "").split(",") if rung)


def await_decision(folder: Path, rung: int, is_stopped: Callable[[], bool]) -> None:
    """Wait until it is decided that the trial goes on from a rung, or it is asked to stop; then return."""
    if _goes_on(folder, rung) or is_stopped():
        return
    tell(f"rung:{rung}")
    deadline = time.monotonic() + WAIT_S
    with _noticing_stop() as has_come:
        while not (has_come() or is_stopped() or _goes_on(folder, rung)) and time.monotonic() < deadline:
            time.sleep(POLL_S)


def _goes_on(folder: Path, rung: int) -> bool:
    try:
        found = json.loads((folder / RUNG_FILE).read_text(encoding="utf-8"))
        return int(found["rung"]) >= rung and bool(found["goes_on"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


@contextlib.contextmanager
def _noticing_stop() -> Iterator[Callable[[], bool]]:
    """Notice the stop signal beside the handler that the script has for it; without one it ends the process."""
    number = getattr(signal, os.environ.get("ROTA_STOP_SIGNAL", "SIGTERM"))
    before = signal.getsignal(number)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    seen: list[int] = []

    def on_signal(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        before(number, frame)

    signal.signal(number, on_signal)
    try:
        yield lambda: bool(seen)
    finally:
        if signal.getsignal(number) is on_signal:  # else the script has another by now
            signal.signal(number, before)


def note_done(number: int | None = None, frame: FrameType | None = None) -> None:
    """Tell the supervisor that a task that was told to stop has done its work; also a handler of the signal."""
    global _was_stopped
    _was_stopped = True
    tell("done")


def ends_process(handler: object) -> bool:
    """Whether a handler of the stop signal is none of the script's own."""
    return handler is signal.SIG_DFL or handler is note_done


def goes_on() -> bool:
    """Take back what was told, as another loop begins; return whether this process was told to stop before."""
    global _was_stopped
    before, _was_stopped = _was_stopped, False
    if before:
        tell("more")
    return before
