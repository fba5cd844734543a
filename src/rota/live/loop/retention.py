"""Deletion of old data: output and records of ended jobs, journal segments, remembered answers."""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from rota.store import clock
from rota.store.records import Records

log = logging.getLogger("rota.live")
EVERY_S = 600.0
ANSWERS_S = 86400.0


async def keep_tidy(records: Records, home: Path, keep_s: float) -> None:
    """Delete old data at intervals, until cancelled."""
    while True:
        try:
            gone = await asyncio.to_thread(tidy, records, home, keep_s, clock.now_s())
        except DBAPIError as error:
            log.warning("nothing was tidied", extra={"why": " ".join(str(error.orig).split())})
            gone = []
        if gone:
            log.info("tidied", extra={"jobs": len(gone)})
        await asyncio.sleep(EVERY_S)


def tidy(records: Records, home: Path, keep_s: float, now_s: float) -> list[str]:
    """Delete what ended more than `keep_s` ago; return the jobs deleted."""
    gone = records.drop_before(now_s - keep_s, answers_before_s=now_s - min(ANSWERS_S, keep_s))
    for job_id in gone:
        shutil.rmtree(home / "runs" / job_id, ignore_errors=True)
    return gone
