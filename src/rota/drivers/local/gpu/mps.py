"""NVIDIA's Multi-Process Service: a control daemon for each GPU and user, through which packed jobs share a GPU.

One daemon for each GPU, since a fault of a client ends all clients of a server, and a server of two GPUs refuses new
clients on both afterwards. A daemon outlives the manager, as its clients do; the next manager finds it by its pipe
folder. What a client may take is set by variables when it starts: memory, and the part of the GPU's threads.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rota.core.model.job import WHOLE
from rota.drivers.local.confinement.accounts import UnixAccount
from rota.drivers.local.task_runner.processes import start_time

log = logging.getLogger("rota.drivers.local")
PROGRAM = "nvidia-cuda-mps-control"
PID_FILE = "nvidia-cuda-mps-control.pid"
START_S = 10.0
IDLE_S = 60.0
"""How long a daemon without clients is kept: its server holds memory and power of the GPU."""
MIB = 2**20


@dataclass(frozen=True, slots=True)
class MpsKey:
    """Which daemon: a GPU by index, and the user whose processes are its clients."""

    gpu: int
    uid: int


@dataclass(slots=True)
class _Daemon:
    """A daemon that should run."""

    folder: Path
    gid: int
    pid: int = 0
    pid_start: int = 0
    restarts: int = 0
    unused_since_s: float | None = None


@dataclass(slots=True)
class MpsDaemons:
    """All daemons of this manager."""

    home: Path
    uuids: Sequence[str]
    """Of the GPUs by index."""
    program: str = PROGRAM
    _daemons: dict[MpsKey, _Daemon] = field(default_factory=dict)

    @property
    def is_there(self) -> bool:
        """Whether the program is installed."""
        return shutil.which(self.program) is not None

    def variables(self, gpu: int, account: UnixAccount | None, milli: int, memory_bytes: int) -> dict[str, str]:
        """Return the variables of a client that may use so much of a GPU; its daemon runs then.

        Raise an `OSError` if it can't be started.
        """
        key = MpsKey(gpu, os.geteuid() if account is None else account.uid)
        daemon = self._daemon(key, os.getegid() if account is None else account.gid)
        if not self._runs(daemon):
            self._start(key, daemon)
        daemon.unused_since_s = None
        found = {
            "CUDA_VISIBLE_DEVICES": self.uuids[gpu],
            "CUDA_MPS_PIPE_DIRECTORY": str(daemon.folder / "pipe"),
            "CUDA_MPS_LOG_DIRECTORY": str(daemon.folder / "log"),
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": f"{min(milli, WHOLE) / 10:g}",
        }
        if memory_bytes:
            found["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={memory_bytes // MIB}M"
        return found

    def watch(self, in_use: Collection[int], now_s: float) -> list[MpsKey]:
        """Start the dead daemons of GPUs that packed jobs use again, and end those of other GPUs; return the former."""
        self._find_all()
        restarted = []
        for key, daemon in list(self._daemons.items()):
            if key.gpu in in_use:
                daemon.unused_since_s = None
                if not self._runs(daemon):
                    restarted.append(key)
                    self._restart(key, daemon)
                continue
            if daemon.unused_since_s is None:
                daemon.unused_since_s = now_s
            elif now_s - daemon.unused_since_s >= IDLE_S:
                try:
                    self.end(key)
                except OSError as error:  # tried again at the next look
                    log.warning("mps can't be ended", extra={"gpu": key.gpu, "uid": key.uid, "why": error.strerror})
        return restarted

    def end(self, key: MpsKey) -> None:
        """End a daemon and its server."""
        daemon = self._daemons[key]
        if self._runs(daemon):
            self._run([self.program], self._environment(key, daemon), key, daemon, "quit\n")
        del self._daemons[key]
        shutil.rmtree(daemon.folder, ignore_errors=True)

    def _daemon(self, key: MpsKey, gid: int) -> _Daemon:
        daemon = self._daemons.get(key)
        if daemon is None:
            daemon = self._daemons[key] = _Daemon(self.home / "mps" / f"{key.gpu}-{key.uid}", gid)
            self._find(daemon)
        return daemon

    def _find_all(self) -> None:
        """Find the daemons of an earlier manager, by their folders."""
        for folder in (self.home / "mps").glob("*-*"):
            gpu, _, uid = folder.name.partition("-")
            if gpu.isdecimal() and uid.isdecimal() and int(gpu) < len(self.uuids):
                self._daemon(MpsKey(int(gpu), int(uid)), folder.stat().st_gid)

    def _find(self, daemon: _Daemon) -> None:
        """Find a daemon that runs in the folder, as after a restart of the manager."""
        try:
            pid = int((daemon.folder / "pipe" / PID_FILE).read_text())
        except (OSError, ValueError):
            return
        if self.program.rpartition("/")[2].encode() in _command(pid):
            daemon.pid, daemon.pid_start = pid, start_time(pid)

    def _runs(self, daemon: _Daemon) -> bool:
        return daemon.pid > 0 and start_time(daemon.pid) == daemon.pid_start != 0

    def _restart(self, key: MpsKey, daemon: _Daemon) -> None:
        daemon.restarts += 1
        log.warning("mps-restarted", extra={"gpu": key.gpu, "uid": key.uid, "times": daemon.restarts})
        try:
            self._start(key, daemon)
        except OSError as error:
            log.warning("mps can't be started", extra={"gpu": key.gpu, "uid": key.uid, "why": error.strerror})

    def _start(self, key: MpsKey, daemon: _Daemon) -> None:
        (self.home / "mps").mkdir(mode=0o711, exist_ok=True)
        (self.home / "mps").chmod(0o711)
        for path in (daemon.folder, daemon.folder / "pipe", daemon.folder / "log"):
            path.mkdir(mode=0o700, exist_ok=True)
            if key.uid != os.geteuid():
                os.chown(path, key.uid, daemon.gid)
        self._run([self.program, "-d"], self._environment(key, daemon), key, daemon)
        deadline = time.monotonic() + START_S
        while True:
            self._find(daemon)
            if self._runs(daemon):
                return
            if time.monotonic() > deadline:
                raise OSError(errno.EIO, f"the MPS daemon of GPU {key.gpu} did not start; see {daemon.folder / 'log'}")
            time.sleep(0.02)

    def _environment(self, key: MpsKey, daemon: _Daemon) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "CUDA_VISIBLE_DEVICES": self.uuids[key.gpu],
            "CUDA_MPS_PIPE_DIRECTORY": str(daemon.folder / "pipe"),
            "CUDA_MPS_LOG_DIRECTORY": str(daemon.folder / "log"),
        }

    def _run(
        self, command: Sequence[str], env: Mapping[str, str], key: MpsKey, daemon: _Daemon, orders: str = ""
    ) -> None:
        is_own = key.uid == os.geteuid()
        try:
            subprocess.run(
                command,
                env=env,
                input=orders.encode(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=START_S,
                start_new_session=True,
                check=False,
                user=None if is_own else key.uid,
                group=None if is_own else daemon.gid,
                extra_groups=None if is_own else [],
            )
        except subprocess.TimeoutExpired:
            raise OSError(errno.EIO, f"{self.program} did not answer within {START_S:g} s") from None


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
