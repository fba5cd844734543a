"""What a new process gives up before it becomes a task: the machine's /tmp and process list, privileges, system calls.

Only the parts that its order names are done. Each part either works or raises, so that no task runs with less than was
ordered. Imported only where tasks are confined: `ctypes` takes a third of a supervisor's start.
"""

from __future__ import annotations

import ctypes
import errno
import os

from rota.drivers.local.task_runner import seccomp
from rota.drivers.local.task_runner.processes import started

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.drivers.local.task_runner.files import Json

CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_SLAVE = 4096, 16384, 1 << 19
PR_SET_NO_NEW_PRIVS = 38
_KEYCTL = {"x86_64": 250, "aarch64": 219}
_JOIN_SESSION_KEYRING = 1
_libc = ctypes.CDLL(None, use_errno=True)


def leave_the_machine(order: Json) -> None:
    """Before the change of user: leave the manager's keyring, and cover /tmp, /dev/shm and /proc."""
    _leave_keyring()
    private_mounts(order)


def join_task(pid: int, start: int) -> None:
    """Before the change of user: leave the manager's keyring, and enter the mounts and objects of a running task."""
    _leave_keyring()
    spaces = [os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in ("ipc", "mnt")]
    if started(pid) != start:  # looked at after they were opened: whatever ends now, no other's are joined
        raise ProcessLookupError(errno.ESRCH, "the task has ended")
    for space in spaces:
        _call("setns", ctypes.c_int(space), ctypes.c_int(0))
        os.close(space)


def give_up_privileges(order: Json) -> None:
    """After the change of user: gain no privileges any more, and refuse some system calls if ordered."""
    no_new_privileges()
    if order.get("seccomp"):
        seccomp.refuse_system_calls()


def private_mounts(order: Json) -> None:
    """Leave the machine's mounts and System V objects, and cover some mounts by folders of the task's own.

    `binds` are pairs of a folder and the path that it covers. `kept` are folders that stay where they are though what
    is above them was covered; their mount points exist in the folder that covers it. `data` are folders with the place
    where the task finds each, and whether it is read-only there.
    """
    _call("unshare", ctypes.c_int(CLONE_NEWNS | CLONE_NEWIPC))
    _mount(None, "/", None, MS_REC | MS_SLAVE)
    for source, place, read_only in order.get("data", ()):  # before what is above their sources is covered
        folder = os.open(source, os.O_PATH | os.O_DIRECTORY)
        _mount(f"/proc/self/fd/{folder}", place, None, MS_BIND)
        os.close(folder)
        flags = MS_BIND | MS_REMOUNT | MS_NOSUID | MS_NODEV | (MS_RDONLY if read_only else 0)
        _mount(None, place, None, flags)
    kept = [(path, os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY)) for path in order.get("kept", ())]
    binds = [(os.open(source, os.O_PATH | os.O_DIRECTORY), target) for source, target in order.get("binds", ())]
    for folder, target in binds:  # opened before: a source may lie below what another one covers
        _mount(f"/proc/self/fd/{folder}", target, None, MS_BIND)
        os.close(folder)
        _mount(None, target, None, MS_BIND | MS_REMOUNT | MS_NOSUID | MS_NODEV)
    for path, folder in kept:
        _mount(f"/proc/self/fd/{folder}", path, None, MS_BIND | MS_REC)
        os.close(folder)
    if order.get("proc"):
        _mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "hidepid=2")


def bind_opened(opened: int, place: str) -> None:
    """Mount an opened folder or file elsewhere, with all that is mounted in it, in this process's own mounts."""
    _mount(f"/proc/self/fd/{opened}", place, None, MS_BIND | MS_REC)


def no_new_privileges() -> None:
    """Let no program that this process starts gain privileges, whatever bits its file has."""
    one, zero = ctypes.c_ulong(1), ctypes.c_ulong(0)
    _call("prctl", ctypes.c_int(PR_SET_NO_NEW_PRIVS), one, zero, zero, zero)


def _leave_keyring() -> None:
    """Begin an empty session keyring; the manager's keys are not the task's."""
    number = _KEYCTL.get(os.uname().machine)
    if number is not None:
        _libc.syscall(ctypes.c_long(number), ctypes.c_int(_JOIN_SESSION_KEYRING), None)


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind, data)]
    try:
        _call("mount", words[0], words[1], words[2], ctypes.c_ulong(flags), words[3])
    except OSError as error:
        raise OSError(error.errno, f"{target} can't be made private: {error.strerror}") from None


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
