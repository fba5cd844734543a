"""Suspends and resumes a task: its processes by signals and, where that is ordered, its GPU memory by the driver.

What the driver does takes a second for each few gigabytes. A child process waits for it, so that the supervisor goes on
to obey orders. While GPU memory is copied the task's processes must run; once it is on the host they are stopped.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from rota.drivers.local.task_runner.clock import now_s
from rota.drivers.local.task_runner.criu import dump
from rota.drivers.local.task_runner.cuda_checkpoint import CheckpointFailed, CudaCheckpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from rota.drivers.local.task_runner.files import Json
    from rota.drivers.local.task_runner.processes import TaskProcesses

FOREVER = float("inf")
MPS_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
_TRIES = 3
"""How often the driver is asked about the same processes: they may just be about to open their GPUs."""
_NEVER = "not supported"


class Rest:
    """Whether a task is suspended, since when and until when, and where its GPU memory is."""

    def __init__(self, task: Json, processes: TaskProcesses, tell: Callable[..., None]) -> None:
        self._processes = processes
        self._tell = tell
        self._library: str | None = task.get("cuda")
        self._cgroup: Json = task.get("cgroup") or {}
        self._memory_bytes = int(task.get("memory_bytes") or 0)
        self._since_s: float | None = None
        self._rested_s = 0.0
        self._copy: Copy | None = None
        self._pids: tuple[int, ...] = ()
        """The processes that hold GPU memory, if they can be suspended."""
        self._bytes = 0
        """How much they hold."""
        self._probed: tuple[int, ...] = ()
        """The processes about which the driver was asked last."""
        self._tries = 0
        self._refused = ""
        """Why the task can't be suspended, as far as it was told."""
        self._is_client = MPS_VARIABLE in (task.get("env") or {})
        self._several: str | None = task.get("cuda_several", "the driver suspends one process of a job only")
        """Why several processes can't be suspended together; None if they can."""
        self.sample: Callable[[], dict[int, int]] = dict
        """Returns the processes that hold GPU memory now."""
        self.until_s = FOREVER
        """When a suspension ends by itself."""
        self.is_swapped = False
        """Whether the task's GPU memory is on the host."""
        self.is_written = False
        """Whether the task is on disk as well."""
        self._was_tried = False
        """Whether it was tried to write it there, in this suspension."""
        if task.get("restore"):
            self._take_over(task["restore"]["state"])

    def _take_over(self, known: Json) -> None:
        """Continue with a task that was restored from disk, still suspended."""
        self._since_s, self._rested_s = float(known["rests_since_s"]), float(known.get("rested_s") or 0.0)
        self._pids = self._probed = tuple(known["swap_pids"])
        self._bytes, self.is_swapped = int(known["swap_held_bytes"]), True
        self._raise_limit(self._bytes)

    @property
    def copying(self) -> int:
        """The descriptor that becomes readable when the driver is done; -1 if it has nothing to do."""
        return -1 if self._copy is None else self._copy.result

    @property
    def holds_copy(self) -> bool:
        """Whether the task's own memory holds some of its GPU memory."""
        return self.is_swapped or (self._copy is not None and self._copy.action != "probe")

    def look(self, holders: dict[int, int]) -> None:
        """Take note of the processes that hold GPU memory; ask the driver once whether it can suspend them."""
        if self._library is None or self._since_s is not None or self._copy is not None:
            return
        pids, held = tuple(sorted(holders)), sum(holders.values())
        why = self._why_not(pids)
        if why or not pids:
            if self._pids or why != self._refused:
                self._refuse(why)
            return
        if pids != self._probed or (not self._pids and self._tries < _TRIES and _NEVER not in self._refused):
            self._tries = self._tries + 1 if pids == self._probed else 1
            self._probed = self._pids = pids
            self._bytes = held
            self._copy = Copy(self._library, "probe", pids)
        elif self._pids and abs(held - self._bytes) > self._bytes / 20:
            self._bytes = held
            self._tell(swap_bytes=held)

    def _why_not(self, pids: tuple[int, ...]) -> str:
        """Return why the driver need not be asked about these processes; nothing if it must be."""
        if pids and self._is_client:
            return "it is a client of MPS, which the driver can't suspend"
        if len(pids) > 1 and self._several is not None:
            return f"{len(pids)} of its processes hold GPU memory; {self._several}"
        return ""

    def _refuse(self, why: str) -> None:
        self._pids, self._bytes, self._refused = (), 0, why
        self._tell(swap_bytes=0, swap_refused=why or None)

    def obey(self, order: Json) -> bool:
        """Suspend or resume the task as ordered; a suspension for a time ends by itself. Return False if the driver is
        busy: the last order is read again when it is done."""
        if self._copy is not None:
            return False
        until_s = FOREVER if order["until_s"] is None else float(order["until_s"])
        if not order["rests"] or now_s() >= until_s:
            self.go_on(order.get("pairs") or ())
            return True
        self.until_s = until_s
        if order.get("disk"):
            self._write(str(order["disk"]))
        elif order.get("swap") and self._can_swap(int(order.get("most_bytes") or 0)):
            self._swap_out()
        elif self._since_s is None:
            self._stop()
            self._tell_rest()
        return True

    def go_on(self, pairs: Any = ()) -> None:
        """Resume the task, with its GPU memory back on its GPUs first."""
        self.until_s, self._was_tried, self.is_written = FOREVER, False, False
        if self._since_s is None or self._copy is not None or not self._processes.pid:
            return
        self._continue()
        if self.is_swapped:
            assert self._library is not None
            self._copy = Copy(self._library, "swap in", self._pids, pairs)
            self._tell(swap="in")
        else:
            self._count()
            self._tell_rest()

    def finish(self) -> str | None:
        """Take note that the driver is done; return what went wrong if the task can't go on."""
        assert self._copy is not None
        copy, self._copy = self._copy, None
        failure, took_s = copy.outcome()
        if copy.action == "probe":
            if failure is not None:
                self._refuse(failure)
                return None
            self._refused = ""
            self._tell(swap_bytes=self._bytes, swap_refused=None)
            return None
        if copy.action == "write":
            self.is_written = failure is None
            self._tell(disk_refused=failure)
            return None
        if failure is not None:
            self._tell(swap=None, swap_failed=failure)
            return f"{copy.action} failed: {failure}"
        self.is_swapped = copy.action == "swap out"
        if self.is_swapped:
            self._stop()
            self._tell(swap="held", swap_out_s=took_s, swap_held_bytes=self._bytes, swap_pids=self._pids)
        else:
            self._raise_limit(0)
            self._count()
            self._tell(swap=None, swap_in_s=took_s)
        self._tell_rest()
        return None

    def _can_swap(self, most_bytes: int) -> bool:
        """Return whether the task's GPU memory can go to the host.

        The last sample may be older than some of its processes: all that hold GPU memory now must leave.
        """
        if self.is_swapped or self._library is None:
            return False
        if self._pids or (self._since_s is None and not self._probed):
            holders = self.sample()
            pids = tuple(sorted(holders))
            if pids and not self._why_not(pids):
                self._probed = self._pids = pids
                self._bytes = sum(holders.values())
                self._tell(swap_bytes=self._bytes)
        return bool(self._pids) and self._bytes <= most_bytes

    def _swap_out(self) -> None:
        assert self._library is not None
        if self._since_s is None:
            self._since_s = now_s()
        else:
            self._continue()
        self._raise_limit(self._bytes)
        self._copy = Copy(self._library, "swap out", self._pids)
        self._tell(swap="out")

    def _write(self, criu: str) -> None:
        """Write a task to disk whose GPU memory is on the host; once, for what CRIU refuses it refuses again."""
        if self.is_swapped and not self._was_tried:
            self._was_tried = True
            self._copy = Copy(criu, "write", (self._processes.pid,))

    def _stop(self) -> None:
        self._processes.signal_group(signal.SIGSTOP)
        if self._since_s is None:
            self._since_s = now_s()
        self._processes.hold()

    def _continue(self) -> None:
        self._processes.signal_group(signal.SIGCONT)
        self._processes.go_on()

    def _count(self) -> None:
        if self._since_s is not None:
            self._rested_s += now_s() - self._since_s
        self._since_s = None

    def _raise_limit(self, more_bytes: int) -> None:
        """Let the task's cgroup hold its GPU memory as well: the driver copies it into the task's own memory."""
        if self._memory_bytes and "limit" in self._cgroup:
            with contextlib.suppress(OSError):
                for path in self._cgroup["limit"] if more_bytes else reversed(self._cgroup["limit"]):
                    with open(path, "w", encoding="ascii") as limit:
                        limit.write(str(self._memory_bytes + more_bytes))

    def _tell_rest(self) -> None:
        self._tell(rests_since_s=self._since_s, rested_s=self._rested_s)


class Copy:
    """One call of the driver, or of CRIU, in a process of its own."""

    def __init__(self, library: str, action: str, pids: tuple[int, ...], pairs: Any = ()) -> None:
        self.action = action
        self._begun = time.monotonic()
        self.result, told = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            try:
                signal.set_wakeup_fd(-1)
                os.closerange(3, told)  # among them the pipe by which the recorder knows that the supervisor lives
                os.closerange(told + 1, 256)
                os.write(told, _carried_out(library, action, pids, pairs).encode())
            finally:
                os._exit(0)
        os.close(told)

    def outcome(self) -> tuple[str | None, float]:
        """Return why it failed, None if it did not, and how long it took."""
        text = os.read(self.result, 4096).decode(errors="replace") or "the process that called the driver ended"
        os.close(self.result)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._child, 0)
        return None if text == "ok" else text, time.monotonic() - self._begun


def _carried_out(library: str, action: str, pids: tuple[int, ...], pairs: Any) -> str:
    """`library` is that of the driver, or the program that writes to disk."""
    if action == "write":
        return dump(library, pids[0])
    try:
        driver = CudaCheckpoint(library)
        if action == "probe":
            driver.probe(pids)
        elif action == "swap out":
            driver.swap_out(pids)
        else:
            driver.swap_in(pids, [(one, other) for one, other in pairs])
    except CheckpointFailed as error:
        return str(error)
    return "ok"
