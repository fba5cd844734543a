"""Tells running jobs how often to save when the failure rate of the nodes has changed since they started."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from rota.core.model.job import JobId, JobState
from rota.health.failure_rate import FailureRate
from rota.live.loop.control import Control
from rota.store.run_folder import read_json, write_json, write_shared

FILE = "failure-rate.json"
SEEN = "failures-seen.json"
log = logging.getLogger("rota.live")
CHANGED = 1.1
"""A rate that changed by less is not told."""


class ToldIntervals:
    """What each running job that saves its progress was told last."""

    def __init__(self, control: Control, rate: FailureRate, home: Path) -> None:
        self._control = control
        self._rate = rate
        self._home = home
        self._mttf_s: dict[tuple[JobId, int], float] = {}
        try:
            if kept := read_json(home / SEEN):
                rate.restore(kept)
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("the failures seen so far could not be read", extra={"why": str(error)})

    def save(self) -> None:
        """Keep what was seen of failures for the next manager."""
        try:
            write_json(self._home / SEEN, self._rate.encode())
        except OSError as error:
            log.warning("the failures seen so far could not be kept", extra={"why": str(error)})

    def look(self) -> None:
        """Tell jobs whose time between failures is longer or shorter than they know."""
        running = [live for live in list(self._control.state.jobs.values()) if live.state is JobState.RUNNING]
        known, self._mttf_s = self._mttf_s, {}
        for live in running:
            record = self._control.kept.get(live.job.id)
            if record is None or record.file.checkpoint is None:
                continue
            nodes = len({slot.node for slot in live.held or ()})
            key, mttf_s = (live.job.id, record.attempt), self._rate.mttf_s(nodes)
            before_s = known.get(key)
            if before_s is not None and not 1 / CHANGED < mttf_s / before_s < CHANGED:
                self._tell(live.job.id, nodes)
                before_s = mttf_s
            self._mttf_s[key] = mttf_s if before_s is None else before_s

    def _tell(self, job_id: JobId, nodes: int) -> None:
        told = {"every_s": round(self._rate.interval_s(nodes)), "mttf_s": round(self._rate.mttf_s(nodes))}
        try:
            write_shared(self._home, job_id, FILE, json.dumps(told))
        except OSError:  # a full disk, or a folder that the job has replaced: it goes on with the interval it has
            return
