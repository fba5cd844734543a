"""A limit for what a job's folders may hold, kept by the file system: a project quota (ext4, XFS).

The folders of a job belong to a project, and so does everything that is made in them. The file system has to be mounted
with `prjquota`; elsewhere the supervisors look at the folders from time to time.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

from rota.drivers.local.task_runner.scratch import FILE_BYTES

_QUOTACTL_FD = {"x86_64": 443, "aarch64": 443}
_SET_QUOTA, _GET_INFO, _PROJECT = 0x800008, 0x800005, 2
_GET_ATTRIBUTES, _SET_ATTRIBUTES = 0x801C581F, 0x401C5820
_INHERITED = 0x200
_LIMITS = 1 | 4
"""Says that only the limits of blocks and of files are set (QIF_BLIMITS, QIF_ILIMITS)."""
_BLOCK_BYTES = 1024


def limit_by_quota(folders: Sequence[Path], key: str, limit_bytes: int) -> bool:
    """Let folders hold at most so much together; return False where the file system keeps no project quota."""
    project = project_of(key)
    try:
        _set_limit(folders[0], project, limit_bytes)
        for folder in folders:
            _assign(folder, project)
    except OSError:
        return False
    return True


def project_of(key: str) -> int:
    """Return the number of the project of a job, far from those that administrators give."""
    return 0x40000000 | zlib.crc32(key.encode()) & 0x3FFFFFFF


def _assign(folder: Path, project: int) -> None:
    """Make a folder part of a project, and all that will be made in it."""
    opened = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        attributes = bytearray(28)
        fcntl.ioctl(opened, _GET_ATTRIBUTES, attributes)
        flags, extent, extents, _, cow = struct.unpack_from("IIIII", attributes)
        struct.pack_into("IIIII", attributes, 0, flags | _INHERITED, extent, extents, project, cow)
        fcntl.ioctl(opened, _SET_ATTRIBUTES, bytes(attributes))
    finally:
        os.close(opened)


def _set_limit(folder: Path, project: int, limit_bytes: int) -> None:
    blocks = -(-limit_bytes // _BLOCK_BYTES)
    files = -(-limit_bytes // FILE_BYTES)
    wanted = struct.pack("QQQQQQQQI", blocks, blocks, 0, files, files, 0, 0, 0, _LIMITS).ljust(72, b"\0")
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _quotactl(opened, _GET_INFO, 0, b"\0" * 24)
        _quotactl(opened, _SET_QUOTA, project, wanted)
    finally:
        os.close(opened)


def _quotactl(opened: int, command: int, project: int, value: bytes) -> None:
    number = _QUOTACTL_FD.get(platform.machine())
    if number is None:
        raise OSError(38, f"the number of quotactl_fd(2) is not known on {platform.machine()}")
    libc = ctypes.CDLL(None, use_errno=True)
    held = ctypes.create_string_buffer(value, len(value))
    whole = ctypes.c_uint((command << 8) | _PROJECT)
    if libc.syscall(ctypes.c_long(number), ctypes.c_uint(opened), whole, ctypes.c_uint(project), held) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
