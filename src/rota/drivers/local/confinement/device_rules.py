"""Which device files a task may open: the numbers of device nodes, and the eBPF program that refuses some of them.

Version 1 of cgroups has a controller for this. Version 2 has none; there, a program of type `CGROUP_DEVICE` is attached
to the task's cgroup, and the kernel calls it whenever a process in it opens or makes a device node.
"""

from __future__ import annotations

import ctypes
import os
import platform
import stat
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_SYSCALLS = {"x86_64": 321, "aarch64": 280}
"""The number of bpf(2)."""
_PROG_LOAD, _PROG_ATTACH, _PROG_DETACH, _PROG_GET_FD_BY_ID, _PROG_QUERY = 5, 8, 9, 13, 16
_MOST_PROGRAMS = 64
_TYPE_CGROUP_DEVICE, _ATTACH_DEVICE, _ALLOW_MULTI = 15, 6, 2
_LOAD_WORD, _AND, _JUMP_UNLESS_EQUAL, _SET, _EXIT = 0x61, 0x54, 0x55, 0xB7, 0x95
_KINDS = {"b": 1, "c": 2}
_PER_RULE = 5
"""Instructions for each refused device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNumber:
    """A device as the kernel names it: `c` for character or `b` for block, major and minor number."""

    kind: str
    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.kind} {self.major}:{self.minor}"


def number_of(path: str) -> DeviceNumber | None:
    """Return the number of a device node; None if there is none of that name."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    kind = "c" if stat.S_ISCHR(found.st_mode) else "b" if stat.S_ISBLK(found.st_mode) else ""
    if not kind:
        return None
    return DeviceNumber(kind=kind, major=os.major(found.st_rdev), minor=os.minor(found.st_rdev))


def refused(nodes: Sequence[DeviceNumber | None], assigned: Sequence[int]) -> tuple[DeviceNumber, ...]:
    """Return the devices that a task may not open: all but the assigned ones. `nodes` are by index of the device."""
    kept = {nodes[index] for index in assigned if index < len(nodes)}
    return tuple(dict.fromkeys(node for node in nodes if node is not None and node not in kept))


def attach(folder: Path, devices: Sequence[DeviceNumber]) -> None:
    """Have the kernel refuse devices to the processes of a cgroup of version 2; raises `OSError` if it can't."""
    code = ctypes.create_string_buffer(program(devices))
    license_name = ctypes.create_string_buffer(b"GPL")
    load = struct.pack(
        "IIQQ", _TYPE_CGROUP_DEVICE, (len(code.raw) - 1) // 8, ctypes.addressof(code), ctypes.addressof(license_name)
    )
    loaded = _bpf(_PROG_LOAD, load.ljust(128, b"\0"))
    try:
        cgroup = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _bpf(_PROG_ATTACH, struct.pack("IIII", cgroup, loaded, _ATTACH_DEVICE, _ALLOW_MULTI).ljust(128, b"\0"))
        finally:
            os.close(cgroup)
    finally:
        os.close(loaded)


def replace_rules(folder: Path, devices: Sequence[DeviceNumber]) -> None:
    """Refuse these devices to a cgroup of version 2, and no longer those that were refused to it before."""
    cgroup = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        former = _attached(cgroup)
        attach(folder, devices)
        for number in former:
            loaded = _bpf(_PROG_GET_FD_BY_ID, struct.pack("III", number, 0, 0).ljust(128, b"\0"))
            try:
                _bpf(_PROG_DETACH, struct.pack("IIII", cgroup, loaded, _ATTACH_DEVICE, 0).ljust(128, b"\0"))
            finally:
                os.close(loaded)
    finally:
        os.close(cgroup)


def _attached(cgroup: int) -> list[int]:
    """The numbers of the programs that are attached to a cgroup itself."""
    numbers = (ctypes.c_uint * _MOST_PROGRAMS)()
    query = struct.pack("IIIIQI", cgroup, _ATTACH_DEVICE, 0, 0, ctypes.addressof(numbers), _MOST_PROGRAMS)
    _bpf(_PROG_QUERY, query.ljust(128, b"\0"))
    return [number for number in numbers if number]


def program(devices: Sequence[DeviceNumber]) -> bytes:
    """Return the instructions that answer 0 for these devices and 1 for all others."""
    # The context is three words: the kind of device in the low half of the first, then major and minor.
    code = [
        _instruction(_LOAD_WORD, 2, 1, 0, 0),
        _instruction(_AND, 2, 0, 0, 0xFFFF),
        _instruction(_LOAD_WORD, 3, 1, 4, 0),
        _instruction(_LOAD_WORD, 4, 1, 8, 0),
    ]
    for device in devices:
        wanted = ((2, _KINDS[device.kind]), (3, device.major), (4, device.minor))
        for place, (register, value) in enumerate(wanted):
            code.append(_instruction(_JUMP_UNLESS_EQUAL, register, 0, _PER_RULE - place - 1, value))
        code += [_instruction(_SET, 0, 0, 0, 0), _instruction(_EXIT, 0, 0, 0, 0)]
    code += [_instruction(_SET, 0, 0, 0, 1), _instruction(_EXIT, 0, 0, 0, 0)]
    return b"".join(code)


def _instruction(code: int, target: int, source: int, offset: int, value: int) -> bytes:
    return struct.pack("BBhi", code, target | source << 4, offset, value)


def _bpf(command: int, attributes: bytes) -> int:
    number = _SYSCALLS.get(platform.machine())
    if number is None:
        raise OSError(38, f"the number of bpf(2) is not known on {platform.machine()}")
    libc = ctypes.CDLL(None, use_errno=True)
    given = ctypes.create_string_buffer(attributes, len(attributes))
    answer = int(libc.syscall(ctypes.c_long(number), ctypes.c_int(command), given, ctypes.c_uint(len(attributes))))
    if answer < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"bpf: {os.strerror(error)}")
    return answer
