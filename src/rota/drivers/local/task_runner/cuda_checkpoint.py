"""The NVIDIA driver's calls that copy a process's GPU memory to the host and back; the only module that makes them.

A process is locked (its CUDA calls wait and what it submitted finishes), checkpointed (its memory is copied to the host
and the GPU is released), restored and unlocked. The process needs no code for it, and its addresses stay the same.
Several processes of one job take each step one after the other, always in the same order.
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

    def probe(self, pids: Sequence[int]) -> None:
        """Lock and unlock processes: raise `CheckpointFailed` if they can't be checkpointed."""
        self._lock(pids)
        self._unlock(pids)

    def swap_out(self, pids: Sequence[int]) -> None:
        """Copy the GPU memory of processes to the host and release their GPUs; all are locked before the first."""
        self._lock(pids)
        for pid in pids:
            self._check("checkpoint", self._library.cuCheckpointProcessCheckpoint(pid, None))

    def swap_in(self, pids: Sequence[int], pairs: Sequence[tuple[str, str]] = ()) -> None:
        """Copy the memory of processes back and let them go on: to the same GPUs, or to the other one of each pair."""
        args = _restore_args(pairs) if pairs else None
        for pid in pids:
            self._check("restore", self._library.cuCheckpointProcessRestore(pid, args))
        self._unlock(pids)

    def _lock(self, pids: Sequence[int]) -> None:
        """Lock processes one after the other; if one refuses, those before it go on."""
        args = ctypes.create_string_buffer(_ARGS_BYTES)
        ctypes.c_uint.from_buffer(args).value = LOCK_MS
        for number, pid in enumerate(pids):
            code = self._library.cuCheckpointProcessLock(pid, args)
            if code:
                self._unlock(pids[:number])
                raise CheckpointFailed("lock", code)

    def _unlock(self, pids: Sequence[int]) -> None:
        for pid in pids:
            self._check("unlock", self._library.cuCheckpointProcessUnlock(pid, None))

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
