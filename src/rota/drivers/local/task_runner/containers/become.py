"""How the process of a task becomes the runtime that runs it in a container.

The runtime never gets a variable of the job as its own, nor a path that it would have to look up with more rights than
the job's user has.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.drivers.local.task_runner.files import Json


def is_private(task: Json) -> bool:
    """Whether the runtime gets mounts of its own: it is root's, and hands over folders that the user opened."""
    return bool((task.get("container") or {}).get("binds"))


def keeps_rights(task: Json) -> bool:
    """Whether the process stays the manager's: the runtime runs as that, and its container as the job's user."""
    container = task.get("container")
    return container is not None and not container.get("as_user")


def as_user(task: Json, work: Callable[[], None]) -> None:
    """Do something in a process of the job's user, and wait for it; raises `OSError` if it fails."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if task.get("uid") is not None:
                os.setgroups(task["groups"])
                os.setgid(task["gid"])
                os.setuid(task["uid"])
            if task.get("umask") is not None:
                os.umask(task["umask"])
            work()
            code = 0
        except OSError as error:
            os.write(2, f"rota: {error.strerror or error}\n".encode())
        finally:
            os._exit(code)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0:
        raise OSError(errno.EIO, "the code could not be unpacked")


def become_runtime(task: Json, *, beside: bool) -> None:
    """Turn into the runtime that runs the task, or a command in its container. Returns only by raising `OSError`."""
    container = task["container"]
    if container.get("fault"):
        raise OSError(errno.EINVAL, container["fault"])
    variables = task["env"]
    prefix = container["env_by_prefix"]
    env = {**container["env"], "ROTA_TASK_TOKEN": variables["ROTA_TASK_TOKEN"]}
    if prefix:
        env |= {prefix + name: value for name, value in variables.items()}
        given: list[str] = []
    else:
        given = ["--env-file", _env_file(variables)]
    os.chdir("/")
    if beside and not prefix:
        tty = ["--tty"] if os.isatty(0) else []
        argv = [*container["enter"], "--interactive", *tty, *given, "--workdir", task["workdir"], container["name"]]
    else:
        flag = "--bind" if prefix else "--volume"
        volumes = [word for text in _volumes(task) for word in (flag, text)]
        argv = [*container["enter" if beside else "run"], *given, *volumes, "--", container["image"]]
    os.execve(argv[0], [*argv, *task["argv"]], env)


def _env_file(variables: dict[str, str]) -> str:
    """Return a file in memory with the job's variables: they are on no command line, nor on a disk."""
    for name, value in variables.items():
        if "\n" in value:
            raise OSError(errno.EINVAL, f"{name} has a line break, which a container can't be given")
    file = os.memfd_create("variables", 0)
    os.write(file, "".join(f"{name}={value}\n" for name, value in variables.items()).encode())
    os.lseek(file, 0, os.SEEK_SET)
    os.set_inheritable(file, True)
    return f"/proc/self/fd/{file}"


def _volumes(task: Json) -> list[str]:
    """Return the volumes as the runtime's options have them."""
    container = task["container"]
    found = []
    for number, (source, target, read_only, whose) in enumerate(container["mounts"]):
        try:
            folder = _open(task, source, whose)
        except OSError as error:
            if whose == "user-if-there":
                continue
            raise OSError(errno.EINVAL, f"{source} can't be mounted: {error.strerror}") from None
        try:
            _refuse_others(folder, source, whose, container.get("allowed"))
            is_read_only = read_only or bool(os.fstatvfs(folder).f_flag & os.ST_RDONLY)
            place = _bind(folder, f"{container['folder']}/volume-{number}") if container["binds"] else source
        finally:
            os.close(folder)
        found.append(f"{place}:{target}:{'ro' if is_read_only else 'rw'}")
    return found


def _open(task: Json, source: str, whose: str) -> int:
    """Open a folder or file by name only, with the rights of the job's user where these count."""
    flags = os.O_PATH | os.O_CLOEXEC
    if whose == "manager" or task.get("uid") is None or os.geteuid() != 0:
        return os.open(source, flags)
    groups, group = os.getgroups(), os.getegid()
    try:
        os.setgroups(task["groups"])
        os.setegid(task["gid"])
        os.seteuid(task["uid"])
        return os.open(source, flags)
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)


def _refuse_others(folder: int, source: str, whose: str, allowed: list[str] | None) -> None:
    """Raise `OSError` for what lies elsewhere than it seems to: a link in a folder that may be mounted."""
    if whose != "user" or allowed is None:
        return
    true = os.readlink(f"/proc/self/fd/{folder}")
    for each in map(os.path.realpath, allowed):
        if os.path.commonpath([true, each]) == each:
            return
    raise OSError(errno.EACCES, f"{source} leads to {true}, which may not be mounted here")


def _bind(folder: int, place: str) -> str:
    """Put what was opened at a place of the manager's, in the mounts of this process only."""
    from rota.drivers.local.task_runner.confine import bind_opened

    if stat.S_ISDIR(os.fstat(folder).st_mode):
        os.makedirs(place, mode=0o700, exist_ok=True)
    else:
        os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    bind_opened(folder, place)
    return place
