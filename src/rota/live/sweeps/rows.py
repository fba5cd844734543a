"""Sweeps and trials as rows of the database, and back."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from rota.live.intake.audit_entry import Asker
from rota.live.loop.record import dump
from rota.store import clock
from rota.store.sweeps import RUNNING
from rota.sweeps.file import SweepFile, sweep_file
from rota.sweeps.rules import rule_of
from rota.sweeps.samplers import sample
from rota.sweeps.search import Search
from rota.sweeps.trial import SweepTrial, TrialState

Json = dict[str, Any]
FINISHED, STOPPED, FAILED = "finished", "stopped", "failed"
"""How a sweep ends: by itself, by a user, or because too many trials failed, none had a result or jobs were refused."""


@dataclass(slots=True)
class LiveSweep:
    """A sweep that has not ended, or has just ended."""

    id: str
    seq: int
    name: str
    asker: Asker
    values: Json
    """The sweep file as it was given."""
    search: Search
    created_s: float
    state: str = RUNNING
    why: str = ""
    ended_s: float | None = None
    stamps: dict[int, object] = field(default_factory=dict)
    """What the reports of trials looked like when they were last read."""
    messages: dict[int, str] = field(default_factory=dict)
    """What the jobs of trials said that failed."""
    is_due: bool = True
    """Whether there may be places to fill though nothing was reported."""
    retry_s: float = 0.0
    """When to try again what was refused for now."""

    @property
    def file(self) -> SweepFile:
        """The sweep file."""
        return self.search.file

    def sampled(self, count: int) -> list[SweepTrial]:
        """Sample the parameters of new trials, each given those before it."""
        known = list(self.search.trials)
        for _ in range(count):
            known.append(SweepTrial(number=len(known), params=sample(self.file, len(known), known)))
        return known[len(self.search.trials) :]

    def row(self) -> Json:
        """The row of the sweep as it is now."""
        return {
            "id": self.id,
            "seq": self.seq,
            "name": self.name,
            "tenant": self.file.tenant,
            "owner": self.asker.name,
            "role": self.asker.role,
            "account": self.asker.account,
            "state": self.state,
            "why": self.why,
            "created_s": self.created_s,
            "ended_s": self.ended_s,
            "file": dump({name: value for name, value in self.values.items() if name != "job"}),
            "job": dump(self.values["job"]),
        }


def sweep_of(row: Any, job: str, trials: list[Any]) -> LiveSweep:
    """The sweep of a row, given its job with its secrets, and the rows of its trials."""
    values = {**json.loads(row.file), "job": json.loads(job)}
    file = sweep_file(values)
    return LiveSweep(
        id=row.id,
        seq=row.seq,
        name=row.name,
        asker=Asker(name=row.owner, role=row.role, account=row.account),
        values=values,
        search=Search(file, rule_of(file), [trial_of(each) for each in trials]),
        created_s=row.created_s,
        state=row.state,
        why=row.why,
        ended_s=row.ended_s,
    )


def trial_row(sweep_id: str, trial: SweepTrial) -> Json:
    """The row of a trial as it is now."""
    return {
        "sweep_id": sweep_id,
        "number": trial.number,
        "job_id": trial.job_id,
        "state": trial.state.value,
        "params": dump(trial.params),
        "values": dump(list(trial.values.items())),
        "curve": dump(trial.curve),
        "why": trial.why,
        "changed_s": clock.now_s(),
    }


def trial_of(row: Any) -> SweepTrial:
    """The trial of a row."""
    return SweepTrial(
        number=row.number,
        params=json.loads(row.params),
        job_id=row.job_id,
        state=TrialState(row.state),
        values={int(mark): float(value) for mark, value in json.loads(row._mapping["values"])},
        curve=tuple((int(step), float(value)) for step, value in json.loads(row.curve)),
        why=row.why,
    )
