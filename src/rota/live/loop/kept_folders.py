"""Keeps the folders of ended jobs below a size: the oldest go first, of the user whose folders hold the most."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from rota.store.records import Records
from rota.store.run_folder import folder_bytes, remove_folder

MEASURED_S = 3600.0
"""How long a size counts: a user may write to the folder of an ended job."""


class KeptFolders:
    """The folders of ended jobs; `is_live` says which jobs have not ended."""

    def __init__(self, home: Path, most_bytes: int, records: Records, is_live: Callable[[str], bool]) -> None:
        self._runs = home / "runs"
        self._most_bytes = most_bytes
        self._records = records
        self._is_live = is_live
        self._sizes: dict[str, tuple[int, float]] = {}

    def trim(self) -> list[str]:
        """Delete folders until the rest is small enough; return their jobs."""
        if not self._most_bytes:
            return []
        sizes = self._measure()
        excess = sum(sizes.values()) - self._most_bytes
        gone: list[str] = []
        for job_id in self._in_turn(sizes) if excess > 0 else ():
            if excess <= 0:
                break
            remove_folder(self._runs / job_id)
            self._sizes.pop(job_id, None)
            excess -= sizes[job_id]
            gone.append(job_id)
        return gone

    def _measure(self) -> dict[str, int]:
        """Return the sizes of the folders of ended jobs; each is looked at once an hour."""
        try:
            there = [name for name in os.listdir(self._runs) if not self._is_live(name)]
        except OSError:
            return {}
        now = time.monotonic()
        known = {name: self._sizes[name] for name in there if name in self._sizes}
        for name in there:
            if name not in known or known[name][1] < now - MEASURED_S:
                known[name] = folder_bytes(self._runs / name), now
        self._sizes = known
        return {name: size for name, (size, _) in known.items()}

    def _in_turn(self, sizes: dict[str, int]) -> list[str]:
        """Return the folders of jobs that are known to have ended, in the order in which they are deleted."""
        by_owner: dict[str, list[str]] = defaultdict(list)
        turn: list[str] = []
        for name, owner in self._records.owners_of_ended(sizes).items():  # oldest first
            by_owner[owner].append(name)
        held = {owner: sum(sizes[name] for name in names) for owner, names in by_owner.items()}
        while held:
            owner = max(held, key=lambda each: (held[each], each))
            name = by_owner[owner].pop(0)
            turn.append(name)
            held[owner] -= sizes[name]
            if not by_owner[owner]:
                del held[owner]
        return turn
