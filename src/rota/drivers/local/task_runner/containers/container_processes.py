"""The processes of a task in a container: how they are found, signalled and counted, and what removes the container."""

from __future__ import annotations

import contextlib
import os
import signal

from rota.drivers.local.task_runner.processes import (
    TaskProcesses,
    carries,
    is_sealed,
    members_of,
    memory_bytes_of,
    send_if,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.drivers.local.task_runner.files import Json

NOT_STARTED = 125
"""The exit code of Podman and Docker that could not start a container."""
NOT_INVOKED = (126, 127)
"""Those of Podman whose runtime could not, which commands of containers have too."""
FATAL = 255
"""That of Apptainer."""
REMOVE_S = 60.0
CALL_S = 20.0


class ContainerProcesses(TaskProcesses):
    """The processes of a task in a container: its own, and those of the runtime."""

    def __init__(self, task: Json, pid: int, start: int) -> None:
        self._container = task["container"]
        sealed = is_sealed(task) and not self._container.get("kill")  # a daemon's are not in the task's cgroup
        super().__init__(pid, start, task["token"], members_of(task), is_sealed=sealed)

    @property
    def ends_with_first(self) -> bool:
        """Whether the kernel has ended all processes of the container with its first one."""
        return not self._container.get("as_user")

    def signal_group(self, number: int) -> None:
        """A signal to the first process of the container, which hands it on; the runtime's before there is one."""
        if self._container.get("kill"):
            name = signal.Signals(number).name
            if self._call([*self._container["kill"], f"--signal={name}", self._container["name"]], CALL_S):
                return
        elif (first := self._first()) and send_if(first, lambda: carries(first, self._token), number):
            return
        super().signal_group(number)

    def end(self) -> None:
        """Kill every process, and remove a container that a daemon keeps."""
        super().end()
        if self._container.get("remove"):
            self._call(self._container["remove"], REMOVE_S)

    def used_bytes(self) -> int:
        """Memory that its processes have in use together."""
        return sum(memory_bytes_of(pid) for pid, _ in self.find())

    def _first(self) -> int:
        path = self._container.get("pidfile")
        with contextlib.suppress(OSError, ValueError):
            if path:
                with open(path, encoding="ascii") as file:
                    return int(file.read())
        return 0

    def _call(self, words: list[str], most_s: float) -> bool:
        import subprocess

        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            env = self._container["env"]
            done = subprocess.run(
                words, env=env, timeout=most_s, capture_output=True, stdin=subprocess.DEVNULL, cwd="/", check=False
            )
            return done.returncode == 0
        return False


def was_not_started(task: Json, ended: Json) -> bool:
    """Whether the container could not be started, so that its end is the runtime's."""
    container = task.get("container")
    if not container or ended.get("exit_code") not in (NOT_STARTED, FATAL, *NOT_INVOKED):
        return False
    pidfile = container.get("pidfile")
    if pidfile is None:
        return ended["exit_code"] not in NOT_INVOKED
    return not os.path.exists(pidfile)


def usage(task: Json) -> Json:
    """What the cgroup of the task has counted, as the runtime's own use says nothing; empty where nothing was."""
    kills = (task.get("cgroup") or {}).get("kills")
    found: Json = {}
    if kills is None:
        return found
    folder = os.path.dirname(kills)
    for name in ("memory.peak", "memory.max_usage_in_bytes"):
        with contextlib.suppress(OSError, ValueError), open(f"{folder}/{name}", encoding="ascii") as file:
            found["memory_bytes"] = int(file.read())
    with contextlib.suppress(OSError, ValueError), open(f"{folder}/cpu.stat", encoding="ascii") as file:
        stats = dict(line.split() for line in file)
        if "usage_usec" in stats:
            found["cpu_s"] = int(stats["usage_usec"]) / 1e6
    return found
