"""System calls that a task can be refused: those that reach into other processes or into the kernel itself.

A filter in the kernel's classic BPF: calls on the list fail with EPERM, calls of another architecture's numbering with
ENOSYS, and all others go through. It needs `no_new_privs`, holds for all descendants, and can't be taken off.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

PR_SET_SECCOMP, MODE_FILTER = 22, 2
ALLOW, FAIL = 0x7FFF0000, 0x00050000
LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
NUMBER, ARCHITECTURE = 0, 4
"""Where these are in what the filter looks at."""
X32 = 0x40000000
"""Numbers from here on are a second numbering of x86_64, by which the list could be passed by."""
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
REFUSED: dict[str, dict[str, int]] = {
    "x86_64": {
        "ptrace": 101, "syslog": 103, "modify_ldt": 154, "pivot_root": 155, "chroot": 161,
        "acct": 163, "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169,
        "sethostname": 170, "setdomainname": 171, "iopl": 172, "ioperm": 173, "init_module": 175, "delete_module": 176,
        "quotactl": 179, "lookup_dcookie": 212, "clock_settime": 227, "kexec_load": 246, "add_key": 248,
        "request_key": 249, "keyctl": 250, "unshare": 272, "perf_event_open": 298, "fanotify_init": 300,
        "name_to_handle_at": 303, "open_by_handle_at": 304, "setns": 308, "process_vm_readv": 310,
        "process_vm_writev": 311, "kcmp": 312, "finit_module": 313, "kexec_file_load": 320, "bpf": 321,
        "userfaultfd": 323, "io_uring_setup": 425, "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431,
        "fsmount": 432, "pidfd_getfd": 438, "mount_setattr": 442, "quotactl_fd": 443,
    },
    "aarch64": {
        "ptrace": 117, "syslog": 116, "pivot_root": 41, "chroot": 51, "acct": 89,
        "settimeofday": 170, "mount": 40, "umount2": 39, "swapon": 224, "swapoff": 225, "reboot": 142,
        "sethostname": 161, "setdomainname": 162, "init_module": 105, "delete_module": 106, "quotactl": 60,
        "lookup_dcookie": 18, "clock_settime": 112, "kexec_load": 104, "add_key": 217, "request_key": 218,
        "keyctl": 219, "unshare": 97, "perf_event_open": 241, "fanotify_init": 262, "name_to_handle_at": 264,
        "open_by_handle_at": 265, "setns": 268, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272,
        "finit_module": 273, "kexec_file_load": 294, "bpf": 280, "userfaultfd": 282, "io_uring_setup": 425,
        "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "pidfd_getfd": 438,
        "mount_setattr": 442, "quotactl_fd": 443,
    },
}  # fmt: skip
"""By machine: the numbers of refused calls (the kernel's syscall tables)."""


def refuse_system_calls() -> None:
    """Install the filter in this process; raises `OSError` where it can't be."""
    code = program(os.uname().machine)
    held = ctypes.create_string_buffer(code, len(code))
    described = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(held))
    libc = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    if libc.prctl(ctypes.c_int(PR_SET_SECCOMP), ctypes.c_ulong(MODE_FILTER), described, zero, zero) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"system calls can't be refused: {os.strerror(number)}")


def program(machine: str) -> bytes:
    """Return the filter's instructions; raises `OSError` on a machine whose calls are not known."""
    if machine not in REFUSED:
        raise OSError(errno.ENOSYS, f"the system calls of {machine} are not known")
    numbers = sorted(REFUSED[machine].values())
    no_such_call, not_permitted = FAIL | errno.ENOSYS, FAIL | errno.EPERM
    code = [
        _instruction(LOAD, 0, 0, ARCHITECTURE),
        _instruction(EQUAL, 1, 0, ARCHITECTURES[machine]),
        _instruction(RETURN, 0, 0, no_such_call),
        _instruction(LOAD, 0, 0, NUMBER),
    ]
    if machine == "x86_64":
        code += [_instruction(AT_LEAST, 0, 1, X32), _instruction(RETURN, 0, 0, no_such_call)]
    for place, number in enumerate(numbers):  # each jumps over the rest of the list to the last instruction
        code.append(_instruction(EQUAL, len(numbers) - place, 0, number))
    return b"".join([*code, _instruction(RETURN, 0, 0, ALLOW), _instruction(RETURN, 0, 0, not_permitted)])


def _instruction(code: int, if_true: int, if_false: int, value: int) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)
