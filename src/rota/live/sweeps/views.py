"""Sweeps as users see them: numbers of trials, the best so far, device time, curves and importance."""

from __future__ import annotations

import math
from typing import Any

from rota.files.job import masked
from rota.live.loop.control import Control
from rota.live.sweeps.keeper import SweepKeeper
from rota.live.sweeps.rows import LiveSweep, sweep_of
from rota.live.views.device_time import device_times_s
from rota.store.records import Records
from rota.sweeps.importance import importance
from rota.sweeps.trial import SweepTrial, TrialState

Json = dict[str, Any]


class SweepViews:
    """Reads sweeps from the database, and what is newer from the keeper; for any thread."""

    def __init__(self, control: Control, records: Records, keeper: SweepKeeper) -> None:
        self._control = control
        self._records = records
        self._keeper = keeper

    def find(self, sweep_id: str) -> LiveSweep | None:
        """A sweep by its id, live or ended; None if there is none."""
        live = self._keeper.of(sweep_id)
        if live is not None:
            return live
        row = self._records.sweeps.one(sweep_id)
        return None if row is None else sweep_of(row, row.job, self._records.sweeps.trials(sweep_id))

    def listed(
        self, tenants: tuple[str, ...] | None, *, live_only: bool, limit: int, owner: str | None = None
    ) -> list[Json]:
        """Sweeps, newest first, without their trials."""
        rows = self._records.sweeps.page(tenants=tenants, live_only=live_only, limit=limit, owner=owner)
        found = [self.find(row.id) for row in rows]
        return [self.summary(sweep) for sweep in found if sweep is not None]

    def summary(self, sweep: LiveSweep) -> Json:
        """One sweep in a line."""
        file, trials = sweep.file, sweep.search.trials
        best = sweep.search.best
        return {
            "id": sweep.id,
            "name": sweep.name,
            "tenant": file.tenant,
            "owner": sweep.asker.name,
            "state": sweep.state,
            "why": sweep.why,
            "created_s": sweep.created_s,
            "ended_s": sweep.ended_s,
            "sampler": file.sampler,
            "rule": file.stopping.rule,
            "metric": file.objective.metric,
            "goal": file.objective.goal,
            "trials": file.trials,
            "begun": len(trials),
            "states": {state.value: sum(trial.state is state for trial in trials) for state in TrialState},
            "best": None if best is None else self._best(sweep, best),
        }

    def _best(self, sweep: LiveSweep, best: SweepTrial) -> Json:
        return {
            "trial": best.number,
            "job": best.job_id,
            "value": sweep.file.shown(best.loss),
            "step": next(step for step, loss in best.curve if loss == best.loss),
            "params": best.params,
        }

    def whole(self, sweep: LiveSweep, *, shows_env: bool) -> Json:
        """A sweep with its file, its trials and the importance of its parameters."""
        device_s = self._device_s(sweep)
        trials = [self._trial(sweep, trial, device_s.get(trial.job_id)) for trial in sweep.search.trials]
        return {
            **self.summary(sweep),
            "file": {**sweep.values, "job": masked(sweep.values["job"], whole=not shows_env)},
            "device_s": sum(value for value in device_s.values()),
            "importance": importance(sweep.file, sweep.search.trials),
            "runs": trials,
        }

    def _trial(self, sweep: LiveSweep, trial: SweepTrial, device_s: float | None) -> Json:
        file = sweep.file
        return {
            "trial": trial.number,
            "job": trial.job_id,
            "state": trial.state.value,
            "why": trial.why,
            "params": trial.params,
            "value": file.shown(trial.loss),
            "last": file.shown(trial.curve[-1][1]) if trial.curve else None,
            "step": trial.step,
            "device_s": device_s,
            "curve": [[step, file.shown(loss)] for step, loss in trial.curve if math.isfinite(loss)],
        }

    def _device_s(self, sweep: LiveSweep) -> dict[str, float]:
        """The device time of each trial, by its job: what its tasks held, paused time not included."""
        jobs = [trial.job_id for trial in sweep.search.trials]
        return device_times_s(self._control, self._records, jobs)
