"""The processes of a task: finding, measuring and signalling them.

A process id may be given to another process once its own has ended. So a process is always named by its id and its
start time, and every signal goes through a descriptor of the process, opened before the start time is compared.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.drivers.local.task_runner.files import Json

TRIES = 20
"""How often to look again: a process may fork while we look."""
END_S = 2.0
"""How long to wait for processes that were killed; one in uninterruptible sleep may take for ever."""
WHOLE_GROUP = 1 << 2
"""PIDFD_SIGNAL_PROCESS_GROUP, from Linux 6.9 on."""
_GROUP, _SESSION, _THREADS, _START = 2, 3, 17, 19
"""Where the fields are that follow the command in /proc/PID/stat."""


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


def hold_mounts(pid: int) -> None:
    """Keep a task's mounts until this process ends: the kernel needs tens of milliseconds to take them apart, which
    would delay the exit of the last process that has them, and so the start of the next task."""
    with contextlib.suppress(OSError):
        os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)


def members_of(task: Json) -> str | None:
    """The file that lists the processes in the task's cgroup."""
    return str(task["cgroup"]["enter"][0]) if task.get("cgroup") else None


def processes_of(task: Json, pid: int, start: int) -> TaskProcesses:
    """Return the processes of a task, by its order and its first process."""
    if task.get("container"):
        from rota.drivers.local.task_runner.containers.container_processes import ContainerProcesses

        return ContainerProcesses(task, pid, start)
    return TaskProcesses(pid, start, task["token"], members_of(task), is_sealed=is_sealed(task))


def is_sealed(task: Json) -> bool:
    """Whether no process of the task can leave its cgroup: it was put there by root and runs as another user."""
    return bool(task.get("cgroup") and task.get("uid"))


class TaskProcesses:
    """All processes of a task: those in its cgroup, those that carry its token, and those of its session.

    Where none can leave the cgroup (`is_sealed`), only that is read: to look at all processes of the machine for each
    of hundreds of tasks takes minutes.

    A session is the task's while its leader, or another process that is known to be the task's, is in it: until then
    its number can't be given to another session. Afterwards the number alone means nothing.
    """

    def __init__(
        self, pid: int, start: int, token: str, members: str | None = None, *, is_sealed: bool = False
    ) -> None:
        self.pid = pid
        self.start = start
        self._token = f"ROTA_TASK_TOKEN={token}".encode() if token else b""
        self._members = members
        self._is_sealed = is_sealed
        self._seen: set[tuple[int, int]] = set()
        self._killed: set[tuple[int, int]] = set()

    @property
    def ends_with_first(self) -> bool:
        """Whether none outlives the first one; where it does, the rest has the grace of a stop too."""
        return False

    def used_bytes(self) -> int:
        """Memory that those of the session have in use together."""
        return session_bytes(self.pid)

    def remember(self, left: list[list[int]]) -> None:
        """Take over processes that were in the session while its leader was known to be the task's."""
        self._seen.update((pid, start) for pid, start in left)

    def find(self, *, group: bool = False) -> list[tuple[int, int]]:
        """The processes that have not ended, as id and start time; `group`: only those of the task's own group."""
        inside = _inside(self._members)
        if self._is_sealed and inside is not None:
            return self._only(inside, group=group)
        inside = inside or set()
        sure: list[tuple[int, int]] = []
        maybe: list[tuple[int, int]] = []
        is_ours = False
        for each in _processes():
            stat = _stat(each)
            if stat is None or each == os.getpid():
                continue
            name = (each, int(stat[_START]))
            in_session = self.pid > 0 and stat[_SESSION] == str(self.pid)
            is_ours = is_ours or name == (self.pid, self.start) or (in_session and name in self._seen)
            if _is_over(stat) or (group and stat[_GROUP] != str(self.pid)):
                continue
            if each in inside or (self._token and self._token in _environment(each)):
                sure.append(name)
                is_ours = is_ours or in_session
            elif in_session:
                maybe.append(name)
        if is_ours:
            self._seen.update(maybe)
            return sorted(sure + maybe)
        return sorted(sure)

    def _only(self, inside: set[int], *, group: bool) -> list[tuple[int, int]]:
        """Those in the cgroup, and the task's first process, which may not have entered it yet."""
        leader = {self.pid} if self.start and start_time(self.pid) == self.start else set()
        found = [(each, stat) for each in inside | leader if (stat := _stat(each)) is not None]
        alive = [(each, stat) for each, stat in found if not _is_over(stat)]
        return sorted((each, int(stat[_START])) for each, stat in alive if not group or stat[_GROUP] == str(self.pid))

    def kill(self) -> bool:
        """Kill the processes that are found; return whether none is left, of those killed before either.

        One that exits has no environment any more, and is not found by its token, but still has its files and locks.
        """
        found = self.find()
        for each in found:
            send(*each, signal.SIGKILL)
        self._killed = {each for each in self._killed.union(found) if start_time(each[0]) == each[1]}
        return not found and not self._killed

    def end(self) -> None:
        """Kill every process of the task, and wait until none is left."""
        deadline = time.monotonic() + END_S
        while not self.kill() and time.monotonic() < deadline:
            time.sleep(0.005)

    def signal_group(self, number: int) -> None:
        """A signal to the task's own process group, which is nearly always all of it; at once where the kernel can."""
        if send(self.pid, self.start, number, WHOLE_GROUP):
            return
        sent: set[tuple[int, int]] = set()
        for _ in range(TRIES):
            found = set(self.find(group=True)) - sent
            for each in sorted(found, key=lambda each: (each[0] != self.pid, each)):
                send(*each, number)
            if not found:
                return
            sent |= found

    def hold(self) -> None:
        """Suspend every process of the task, including new ones and those that left its group."""
        for _ in range(TRIES):
            going = [each for each in self.find() if not _is_stopped(each[0])]
            for each in going:
                send(*each, signal.SIGSTOP)
            if not going:
                return

    def go_on(self) -> None:
        """Resume every process of the task."""
        for each in self.find():
            send(*each, signal.SIGCONT)


def send(pid: int, start: int, number: int, flags: int = 0) -> bool:
    """Signal a process, if the one of this id is still the one that started then; whether it was signalled."""
    return send_if(pid, lambda: started(pid) == start != 0, number, flags)


def send_if(pid: int, is_meant: Callable[[], bool], number: int, flags: int = 0) -> bool:
    """Signal the process that has an id now, if it is the one that is meant; whether it was signalled."""
    try:
        process = os.pidfd_open(pid)
    except (OSError, ValueError):
        return False
    try:
        if not is_meant():  # looked at after the descriptor was opened: whatever ends now, no other is signalled
            return False
        signal.pidfd_send_signal(process, number, None, flags)
    except OSError:  # it has ended, is another user's, or the kernel does not know the flag
        return False
    finally:
        os.close(process)
    return True


def in_session(session: int) -> list[list[int]]:
    """The processes of a session that have not ended, as id and start time."""
    found = []
    for each in _processes():
        stat = _stat(each)
        if stat is not None and not _is_over(stat) and stat[_SESSION] == str(session):
            found.append([each, int(stat[_START])])
    return found


def _is_stopped(pid: int) -> bool:
    states = [stat[0] for thread in _threads(pid) if (stat := _stat(pid, thread)) is not None]
    return all(state in ("T", "t", "Z", "X") for state in states)


def _is_over(stat: list[str]) -> bool:
    """Whether a process has released all it had: one whose first thread left goes on with the others."""
    return stat[0] in ("Z", "X") and int(stat[_THREADS]) <= 1


def _inside(members: str | None) -> set[int] | None:
    """The processes in a cgroup that have not ended; None if there is no such cgroup."""
    if members is None:
        return None
    try:
        with open(members, encoding="ascii") as file:
            return {pid for line in file if start_time(pid := int(line))}
    except OSError:
        return None


def belongs(process: int, session: int, token: str) -> bool:
    """Whether a process that has not ended is of a task's session, or carries its token; for measuring only."""
    stat = _stat(process)
    if stat is None or _is_over(stat) or process == os.getpid():
        return False
    return stat[_SESSION] == str(session) or f"ROTA_TASK_TOKEN={token}".encode() in _environment(process)


def carries(process: int, mark: bytes) -> bool:
    """Whether a process has a variable in its environment, written as `NAME=VALUE`."""
    return mark in _environment(process)


def memory_bytes_of(process: int) -> int:
    """Memory that a process has in use; 0 if it has ended."""
    stat = _stat(process)
    return 0 if stat is None else int(stat[21]) * os.sysconf("SC_PAGE_SIZE")


def _environment(process: int) -> list[bytes]:
    """The environment of a process; read from another thread where its first one has left."""
    found = _read(f"/proc/{process}/environ")
    stat = None if found else _stat(process)
    if stat is not None and stat[0] == "Z" and not _is_over(stat):
        others = (_read(f"/proc/{process}/task/{thread}/environ") for thread in _threads(process)[:TRIES])
        found = next(filter(None, others), b"")
    return found.split(b"\0")


def _read(path: str) -> bytes:
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return file.read()
    return b""


def _threads(process: int) -> list[int]:
    try:
        return sorted(map(int, os.listdir(f"/proc/{process}/task")))
    except OSError:
        return []


def session_bytes(session: int) -> int:
    """Memory that the processes of a session have in use together."""
    pages = 0
    for process in _processes():
        stat = _stat(process)
        if stat is not None and stat[_SESSION] == str(session):
            pages += int(stat[21])
    return pages * os.sysconf("SC_PAGE_SIZE")


def start_time(pid: int) -> int:
    """When a process started, in the kernel's ticks: with the id it names one process of a boot. 0: it has ended."""
    stat = _stat(pid)
    return 0 if stat is None or _is_over(stat) else int(stat[_START])


def started(pid: int) -> int:
    """When a process started, even if it has ended and is not reaped yet; 0: there is none."""
    stat = _stat(pid)
    return 0 if stat is None else int(stat[_START])


def boot() -> str:
    """The kernel's id of this boot: ids and start times of an earlier one mean nothing. Empty where it has none."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _stat(pid: int, thread: int = 0) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on, or of one of its threads; None if there is no such process."""
    try:
        with open(
            f"/proc/{pid}/task/{thread}/stat" if thread else f"/proc/{pid}/stat", encoding="utf-8", errors="replace"
        ) as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]
