"""One task as the manager sees it: a folder, and the supervisor that works in it."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import secrets
import signal
import time
from enum import Enum
from pathlib import Path

from rota.core.messages.decisions import Cause
from rota.core.model.ranks import TaskRank
from rota.drivers.local.prefork_pool import PreforkPool
from rota.drivers.local.task_runner.files import AT_RUNG
from rota.drivers.local.task_runner.processes import END_S, TaskProcesses, boot, start_time
from rota.store.run_folder import Json, read_json, write_json


def task_token(mark: str, folder: Path | None, *place: object) -> str:
    """Return what marks the processes of a task: its job, attempt and rank, and what only the manager can derive.

    A task that began under an older Rota keeps the token in its order; a task without a folder has not begun.
    """
    name = "/".join(map(str, place))
    with contextlib.suppress(OSError, ValueError, KeyError):
        known = None if folder is None else read_json(folder / "task.json")
        if known is not None:
            return str(known["token"])
    return f"{name}/{hmac.digest(mark.encode(), name.encode(), 'sha256').hex()[:24]}"


class TaskPhase(Enum):
    """The progress of a task, as its supervisor reports it."""

    NEW = "new"
    READY = "ready"
    LAUNCHING = "launching"
    RUNNING = "running"
    ENDED = "ended"


class TaskHandle:
    """The manager's handle of one task. Its state is read from the folder, so that it survives a restart."""

    def __init__(self, slot: TaskRank, folder: Path, token: str) -> None:
        self.slot = slot
        self.folder = folder
        self.token = token
        self.phase = TaskPhase.NEW
        self.state: Json = {}
        self.pidfd = -1
        self._child = 0
        self._was_claimed = False
        self._asked = ""
        """The name of the last order about GPU memory, until the supervisor has taken it."""

    def spawn(self, order: Json, pool: PreforkPool) -> None:
        """Start a supervisor. It exits at once if another one has claimed the task."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.folder / "task.json", order)
        supervisor = pool.start(self.folder)
        self._child, self.pidfd = supervisor.pid, supervisor.pidfd

    @property
    def is_starting(self) -> bool:
        """Whether its supervisor is still at work to start it."""
        return self.pidfd >= 0 and self.phase in (TaskPhase.NEW, TaskPhase.LAUNCHING)

    @property
    def has_ended(self) -> bool:
        """Whether it is known how the task ended."""
        return self.phase is TaskPhase.ENDED

    @property
    def claimed(self) -> bool:
        """Whether a supervisor has claimed the task; once one has, even if the folder was deleted since."""
        self._was_claimed = self._was_claimed or (self.folder / "claim").exists()
        return self._was_claimed

    def find(self) -> None:
        """Find the supervisor that has the claim, after a restart of the manager."""
        claim = read_json(self.folder / "claim")
        if claim is None:
            return
        pid = int(claim["supervisor"])
        if not pid or not _is_of_this_boot(claim):
            return
        with contextlib.suppress(ProcessLookupError):
            pidfd = os.pidfd_open(pid)
            if start_time(pid) == claim["supervisor_start"]:
                self.pidfd = pidfd
            else:  # the number has been given to another process since
                os.close(pidfd)

    def refresh(self) -> bool:
        """Read what the supervisor wrote last; return whether the task has progressed."""
        state = read_json(self.folder / "state.json")
        if state is None:
            return False
        self._was_claimed = True
        before = self._progress
        self.state = state
        self.phase = TaskPhase(state["phase"])
        return self._progress != before

    @property
    def _progress(self) -> tuple[object, ...]:
        return self.phase, self.rests, self.has_obeyed, self.saves, self.swap_bytes, self.swap_refused

    def has_word_of_recorder(self) -> bool:
        """Return whether the recorder wrote how the task ended after its supervisor died, and take it over."""
        recorded = read_json(self.folder / "exit.json")
        if recorded is None:
            return False
        self.state = {**self.state, **recorded, "phase": "ended", "ran": True, "unsupervised": True}
        self.phase = TaskPhase.ENDED
        return True

    def forbid(self) -> bool:
        """Take the claim so that no supervisor can start the task any more; return False if one has it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        draft = self.folder / f"claim.{os.getpid()}"
        write_json(draft, {"supervisor": 0, "supervisor_start": -1})
        try:
            os.link(draft, self.folder / "claim")
        except FileExistsError:
            return False
        finally:
            draft.unlink(missing_ok=True)
        return True

    async def end(self) -> None:
        """End what is left of the task, wait for that, and mark it as ended with an unknown result."""
        if _is_of_this_boot(self.state):
            left = TaskProcesses(int(self.state.get("pid", 0)), int(self.state.get("pid_start", 0)), self.token)
            deadline = time.monotonic() + END_S
            while not left.kill() and time.monotonic() < deadline:
                await asyncio.sleep(0.02)
        self.give_up()

    def give_up(self) -> None:
        """Mark the task as ended with an unknown result."""
        ran = self.phase not in (TaskPhase.NEW, TaskPhase.READY)
        lost: Json = {"exit_code": None, "signal": int(signal.SIGKILL), "lost": True, "ran": ran}
        self.state = {**self.state, **lost, "phase": "ended"}
        self.phase = TaskPhase.ENDED

    @property
    def recorder_lives(self) -> bool:
        """Whether the recorder may still write how the task ended."""
        recorder = int(self.state.get("recorder", 0))
        if not recorder:
            return self.phase is TaskPhase.LAUNCHING
        return _is_of_this_boot(self.state) and start_time(recorder) == self.state.get("recorder_start")

    def nudge(self) -> None:
        """Signal the supervisor to read its orders."""
        self._signal(signal.SIGUSR1)

    def _signal(self, number: signal.Signals) -> None:
        """Signal the supervisor, unless it has not claimed its task yet: a signal would end it then."""
        if self.pidfd >= 0 and self.claimed:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, number)

    def order_stop(self, signal_name: str, grace_s: float, cause: str = "") -> None:
        """Order the supervisor to end the task, first by file, so that one that is just starting obeys too.

        The cause is kept there, so that a manager that could not store a cancellation finds it again.
        """
        path = self.folder / "stop.json"
        try:
            is_gone = self._was_claimed and not (self.folder / "claim").exists()
            self.folder.mkdir(parents=True, exist_ok=True)
            known = read_json(path)
            if known is None or grace_s < float(known["grace_s"]):  # it is cancelled while it stops for others
                write_json(path, {"signal": signal_name, "grace_s": grace_s, "cause": cause})
        except OSError:
            is_gone = True
        if is_gone:  # the disk is full, or the folder was deleted: say it by a signal, which has the same meaning
            self._signal(signal.SIGTERM)
        self.nudge()

    @property
    def was_cancelled(self) -> bool:
        """Whether it was ordered to stop because its job was cancelled."""
        order = read_json(self.folder / "stop.json")
        return order is not None and order.get("cause") == Cause.CANCELLED.value

    @property
    def was_stopped(self) -> bool:
        """Whether an order to stop had reached it when it ended, or may have, if its supervisor died."""
        return bool(
            self.state.get("stopped") or (self.state.get("unsupervised") and (self.folder / "stop.json").exists())
        )

    @property
    def left_at_rung(self) -> bool:
        """Whether its supervisor stopped it at a rung of its sweep, as no manager ran that could have decided."""
        order = read_json(self.folder / "stop.json")
        return order is not None and order.get("cause") == AT_RUNG

    def order_rest(self, rests: bool, until_s: float | None = None, swap: Json | None = None) -> None:
        """Order the supervisor to suspend the task, for a time or until further notice, or to resume it.

        With `swap` its GPU memory is copied to the host as well, or comes back to the GPUs that `swap` names.
        """
        order: Json = {"rests": rests, "until_s": until_s}
        if swap is not None:
            self._asked = secrets.token_hex(8)
            order |= {**swap, "name": self._asked}
        write_json(self.folder / "rest.json", order)
        self.nudge()

    @property
    def is_to_rest(self) -> bool:
        """Whether the last order was to suspend it until further notice."""
        with contextlib.suppress(OSError, ValueError):
            order = read_json(self.folder / "rest.json")
            return order is not None and bool(order["rests"]) and order["until_s"] is None
        return False

    @property
    def has_obeyed(self) -> bool:
        """Whether its supervisor has begun to carry out the last order about GPU memory."""
        return not self._asked or self.state.get("rest_order") == self._asked

    @property
    def swap_bytes(self) -> int:
        """GPU memory of the task that could be copied to the host; 0 if it has none or the driver can't."""
        return int(self.state.get("swap_bytes") or 0) if self.phase is TaskPhase.RUNNING else 0

    @property
    def swap_refused(self) -> str:
        """Why its GPU memory can't be copied to the host, as far as that is known."""
        return str(self.state.get("swap_refused") or "")

    @property
    def is_on_host(self) -> bool:
        """Whether its GPU memory is on the host."""
        return self.state.get("swap") == "held"

    @property
    def rests(self) -> bool:
        """Whether the task is suspended: with its GPU memory on the host, if that was ordered, and not yet resumed."""
        is_leaving = self.state.get("swap") == "out"
        return self.phase is TaskPhase.RUNNING and self.state.get("rests_since_s") is not None and not is_leaving

    @property
    def loads(self) -> bool:
        """Whether the task has not opened its GPUs yet; False on devices of which that can't be known."""
        return self.phase is TaskPhase.RUNNING and bool(self.state.get("loads"))

    @property
    def saves(self) -> bool:
        """Whether the task reported that it only saves and no longer needs its devices."""
        return self.phase is TaskPhase.RUNNING and self.state.get("saves_since_s") is not None

    def mark_shared(self) -> None:
        """Note that other jobs share its devices, so that their utilisation is not only this task's."""
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "shared").touch()

    def ran_s(self, now_s: float) -> float:
        """Return how long the task has run, without the time in which it was suspended."""
        if "started_s" not in self.state:
            return 0.0
        until_s = min(now_s, float(self.state.get("ended_s") or now_s))
        since_s = self.state.get("rests_since_s")
        rested_s = float(self.state.get("rested_s", 0.0)) + (0.0 if since_s is None else until_s - float(since_s))
        return max(until_s - float(self.state["started_s"]) - rested_s, 0.0)

    def let_go(self) -> None:
        """Reap the supervisor after its exit."""
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1
        if self._child:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._child, os.WNOHANG)
            self._child = 0

    @property
    def ran(self) -> bool:
        """Whether the task was started at all."""
        return bool(self.state.get("ran"))

    @property
    def succeeded(self) -> bool:
        """Whether the task ended by itself and well."""
        return (
            self.phase is TaskPhase.ENDED
            and self.ran
            and self.state.get("exit_code") == 0
            and not self.state.get("idle")
        )

    @property
    def lost(self) -> bool:
        """Whether the supervisor failed, not the task."""
        return bool(self.state.get("lost")) or (bool(self.state.get("unsupervised")) and not self.succeeded)

    @property
    def exit_code(self) -> int | None:
        """The exit code as a shell reports it: above 128 for signals."""
        number = self.state.get("signal")
        return 128 + int(number) if number is not None else self.state.get("exit_code")


def _is_of_this_boot(record: Json) -> bool:
    """Whether the process ids in a record are of this boot; records of an older Rota do not say."""
    return bool(record.get("boot", boot()) == boot())
