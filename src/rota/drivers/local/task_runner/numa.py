"""Memory beside a task's GPUs: pages come from one NUMA node as long as it has any."""

from __future__ import annotations

import ctypes
import os

_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}
_PREFERRED = 1
_BITS = 1024


def prefer_memory_of(node: int) -> None:
    """Prefer the memory of a NUMA node, for this process and what it starts. A kernel that can't is no error."""
    number = _SET_MEMPOLICY.get(os.uname().machine)
    if number is None or not 0 <= node < _BITS:
        return
    words = (ctypes.c_ulong * (_BITS // 64))()
    words[node // 64] = 1 << node % 64
    ctypes.CDLL(None).syscall(ctypes.c_long(number), ctypes.c_long(_PREFERRED), words, ctypes.c_ulong(_BITS))
