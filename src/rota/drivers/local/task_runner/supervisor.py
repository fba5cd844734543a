"""The supervisor of a task, from the claim to the final state."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time

from rota.drivers.local.task_runner import clock
from rota.drivers.local.task_runner.clock import now_s
from rota.drivers.local.task_runner.criu import drop_image, keep_image
from rota.drivers.local.task_runner.files import (
    CHUNK,
    TELL,
    await_folder,
    claim,
    drop_spares,
    make_pipe,
    news_of_work,
    nudge,
    read,
    spare,
    write,
    write_when_possible,
)
from rota.drivers.local.task_runner.gpus import watch_gpus
from rota.drivers.local.task_runner.output import OutputFiles
from rota.drivers.local.task_runner.processes import (
    boot,
    hold_mounts,
    is_sealed,
    kills_for_memory,
    processes_of,
    start_time,
)
from rota.drivers.local.task_runner.recorder import record
from rota.drivers.local.task_runner.resting import Rest
from rota.drivers.local.task_runner.scratch import ScratchWatch, watch_scratch
from rota.drivers.local.task_runner.sessions import TaskSessions
from rota.drivers.local.task_runner.signals import catch_signals, stop_requests
from rota.drivers.local.task_runner.trials.rungs import watch_rungs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rota.drivers.local.task_runner.files import Json
    from rota.drivers.local.task_runner.gpus import GpuWatch

CONFINED = "confined"
"""The argument of a supervisor whose task may have to be confined."""
MEMORY_EVERY_S = 0.5
DRAIN_S, HOST_DRAIN_S = 0.5, 10.0
"""How long the rest of the output is waited for, directly from the task or from its session host, which ends it."""
SPARE_FILES = ("exit.json", "state.json")
"""Files for which space is kept, so that the end of a task can be written to a full disk."""


def main() -> int:
    """Run the task of the folder that is named on the standard input to its end; if none is, there is nothing to do."""
    if CONFINED in sys.argv:
        import rota.drivers.local.task_runner.confine  # noqa: F401  # while there is no task to wait for it
    folder = await_folder()
    if not folder:
        return 0
    os.chdir(folder)
    try:
        task = read("task.json")
    except FileNotFoundError:
        return 0
    clock.use(task.get("clock_offset_s"))
    wake = catch_signals()
    if not claim():
        return 0
    supervisor = Supervisor(task, wake)
    if supervisor.may_start():
        supervisor.run()
    return 0


class Supervisor:
    """Supervises one task."""

    def __init__(self, task: Json, wake: int) -> None:
        self._task = task
        self._wake = wake
        self._output = OutputFiles(int(task["log_bytes"]), int(task["log_files"]), goes_on="restore" in task)
        self._state: Json = {"supervisor": os.getpid(), "supervisor_start": start_time(os.getpid()), "boot": boot()}
        self._pid = 0
        self._processes = processes_of(task, 0, 0)
        self._order: Json | None = None
        self._kill_at = float("inf")
        self._cause = ""
        self._rest = Rest(task, self._processes, self._tell)
        self._sessions = TaskSessions(task)
        self._tells = -1
        self._untold = False
        """Whether the state could not be written, for want of space."""
        self._watch: GpuWatch | None = None
        self._scratch: ScratchWatch | None = None
        self._rungs = watch_rungs(task)
        self._poller = select.poll()
        self._poller.register(wake, select.POLLIN)

    def may_start(self) -> bool:
        """Wait for the other tasks of the gang; return False if the job is stopped first."""
        if self._task["barrier"]:
            self._tell(phase="ready")
        deadline = time.monotonic() + float(self._task["barrier_s"])
        while not os.path.exists("stop.json"):
            if not self._task["barrier"] or os.path.exists("../go"):
                return True
            if time.monotonic() > deadline:
                break
            if self._poller.poll(200):
                os.read(self._wake, CHUNK)
        self._tell(phase="ended", ran=False, ended_s=now_s())
        return False

    def run(self) -> None:
        """Start the task, supervise it, and record how it ended."""
        spare(SPARE_FILES)
        self._tell(phase="launching")
        with contextlib.suppress(OSError):  # the disk is full: then it can't report
            self._tells = make_pipe(TELL, self._task.get("uid"), self._task.get("gid"))
        output, started, recorder, alive = self._launch()
        with contextlib.suppress(ValueError):
            pid, pid_start = map(int, (os.read(started, 64) or b"0 0").split())
            self._pid = pid
            self._processes = processes_of(self._task, pid, pid_start)
            self._state.update((self._task.get("restore") or {}).get("state", {}))
            self._rest = Rest(self._task, self._processes, self._tell)
        os.close(started)
        self._sessions.begin(self._pid, self._processes.start)
        if self._task.get("confine"):
            hold_mounts(self._pid)
        self._tell(
            phase="running",
            pid=self._pid,
            pid_start=self._processes.start,
            recorder=recorder,
            recorder_start=start_time(recorder),
            started_s=self._state.get("started_s") or now_s(),
            output=f"pipe:[{os.fstat(output).st_ino}]",
        )
        drop_image()
        _forget_order()
        self._look_after(output, recorder)
        with contextlib.suppress(FileNotFoundError):
            self._processes.remember(read("exit.json").get("left", []))
        if not self._processes.ends_with_first:
            self._let_finish(output)
        self._end_task()
        self._drain(output)
        os.close(alive)
        self._record_end()

    def _record_end(self) -> None:
        try:
            ended = read("exit.json")
        except FileNotFoundError:
            ended = {"exit_code": None, "signal": int(signal.SIGKILL), "ended_s": now_s(), "lost": True}
        if ended.get("exit_code") != 0 and kills_for_memory(self._task):
            self._cause = "memory"
        elif self._task.get("container"):
            from rota.drivers.local.task_runner.containers.container_processes import was_not_started

            self._cause = "container" if was_not_started(self._task, ended) else self._cause
        self._output.close()
        if self._order is not None:
            drop_image()
        _forget_order()
        self._tell(phase="ended", ran=True, stopped=self._order is not None, cause=self._cause, **ended)
        drop_spares(SPARE_FILES)

    def _launch(self) -> tuple[int, int, int, int]:
        """Fork the recorder, which forks the task; the output's end, the task's id, the recorder, our liveness pipe."""
        output, task_output = os.pipe()
        stdio = self._sessions.open_stdio(task_output)
        started, tell = os.pipe()
        life, alive = os.pipe()
        recorder = os.fork()
        if recorder == 0:
            for end in (output, started, alive, self._wake, *([self._tells] if self._tells >= 0 else [])):
                os.close(end)
            self._sessions.close_ours()
            code = 1
            try:
                record(self._task, stdio, tell, life)
                code = 0
            finally:
                os._exit(code)
        for end in (*{*stdio}, tell, life):
            os.close(end)
        return output, started, recorder, alive

    def _look_after(self, output: int, recorder: int) -> None:
        """Until the recorder is done: keep the output, obey orders, enforce the limits."""
        os.set_blocking(output, False)
        finished = os.pidfd_open(recorder)
        self._poller.register(output, select.POLLIN)
        self._poller.register(finished, select.POLLIN)
        if self._tells >= 0:
            self._poller.register(self._tells, select.POLLIN)
        limit = 0 if self._task.get("cgroup") else int(self._task.get("memory_bytes") or 0)
        self._watch, self._scratch = watch_gpus(self._task), watch_scratch(self._task)
        self._rest.sample = self._sample
        if self._watch is not None and self._watch.loads:
            self._tell(loads=True)
        self._obey()
        while True:
            now = time.monotonic()
            often = limit or self._untold
            wait_s = min(self._kill_at - now, self._rest.until_s - now_s(), MEMORY_EVERY_S if often else 60.0)
            for watch in (self._watch, self._scratch, self._rungs):
                if watch is not None:
                    wait_s = min(wait_s, watch.due_in_s(now))
            ready = {fd for fd, _ in self._poller.poll(max(wait_s, 0.0) * 1000)}
            if output in ready and not self._keep(output):
                self._poller.unregister(output)
            if self._wake in ready:
                os.read(self._wake, CHUNK)
                self._obey()
            if self._tells in ready:
                self._hear()
            if self._watch is not None and self._watch.due_in_s(time.monotonic()) <= 0:
                self._look_at_gpus(self._watch)
                if self._rest.copying < 0:
                    self._rest.look(self._watch.holders)
                    self._await_copy()
            if self._untold:
                self._tell()
            if self._rest.copying in ready:
                self._copied()
            if now_s() >= self._rest.until_s:
                self._rest.go_on()
            self._keep_to_scratch()
            self._leave_at_rung()
            if time.monotonic() >= self._kill_at:
                self._kill_at = float("inf")
                self._end_task()
            may_end = limit and not self._rest.holds_copy and self._kill_at == float("inf")
            if may_end and self._processes.used_bytes() > limit:
                self._cause, limit = "memory", 0
                self._end_task()
            if finished in ready:
                os.waitpid(recorder, 0)
                os.close(finished)
                return

    def _look_at_gpus(self, watch: GpuWatch) -> None:
        """Sample the task's GPUs; end the task if it keeps more of their memory than it asked for."""
        warning = watch.look(self._pid, rests=self._state.get("rests_since_s") is not None)
        if warning:
            self._output.write(f"\nrota: this task {warning}\n".encode())
        if watch.loads and watch.has_loaded([pid for pid, _ in self._processes.find()]):
            self._tell(loads=False)
        if watch.excess and not self._cause and self._kill_at == float("inf"):
            self._cause, self._state["excess"] = "gpu_memory", watch.excess
            self._output.write(f"\nrota: this task was ended: it {watch.excess}\n".encode())
            self._end_task()

    def _keep_to_scratch(self) -> None:
        """End the task if its folders hold more than it may write."""
        if self._scratch is None or self._scratch.due_in_s(time.monotonic()) > 0:
            return
        # Of a task that is not sealed, all processes of the machine would have to be looked at; others can't submit it.
        holders = [pid for pid, _ in self._processes.find()] if is_sealed(self._task) else [self._pid]
        if self._scratch.is_over(holders):
            self._cause, self._scratch = "scratch", None
            self._end_task()

    def _leave_at_rung(self) -> None:
        """Stop a trial at a rung while no manager can decide whether it goes on."""
        rests = self._state.get("rests_since_s") is not None
        if self._rungs is not None and self._order is None and not rests and self._rungs.orders_stop():
            self._obey()

    def _hear(self) -> None:
        """Read what the task says: it only saves from now on, has done its work though it is stopped, is at a rung."""
        words = os.read(self._tells, CHUNK).split()
        self._state.update(news_of_work(words))
        if self._rungs is not None:
            self._rungs.hear(words)
        if b"saving" in words and self._state.get("saves_since_s") is None:
            self._tell(saves_since_s=now_s())

    def _let_finish(self, output: int) -> None:
        """After a stop: a shell dies of the signal before what it runs has saved. The rest has the same grace."""
        while time.monotonic() < self._kill_at < float("inf") and self._processes.find():
            if select.select([output], [], [], 0.02)[0] and not self._keep(output):
                time.sleep(0.02)

    def _end_task(self) -> None:
        self._processes.end()

    def _obey(self) -> None:
        """Carry out a stop order, once: the task's signal now, the end of its session after the grace.

        A later order can only shorten the grace.
        """
        self._sessions.obey(self._pid, self._processes.start)
        if not self._cause and (why := self._sessions.idle_end()):
            self._cause, self._state["idle"] = "idle", why
            self._kill_at = min(self._kill_at, time.monotonic() + float(self._task["grace_s"]))
            self._processes.signal_group(signal.SIGHUP)
        if self._order is not None:
            with contextlib.suppress(FileNotFoundError):
                self._kill_at = min(self._kill_at, time.monotonic() + float(read("stop.json")["grace_s"]))
            return
        try:
            self._order = read("stop.json")
        except FileNotFoundError:
            if not stop_requests:
                self._rest_or_go_on()
                return
            self._order = {"signal": "SIGTERM", "grace_s": self._task["grace_s"]}
        if self._rest.is_swapped:  # it can't save: its GPUs may be another's
            self._end_task()
            return
        self._kill_at = time.monotonic() + float(self._order["grace_s"])
        self._processes.signal_group(getattr(signal, self._order["signal"]))
        self._rest.go_on()

    def _rest_or_go_on(self) -> None:
        """Suspend or resume the task as last ordered."""
        with contextlib.suppress(FileNotFoundError):
            order = read("rest.json")
            if order.get("gpus") not in (None, self._task.get("gpus")):  # it goes on elsewhere
                self._task["gpus"] = order["gpus"]
                self._watch = watch_gpus(self._task)
            if self._rest.obey(order) and order.get("name") not in (None, self._state.get("rest_order")):
                self._tell(rest_order=order["name"])
        self._await_copy()

    def _sample(self) -> dict[int, int]:
        if self._watch is not None:
            self._watch.look(self._pid)
        return {} if self._watch is None else self._watch.holders

    def _await_copy(self) -> None:
        if self._rest.copying >= 0:
            self._poller.register(self._rest.copying, select.POLLIN)

    def _copied(self) -> None:
        """The driver has moved GPU memory, or failed: a task that can't go on is ended with the reason."""
        self._poller.unregister(self._rest.copying)
        failure = self._rest.finish()
        if failure is not None:
            self._cause = "suspend"
        if failure is not None or self._order is not None or (self._rest.is_written and keep_image(self._state)):
            self._end_task()
        else:
            self._rest_or_go_on()

    def _keep(self, output: int) -> bool:
        """Copy output of the task; return False at its end."""
        try:
            received = os.read(output, CHUNK)
        except BlockingIOError:
            return True
        if received:
            self._output.write(received)
            if self._rungs is not None:
                self._rungs.read(received)
        return bool(received)

    def _drain(self, output: int) -> None:
        wait_s = HOST_DRAIN_S if self._task.get("interactive") else DRAIN_S
        deadline, poller = time.monotonic() + wait_s, select.poll()
        poller.register(output, select.POLLIN)
        while (left := deadline - time.monotonic()) > 0 and poller.poll(left * 1000):
            if not self._keep(output):
                break
        os.close(output)

    def _tell(self, **news: Any) -> None:
        """Write the state, then notify the manager; one that does not run will read it later."""
        self._state.update(news)
        if self._state["phase"] == "ended":
            write_when_possible("state.json", self._state)
        else:
            try:
                write("state.json", self._state)
            except FileNotFoundError:  # the folder was removed
                self._untold = False
            except OSError:  # the disk is full: orders and limits come first, and it is told when there is room
                self._untold = True
                return
        self._untold = False
        nudge(self._task["notify"], self._task["token"])


def _forget_order() -> None:
    """Remove the order once it is carried out: it holds the task's secrets."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink("task.json")
