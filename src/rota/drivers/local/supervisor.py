"""Runs one task and outlives the server: starts it exactly once, keeps its output, records how it ended.

A program of its own, started as `python -I -S supervisor.py FOLDER`; it imports nothing of Rota, so that it is
up in milliseconds and small. Two processes share the work, so that the death of one never loses an exit status:
the *supervisor* keeps the output, obeys orders and enforces limits; the *recorder*, its child and the task's
parent, only waits for the task and writes its exit status down. If the supervisor dies, the recorder ends the task.

Files in FOLDER, each written whole and then renamed: `task.json` (what to run), `claim` (who runs it: made once),
`state.json` (how far it is), `exit.json` (the recorder's word), `stop.json` (an order), `output-OFFSET.log`.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from typing import Any

Json = dict[str, Any]
CHUNK = 65536
MEMORY_EVERY_S = 0.5
DRAIN_S = 0.5
NOT_FOUND = 127


def main(folder: str) -> int:
    """Run the task of a folder to its end."""
    os.chdir(folder)
    try:
        task = _read("task.json")
    except FileNotFoundError:
        return 0
    wake = _catch_signals()
    if not _claim():
        return 0
    supervisor = Supervisor(task, wake)
    if supervisor.may_start():
        supervisor.run()
    return 0


class Supervisor:
    """One task's keeper."""

    def __init__(self, task: Json, wake: int) -> None:
        self._task = task
        self._wake = wake
        self._output = Output(int(task["log_bytes"]), int(task["log_files"]))
        self._state: Json = {"supervisor": os.getpid(), "supervisor_start": start_time(os.getpid())}
        self._pid = 0
        self._order: Json | None = None
        self._kill_at = float("inf")
        self._cause = ""
        self._poller = select.poll()
        self._poller.register(wake, select.POLLIN)

    def may_start(self) -> bool:
        """Wait for the others of the gang; False if the job is called off first."""
        if self._task["barrier"]:
            self._tell(phase="ready")
        deadline = time.monotonic() + float(self._task["barrier_s"])
        while not os.path.exists("stop.json"):
            if not self._task["barrier"] or os.path.exists("../go"):
                return True
            if time.monotonic() > deadline:
                break
            self._nap(0.2)
        self._tell(phase="ended", ran=False, ended_s=time.time())
        return False

    def run(self) -> None:
        """Start the task, look after it, and say how it ended."""
        self._tell(phase="launching")
        output, told, recorder, alive = self._launch()
        with contextlib.suppress(ValueError):
            self._pid = int(os.read(told, 32) or b"0")
        os.close(told)
        self._tell(
            phase="running",
            pid=self._pid,
            pid_start=start_time(self._pid),
            recorder=recorder,
            recorder_start=start_time(recorder),
            started_s=time.time(),
        )
        self._look_after(output, recorder)
        self._end_task()
        self._drain(output)
        os.close(alive)
        self._record_end()

    def _record_end(self) -> None:
        try:
            ended = _read("exit.json")
        except FileNotFoundError:
            ended = {"exit_code": None, "signal": int(signal.SIGKILL), "ended_s": time.time(), "lost": True}
        if ended.get("exit_code") != 0 and kills_for_memory(self._task):
            self._cause = "memory"
        self._output.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink("task.json")
        self._tell(phase="ended", ran=True, stopped=self._order is not None, cause=self._cause, **ended)

    def _launch(self) -> tuple[int, int, int, int]:
        """Fork the recorder, which forks the task; the output's end, the task's id, the recorder, our sign of life."""
        output, task_output = os.pipe()
        told, tell = os.pipe()
        life, alive = os.pipe()
        recorder = os.fork()
        if recorder == 0:
            for end in (output, told, alive, self._wake):
                os.close(end)
            code = 1
            try:
                record(self._task, task_output, tell, life)
                code = 0
            finally:
                os._exit(code)
        for end in (task_output, tell, life):
            os.close(end)
        return output, told, recorder, alive

    def _look_after(self, output: int, recorder: int) -> None:
        """Until the recorder is done: keep the output, obey orders, enforce the limits."""
        os.set_blocking(output, False)
        finished = os.pidfd_open(recorder)
        self._poller.register(output, select.POLLIN)
        self._poller.register(finished, select.POLLIN)
        limit = 0 if self._task.get("cgroup") else int(self._task.get("memory_bytes") or 0)
        self._obey()
        while True:
            now = time.monotonic()
            wait_s = min(self._kill_at - now, MEMORY_EVERY_S if limit else 60.0)
            ready = {fd for fd, _ in self._poller.poll(max(wait_s, 0.0) * 1000)}
            if output in ready and not self._keep(output):
                self._poller.unregister(output)
            if self._wake in ready:
                os.read(self._wake, CHUNK)
                self._obey()
            if time.monotonic() >= self._kill_at:
                self._kill_at = float("inf")
                self._end_task()
            if limit and self._kill_at == float("inf") and session_bytes(self._pid) > limit:
                self._cause, limit = "memory", 0
                self._end_task()
            if finished in ready:
                os.waitpid(recorder, 0)
                os.close(finished)
                return

    def _end_task(self) -> None:
        end_session(self._pid, self._task["token"], _members(self._task))

    def _obey(self) -> None:
        """Carry out a stop order, once: the task's signal now, the end of its session after the grace."""
        if self._order is not None:
            return
        try:
            self._order = _read("stop.json")
        except FileNotFoundError:
            if not _ordered:
                return
            self._order = {"signal": "SIGTERM", "grace_s": self._task["grace_s"]}
        self._kill_at = time.monotonic() + float(self._order["grace_s"])
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, getattr(signal, self._order["signal"]))

    def _keep(self, output: int) -> bool:
        """Write down what the task said; False at the end of it."""
        try:
            said = os.read(output, CHUNK)
        except BlockingIOError:
            return True
        if said:
            self._output.write(said)
        return bool(said)

    def _drain(self, output: int) -> None:
        deadline, poller = time.monotonic() + DRAIN_S, select.poll()
        poller.register(output, select.POLLIN)
        while (left := deadline - time.monotonic()) > 0 and poller.poll(left * 1000):
            if not self._keep(output):
                break
        os.close(output)

    def _nap(self, seconds: float) -> None:
        if self._poller.poll(seconds * 1000):
            os.read(self._wake, CHUNK)

    def _tell(self, **news: Any) -> None:
        """Write the state down, then nudge the server; if it is away, it will read the state later."""
        self._state.update(news)
        _write_when_possible("state.json", self._state)
        folder = os.open(self._task["notify_folder"], os.O_PATH | os.O_DIRECTORY)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as nudge:
                nudge.settimeout(0.5)
                nudge.sendto(self._task["token"].encode(), f"/proc/self/fd/{folder}/notify")
        except OSError:
            pass
        finally:
            os.close(folder)


class Output:
    """What a task says, in files named by where they begin; the oldest go when there are too many.

    When the disk is full the task goes on: what can't be kept is counted, and said when there is room again.
    """

    def __init__(self, most_bytes: int, most_files: int) -> None:
        self._most_bytes = most_bytes
        self._most_files = most_files
        self._at = 0
        self._begun = 0
        self._lost = 0
        self._file = -1

    def write(self, said: bytes) -> None:
        """Append."""
        try:
            if self._file < 0 or self._at - self._begun >= self._most_bytes:
                self._turn()
            if self._lost:
                said = b"\n[%d bytes were lost: the disk was full]\n" % self._lost + said
            kept = os.write(self._file, said)
        except OSError:
            self._lost += len(said)
            return
        self._lost = 0
        self._at += kept
        if kept < len(said):
            self.write(said[kept:])

    def close(self) -> None:
        """No more will come."""
        if self._file >= 0:
            os.close(self._file)

    def _turn(self) -> None:
        self.close()
        self._begun = self._at
        self._file = os.open(f"output-{self._at:015d}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        kept = sorted(name for name in os.listdir(".") if name.startswith("output-"))
        for name in kept[: -self._most_files]:
            os.unlink(name)


def record(task: Json, output: int, tell: int, life: int) -> None:
    """The recorder: start the task, wait for it, write down how it ended. Ends it if the supervisor is gone."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    signal.set_wakeup_fd(-1)
    pid = os.fork()
    if pid == 0:
        os.close(tell)
        os.close(life)
        _become(task, output)
    os.close(output)
    with contextlib.suppress(BrokenPipeError):
        os.write(tell, str(pid).encode())
    os.close(tell)
    finished = os.pidfd_open(pid)
    poller = select.poll()
    poller.register(finished, select.POLLIN)
    poller.register(life, select.POLLIN)
    if finished not in {fd for fd, _ in poller.poll()}:
        end_session(pid, task["token"], _members(task))
    _, status, used = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    ended = {
        "exit_code": code if code >= 0 else None,
        "signal": -code if code < 0 else None,
        "ended_s": time.time(),
        "cpu_s": used.ru_utime + used.ru_stime,
        "memory_bytes": used.ru_maxrss * 1024,
    }
    _write_when_possible("exit.json", ended)


def _become(task: Json, output: int) -> None:
    """In the new process: turn into the task. Does not return."""
    try:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        os.closerange(3, 256)
        _confine(task)
        os.chdir(task["workdir"])
        os.execvpe(task["argv"][0], task["argv"], task["env"])
    except OSError as error:
        os.write(2, f"rota: can't run {task['argv'][0]!r} in {task['workdir']}: {error.strerror}\n".encode())
    except BaseException as error:
        os.write(2, f"rota: can't run the task: {error!r}\n".encode())
    finally:
        os._exit(NOT_FOUND)


def _confine(task: Json) -> None:
    """The cgroup and the CPUs, then the user: what root may set comes first."""
    for path in (task.get("cgroup") or {}).get("enter", ()):
        with open(path, "w", encoding="ascii") as members:
            members.write("0")
    if task.get("cpus"):
        os.sched_setaffinity(0, task["cpus"])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    if task.get("uid") is not None:
        os.setgroups(task["groups"])
        os.setgid(task["gid"])
        os.setuid(task["uid"])


def kills_for_memory(task: Json) -> bool:
    """Whether the kernel killed a process of the task because its cgroup had no memory left."""
    cgroup = task.get("cgroup")
    if not cgroup:
        return False
    try:
        with open(cgroup["kills"], encoding="ascii") as file:
            return any(line.startswith("oom_kill ") and int(line.split()[1]) > 0 for line in file)
    except OSError:
        return False


def _members(task: Json) -> str | None:
    """The file that lists the processes in the task's cgroup."""
    return str(task["cgroup"]["enter"][0]) if task.get("cgroup") else None


def end_session(pid: int, token: str, members: str | None = None) -> None:
    """Kill every process of the task's session and cgroup, and any other that still carries its token."""
    if not pid:
        return
    mark = f"ROTA_TASK_TOKEN={token}".encode()
    for _ in range(20):  # a process may fork while we look; look until none is found
        inside = _inside(members)
        found = [each for each in _processes() if each in inside or _belongs(each, pid, mark)]
        for each in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(each, signal.SIGKILL)
        if not found:
            return
        time.sleep(0.005)


def _inside(members: str | None) -> set[int]:
    """The processes in a cgroup that have not ended."""
    if members is None:
        return set()
    try:
        with open(members, encoding="ascii") as file:
            return {pid for line in file if start_time(pid := int(line))}
    except OSError:
        return set()


def _belongs(process: int, session: int, mark: bytes) -> bool:
    stat = _stat(process)
    if stat is None or stat[0] in ("Z", "X") or process == os.getpid():
        return False
    if stat[3] == str(session):
        return True
    try:
        with open(f"/proc/{process}/environ", "rb") as file:
            return mark in file.read().split(b"\0")
    except OSError:
        return False


def session_bytes(session: int) -> int:
    """Memory that the processes of a session have in use together."""
    pages = 0
    for process in _processes():
        stat = _stat(process)
        if stat is not None and stat[3] == str(session):
            pages += int(stat[21])
    return pages * os.sysconf("SC_PAGE_SIZE")


def start_time(pid: int) -> int:
    """When a process started, in the kernel's ticks: with the id it names one process for ever. 0: it is gone."""
    stat = _stat(pid)
    return 0 if stat is None or stat[0] in ("Z", "X") else int(stat[19])


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


_ordered: list[int] = []


def _catch_signals() -> int:
    """Signals become readable bytes; SIGTERM is remembered as an order to stop."""
    wake, woken = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda number, frame: _ordered.append(number))
    signal.signal(signal.SIGUSR1, lambda number, frame: None)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return wake


def _claim() -> bool:
    """Whether this process, of all that may try, is the one that runs the task."""
    mine = f"claim.{os.getpid()}"
    _write(mine, {"supervisor": os.getpid(), "supervisor_start": start_time(os.getpid())})
    try:
        os.link(mine, "claim")
    except FileExistsError:
        return False
    finally:
        os.unlink(mine)
    return True


def _read(name: str) -> Json:
    with open(name, encoding="utf-8") as file:
        value: Json = json.load(file)
        return value


def _write_when_possible(name: str, value: Json) -> None:
    """Write what must not get lost: while the disk is full, wait for room."""
    while True:
        try:
            return _write(name, value)
        except OSError:
            time.sleep(0.2)


def _write(name: str, value: Json) -> None:
    draft = f".{name}.{os.getpid()}"
    with open(draft, "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        json.dump(value, file)
        file.flush()
        if value.get("ended_s"):
            os.fsync(file.fileno())
    os.replace(draft, name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
