"""Deletion of old data: output and records of ended jobs, journal segments, remembered answers."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from rota.live.loop.kept_folders import KeptFolders
from rota.store import clock
from rota.store.data.snapshots import Snapshots
from rota.store.records import Records
from rota.store.run_folder import remove_folder

log = logging.getLogger("rota.live")
EVERY_S = 600.0
SIZES_EVERY_S = 30.0
"""Between two looks at the sizes of folders."""
ANSWERS_S = 86400.0


async def keep_tidy(records: Records, home: Path, keep_s: float, folders: KeptFolders | None = None) -> None:
    """Delete old data at intervals, and folders of ended jobs that hold too much, until cancelled."""
    due_s = 0.0
    while True:
        gone: list[str] = []
        try:
            if (now_s := time.monotonic()) >= due_s:
                due_s = now_s + EVERY_S
                gone = await asyncio.to_thread(tidy, records, home, keep_s, clock.now_s())
            trimmed = [] if folders is None else await asyncio.to_thread(folders.trim)
            if trimmed:
                log.warning("folders of ended jobs deleted: keep_size", extra={"jobs": trimmed[:100]})
        except DBAPIError as error:
            log.warning("nothing was tidied", extra={"why": " ".join(str(error.orig).split())})
        if gone:
            log.info("tidied", extra={"jobs": len(gone)})
        await asyncio.sleep(EVERY_S if folders is None else SIZES_EVERY_S)


def tidy(records: Records, home: Path, keep_s: float, now_s: float) -> list[str]:
    """Delete what ended more than `keep_s` ago; return the jobs deleted."""
    gone = records.drop_before(now_s - keep_s, answers_before_s=now_s - min(ANSWERS_S, keep_s))
    for job_id in gone:
        remove_folder(home / "runs" / job_id)
    Snapshots(home).tidy(records.snapshots_named())
    return gone
