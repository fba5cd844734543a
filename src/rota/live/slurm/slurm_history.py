"""The accounting of the last weeks as ended jobs of a twin, so that its first forecasts know what like jobs took."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass

from rota.core.codec.values import encode_job
from rota.core.errors import RotaError
from rota.core.model.job import DEFAULT_TENANT, Job
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.core.state.phases import Phase
from rota.core.state.state import State
from rota.drivers.slurm.commands import UNREADABLE, SlurmCommands
from rota.drivers.slurm.printed.accounts import ACCOUNTING_COLUMNS
from rota.live.loop.record import Record, dump, row_of
from rota.live.slurm.slurm_loop import spec_of
from rota.store import clock
from rota.store.records import Records, WriteBatch
from rota.traces.assemble import plain_job
from rota.traces.readers.slurm import OUTCOMES
from rota.traces.readers.slurm_fields import elapsed_s, resources_shape
from rota.traces.workload import Outcome

log = logging.getLogger("rota.live")
MOST = 2000
"""Forecasts learn from as many ended jobs at most."""
_ID = re.compile(r"\d+(_\d+)?")
_PHASES = {
    Outcome.SUCCEEDED: Phase.SUCCEEDED,
    Outcome.FAILED: Phase.FAILED,
    Outcome.CANCELLED: Phase.CANCELLED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountedJob:
    """A job that ended, as Slurm accounted it; times are dates."""

    job: Job
    submit_s: float
    start_s: float
    end_s: float
    phase: Phase
    state: str


async def import_history(commands: SlurmCommands, records: Records, begin: str) -> None:
    """Record the latest jobs of the accounting that are not on record; without accounting there are none."""
    try:
        output = await commands.accounting(begin, ACCOUNTING_COLUMNS, epoch=True)
    except UNREADABLE as error:
        log.info("no accounting to learn from; forecasts begin with the jobs' limits", extra={"why": str(error)})
        return
    latest = sorted(accounted(output.decode("utf-8", "replace")), key=lambda each: each.end_s)[-MOST:]
    new = [each for each in latest if records.job(each.job.id) is None]
    if new:
        records.write(_rows(new, records.next_seq()))()
        log.info("read the accounting", extra={"jobs": len(new), "since": begin})


def accounted(output: str) -> Iterator[AccountedJob]:
    """The jobs that ran to an end; steps, jobs that still run and records that can't be understood are left out."""
    lines = output.splitlines()
    names = lines[0].split("|") if lines else []
    for line in lines[1:]:
        cells = line.split("|")
        if len(cells) == len(names):
            try:
                found = _accounted(dict(zip(names, cells, strict=True)))
            except (KeyError, ValueError, RotaError):
                continue
            if found is not None:
                yield found


def _accounted(row: dict[str, str]) -> AccountedJob | None:
    state = row["State"].split(" ", 1)[0].rstrip("+")
    if state not in OUTCOMES or _ID.fullmatch(row["JobID"]) is None:
        return None
    submit_s, start_s, end_s = (float(row[name]) for name in ("Submit", "Start", "End"))
    if not 0.0 < submit_s <= start_s <= end_s:
        return None
    job = plain_job(
        row["JobID"],
        resources_shape(row["AllocTRES"] or row["ReqTRES"], row["NNodes"], row["NCPUS"], row["ReqMem"]),
        end_s - start_s,
        tenant=row["Account"] or DEFAULT_TENANT,
        user=row["User"],
        name=row["JobName"],
        estimate_s=elapsed_s("Timelimit", row["Timelimit"]),
        labels=(("slurm.qos", row["QOS"]),) if row["QOS"] else (),
    )
    return AccountedJob(
        job=job, submit_s=submit_s, start_s=start_s, end_s=end_s, phase=_PHASES[OUTCOMES[state]], state=state
    )


def _rows(found: list[AccountedJob], seq: int) -> WriteBatch:
    batch, blank = WriteBatch(), State(Inventory())
    for number, each in enumerate(found, start=seq):
        live = LiveJob(each.job, number, clock.from_wall_s(each.submit_s), 1.0)
        live.restore_end(each.phase, clock.from_wall_s(each.start_s), clock.from_wall_s(each.end_s))
        record = Record(dump(spec_of(each.job)), each.job.user)
        record.message = "" if each.phase is Phase.SUCCEEDED else f"Slurm: {each.state}"
        row = row_of(live, record, blank, [], encode_job(each.job))
        row["live"] = dump({**json.loads(row["live"]), "ran_s": each.end_s - each.start_s})
        batch.new_jobs.append(row)
    return batch
