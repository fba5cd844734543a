"""The NVIDIA driver's calls that copy a process's GPU memory to the host and back; the only module that makes them.

A process is locked (its CUDA calls wait and what it submitted finishes), checkpointed (its memory is copied to the host
and the GPU is released), restored and unlocked. The process needs no code for it, and its addresses stay the same.
"""

from __future__ import annotations

import ctypes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

LOCK_MS = 10_000
"""How long a process may take to finish what it has submitted."""
_NOT_SUPPORTED = 801
_NOT_PERMITTED = 800
_ARGS_BYTES = 128
"""More than any of the calls' argument structures has; what is not used is zero."""


class CheckpointFailed(Exception):
    """A step that the driver refused, with its error code."""

    def __init__(self, step: str, code: int) -> None:
        why = {_NOT_SUPPORTED: "not supported for it", _NOT_PERMITTED: "not permitted"}.get(code, f"CUDA error {code}")
        super().__init__(f"{step}: {why}")
        self.step = step
        self.code = code


class CudaCheckpoint:
    """The driver's checkpoint calls."""

    def __init__(self, path: str) -> None:
        try:
            self._library: Any = ctypes.CDLL(path)
            self._library.cuCheckpointProcessLock  # noqa: B018  # drivers below 570 don't have it
        except (OSError, AttributeError):
            raise CheckpointFailed("find the driver's calls", _NOT_SUPPORTED) from None
        self._check("initialise", self._library.cuInit(0))

    def probe(self, pid: int) -> None:
        """Lock and unlock a process: raise `CheckpointFailed` if it can't be checkpointed."""
        self._lock(pid)
        self._check("unlock", self._library.cuCheckpointProcessUnlock(pid, None))

    def swap_out(self, pid: int) -> None:
        """Copy a process's GPU memory to the host and release its GPUs."""
        self._lock(pid)
        self._check("checkpoint", self._library.cuCheckpointProcessCheckpoint(pid, None))

    def swap_in(self, pid: int, pairs: Sequence[tuple[str, str]] = ()) -> None:
        """Copy the memory of a process back and let it go on: to the same GPUs, or from each to the other of a pair."""
        args = _restore_args(pairs) if pairs else None
        self._check("restore", self._library.cuCheckpointProcessRestore(pid, args))
        self._check("unlock", self._library.cuCheckpointProcessUnlock(pid, None))

    def _lock(self, pid: int) -> None:
        args = ctypes.create_string_buffer(_ARGS_BYTES)
        ctypes.c_uint.from_buffer(args).value = LOCK_MS
        self._check("lock", self._library.cuCheckpointProcessLock(pid, args))

    def _check(self, step: str, code: int) -> None:
        if code:
            raise CheckpointFailed(step, code)


def _restore_args(pairs: Sequence[tuple[str, str]]) -> Any:
    """A pointer to pairs of UUIDs of 16 bytes, and their number."""
    listed = ctypes.create_string_buffer(b"".join(_uuid(one) + _uuid(other) for one, other in pairs), 32 * len(pairs))
    args = ctypes.create_string_buffer(_ARGS_BYTES)
    ctypes.c_void_p.from_buffer(args).value = ctypes.addressof(listed)
    ctypes.c_uint.from_buffer(args, ctypes.sizeof(ctypes.c_void_p)).value = len(pairs)
    args.kept = listed  # type: ignore[attr-defined]  # as long as the arguments are
    return args


def _uuid(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("GPU-").replace("-", ""))
