"""Trials at their rungs: what was decided is told to their tasks, and one that left by itself is held until then.

While no manager runs, the supervisor of a trial stops it at its rung, as none can decide there whether it goes on.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from rota.core.model.job import JobId
from rota.drivers.local.task_runner.files import AT_RUNG
from rota.live.loop.record import Record
from rota.sdk.stops import RUNG_FILE
from rota.store.run_folder import stop_causes, write_shared
from rota.sweeps.trial import SweepTrial, TrialState

HELD_AT_RUNG = "holds it at its rung, where no manager ran that could decide, until it has"


def tell_decision(home: Path, trial: SweepTrial) -> None:
    """Let the tasks of a trial know whether it goes on from the last rung that it has come to."""
    goes_on = trial.state is TrialState.ACTIVE
    told = {"rung": max(trial.values), "step": trial.step, "goes_on": goes_on}
    with contextlib.suppress(OSError):  # they are stopped if they shall, and otherwise wait for some seconds
        write_shared(home, JobId(trial.job_id), RUNG_FILE, json.dumps(told))


def has_left(home: Path, job_id: JobId, attempt: int) -> bool:
    """Whether the tasks of an attempt were stopped at a rung while no manager ran."""
    return AT_RUNG in stop_causes(home, job_id, attempt)


def note_hold(record: Record, sweep_id: str) -> None:
    """Let the job of a trial say why it is held; it is known by that, also after a restart."""
    record.message = f"sweep {sweep_id} {HELD_AT_RUNG}"


def is_held(record: Record, sweep_id: str) -> bool:
    """Whether a held job waits for its sweep's decision at a rung, and is not held by a user or a budget."""
    return record.message == f"sweep {sweep_id} {HELD_AT_RUNG}"
