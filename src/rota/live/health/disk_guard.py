"""Keeps running jobs from filling the disk together: each of one user's many jobs may be below its own limit.

While the disk is nearly full, the largest running job of the user whose running jobs hold the most is ended, as one
that has exceeded its scratch limit. Other users' jobs go on.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from rota.core.model.job import JobId
from rota.live.loop.control import Control
from rota.store.run_folder import attempt_folder, folder_bytes, over_scratch

log = logging.getLogger("rota.live")
LEFT_FREE = 0.05
"""The fraction of the disk that running jobs have to leave free."""
LEAST = 0.01
"""The fraction of the disk that a job holds at least to be ended: others do not fill it."""
LOOK_S = 1.0
ENDS_S = 20.0
"""How long a job may take to end and to give its space back before another one is looked for."""


class DiskGuard:
    """Watches the disk that run folders are on."""

    def __init__(self, control: Control, home: Path) -> None:
        self._control = control
        self._home = home

    async def run(self) -> None:
        """Look at the disk at intervals, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            if self.is_low():
                found = await asyncio.to_thread(self.end_largest, self._running())
                await asyncio.sleep(0.0 if found is None else ENDS_S)

    def is_low(self) -> bool:
        """Whether the disk is nearly full."""
        try:
            disk = shutil.disk_usage(self._home)
        except OSError:
            return False
        return disk.free < disk.total * LEFT_FREE

    def _running(self) -> dict[JobId, tuple[str, int]]:
        """The owner and the attempt of each running job."""
        jobs, kept = self._control.state.jobs, self._control.kept
        return {job_id: (kept[job_id].owner, kept[job_id].attempt) for job_id in jobs if job_id in kept}

    def end_largest(self, running: Mapping[JobId, tuple[str, int]]) -> JobId | None:
        """Have the largest job of the user with the most ended, unless it is small; return it."""
        sizes = {
            job_id: folder_bytes(self._home / "runs" / job_id) for job_id, (_, attempt) in running.items() if attempt
        }
        held: dict[str, int] = defaultdict(int)
        for job_id, size in sizes.items():
            held[running[job_id][0]] += size
        if not held:
            return None
        owner = max(held, key=lambda each: (held[each], each))
        found = max((each for each in sizes if running[each][0] == owner), key=lambda each: sizes[each])
        if sizes[found] < shutil.disk_usage(self._home).total * LEAST:
            return None
        over_scratch(attempt_folder(self._home, found, running[found][1])).touch()
        log.warning("disk-nearly-full", extra={"ended": found, "who": owner, "bytes": sizes[found]})
        return found
