"""Checkpoints of a whole gang by torch.distributed.checkpoint: every rank writes its shards, in host memory first.

All ranks call `save`, `flush` and `load` together, with the same folder. A checkpoint is complete or not there: it is
written under another name; rank 0 adds the SHA-256 of every file and renames it. Loading takes the newest that is
intact, also with another number of ranks than before.

    saver = rota.sdk.ShardedCheckpoints("ckpt")
    step = saver.load(state) or 0
    for batch in (run := rota.sdk.steps(loader)):
        ...
        if run.should_save:
            saver.save(run.step + 1, state)
            run.saved()
    saver.close()
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_SUMS = "checksums.json"
_PART = ".part"
_BLOCK = 1 << 22


class ShardedCheckpoints:
    """The checkpoints of a gang in one folder that all of its ranks see."""

    def __init__(self, folder: str | os.PathLike[str], *, keep: int = 2) -> None:
        """`keep` checkpoints stay on disk."""
        if keep < 1:
            raise ValueError(f"keep is {keep}; it must be at least 1")
        self._checkpoint = importlib.import_module("torch.distributed.checkpoint")
        self._group = importlib.import_module("torch.distributed")
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._keep = keep
        self._under_way: tuple[int, Any] | None = None
        self.copy_s = 0.0
        """How long the last copy in host memory took; the training stood still meanwhile."""

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Copy the state in host memory and have it written behind the training; the write before must be over."""
        self.flush()
        begun = time.monotonic()
        part = self._folder / f"step-{step:012d}{_PART}"
        if self._rank == 0:
            shutil.rmtree(part, ignore_errors=True)
        self._wait()
        self._under_way = step, self._checkpoint.async_save(state, checkpoint_id=str(part))
        self.copy_s = time.monotonic() - begun

    def flush(self) -> None:
        """Wait until the last state is on disk, verified by its checksums; raise what kept it from that."""
        if self._under_way is None:
            return
        step, writing = self._under_way
        self._under_way = None
        writing.result()
        self._wait()
        if self._rank == 0:
            self._complete(step)
        self._wait()

    def close(self) -> None:
        """Write what is left."""
        self.flush()

    def load(self, state: dict[str, Any]) -> int | None:
        """Fill the state with the newest checkpoint that is intact; return its step, or None if there is none."""
        found = [self._newest() if self._rank == 0 else None]
        if self._is_gang:
            self._group.broadcast_object_list(found, src=0)
        if found[0] is None:
            return None
        self._checkpoint.load(state, checkpoint_id=str(self._folder / f"step-{found[0]:012d}"))
        return found[0]

    def _complete(self, step: int) -> None:
        part, path = self._folder / f"step-{step:012d}{_PART}", self._folder / f"step-{step:012d}"
        sums = {each.name: _digest(each) for each in sorted(part.iterdir())}
        with (part / _SUMS).open("w", encoding="utf-8") as file:
            json.dump(sums, file)
            file.flush()
            os.fsync(file.fileno())
        shutil.rmtree(path, ignore_errors=True)
        part.rename(path)
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(folder)
        os.close(folder)
        for old in [each for _, each in self._steps()][: -self._keep]:
            shutil.rmtree(old, ignore_errors=True)

    def _steps(self) -> list[tuple[int, Path]]:
        found = []
        for path in self._folder.glob("step-*"):
            number = path.name.removeprefix("step-")
            if number.isdigit():
                found.append((int(number), path))
        return sorted(found)

    def _newest(self) -> int | None:
        return next((step for step, path in reversed(self._steps()) if _is_intact(path)), None)

    @property
    def _is_gang(self) -> bool:
        return bool(self._group.is_available() and self._group.is_initialized())

    @property
    def _rank(self) -> int:
        return int(self._group.get_rank()) if self._is_gang else 0

    def _wait(self) -> None:
        if self._is_gang:
            self._group.barrier()


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    for block in _blocks(path):
        found.update(block)
    return found.hexdigest()


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            yield block


def _is_intact(path: Path) -> bool:
    """Whether a checkpoint has all its files, and each the bytes that were written."""
    try:
        sums = json.loads((path / _SUMS).read_text(encoding="utf-8"))
        return bool(sums) and all(_digest(path / name) == digest for name, digest in sums.items())
    except (OSError, ValueError, AttributeError):
        return False
