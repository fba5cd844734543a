"""Checkpoints in two levels: copied in host memory at once, written to disk behind the training.

A checkpoint on disk is complete or not there: it is written under another name, flushed, and renamed. Its SHA-256
stands beside it, and loading falls back to the last checkpoint that is intact.

    saver = rota.sdk.Checkpoints("ckpt")
    state, step = saver.load() or (fresh(), 0)
    for batch in (run := rota.sdk.steps(loader)):
        ...
        if run.should_save:
            saver.save(run.step + 1, state)
            run.saved()
    saver.close()
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import pickle
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

_SUFFIX = ".ckpt"
Dump = Callable[[Any, BinaryIO], None]
Load = Callable[[BinaryIO], Any]


class CheckpointLost(Exception):
    """A checkpoint could not be written; the training goes on, and the next one is tried."""


class Checkpoints:
    """The checkpoints of one process in a folder; each rank of a gang needs a folder or a `name` of its own."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        name: str = "rank0",
        keep: int = 2,
        dump: Dump | None = None,
        load: Load | None = None,
    ) -> None:
        """`keep` checkpoints stay on disk. `dump` and `load` are pickle's unless given; `torch.save` fits."""
        if keep < 1:
            raise ValueError(f"keep is {keep}; it must be at least 1")
        if not name or "/" in name or "-" in name:
            raise ValueError(f"name is {name!r}; it must have neither / nor -")
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._name, self._keep = name, keep
        self._dump: Dump = dump or _pickled
        self._load: Load = load or pickle.load
        self._memory: tuple[int, bytes] | None = None
        self._written = -1
        self._error: OSError | None = None
        self._changed = threading.Condition()
        self._closes = False
        self._writer: threading.Thread | None = None
        self.copy_s = 0.0
        """How long the last copy in memory took; the training stood still meanwhile."""
        self.write_s = 0.0
        """How long the last write to disk took, behind the training."""

    def save(self, step: int, state: Any) -> None:
        """Copy the state in memory, and have it written. A write that is still to begin is replaced by this one."""
        begun = time.monotonic()
        copy = io.BytesIO()
        self._dump(state, copy)
        with self._changed:
            self._memory = (step, copy.getvalue())
            if self._writer is None:
                self._writer = threading.Thread(target=self._write_all, name="rota-checkpoints", daemon=True)
                self._writer.start()
            self._changed.notify_all()
        self.copy_s = time.monotonic() - begun

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until the last state is on disk; raise `CheckpointLost` if it could not be written."""
        with self._changed:
            wanted = -1 if self._memory is None else self._memory[0]
            self._changed.wait_for(lambda: self._written >= wanted or self._error is not None, timeout_s)
            if self._error is not None:
                error, self._error = self._error, None
                raise CheckpointLost(f"the checkpoint of step {wanted} could not be written: {error}") from error

    def close(self) -> None:
        """Write what is left, and end the thread."""
        try:
            self.flush()
        finally:
            with self._changed:
                self._closes = True
                self._changed.notify_all()
            if self._writer is not None:
                self._writer.join()

    def load(self) -> tuple[Any, int] | None:
        """Return the newest state that is intact, with its step: from memory, else from disk; None if there is none."""
        with self._changed:
            if self._memory is not None:
                step, data = self._memory
                return self._load(io.BytesIO(data)), step
        for step, path in reversed(self._on_disk()):
            intact = _verified(path)
            if intact is not None:
                return self._load(io.BytesIO(intact)), step
        return None

    def _write_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._has_work)
                if self._memory is None or self._memory[0] <= self._written:
                    return
                step, data = self._memory
            begun = time.monotonic()
            error: OSError | None = None
            try:
                self._write(step, data)
            except OSError as caught:
                error = caught
            with self._changed:
                self._error = error
                self.write_s = time.monotonic() - begun
                self._written = step
                self._changed.notify_all()

    def _has_work(self) -> bool:
        return self._closes or (self._memory is not None and self._memory[0] > self._written)

    def _write(self, step: int, data: bytes) -> None:
        path = self._folder / f"{self._name}-{step:012d}{_SUFFIX}"
        _durably(path, data)
        about = {"step": step, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        _durably(path.with_suffix(".json"), json.dumps(about).encode())
        good = [each for _, each in self._on_disk() if each != path and _verified(each) is not None]
        for old in [
            each for _, each in self._on_disk() if each != path and each not in good[len(good) - self._keep + 1 :]
        ]:
            for part in (old.with_suffix(".json"), old):
                with contextlib.suppress(OSError):
                    part.unlink()

    def _on_disk(self) -> list[tuple[int, Path]]:
        found = []
        for path in self._folder.glob(f"{self._name}-*{_SUFFIX}"):
            number = path.name[len(self._name) + 1 : -len(_SUFFIX)]
            if number.isdigit():
                found.append((int(number), path))
        return sorted(found)


def _pickled(state: Any, file: BinaryIO) -> None:
    pickle.dump(state, file, protocol=pickle.HIGHEST_PROTOCOL)


def _durably(path: Path, data: bytes) -> None:
    """Write a file so that it is there as a whole, or as it was before."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _verified(path: Path) -> bytes | None:
    """The bytes of a checkpoint whose checksum is right; None otherwise."""
    try:
        about = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        data = path.read_bytes()
    except (OSError, ValueError):
        return None
    return data if isinstance(about, dict) and hashlib.sha256(data).hexdigest() == about.get("sha256") else None
