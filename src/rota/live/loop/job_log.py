"""The line in the manager's log about a change of a job."""

from __future__ import annotations

import logging

from rota.core.state.job_record import LiveJob
from rota.live.loop.record import Record, shown_state

log = logging.getLogger("rota.live")


def log_change(live: LiveJob, record: Record) -> None:
    """Log the state of a job, and what is known of its end."""
    log.info(
        "job",
        extra={
            "job": live.job.id,
            "attempt": record.attempt or None,
            "state": shown_state(live, record),
            "stopping": None if live.stopping is None else live.stopping.value,
            "exit_code": record.exit_code,
            "failure": record.failure,
            "why": record.message or None,
        },
    )
