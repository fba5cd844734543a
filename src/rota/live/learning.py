"""What a job will need, learned from those that have ended, in a process of its own: it is learned anew as jobs finish.

A manager asks when a job file says `auto`, and when somebody looks. An estimate is used only if its measured error is
within the bound; otherwise the usual amounts are, and what a user asked for always stands.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rota.core.errors import RotaError, Unavailable
from rota.core.model import WHOLE, JobId
from rota.estimate.estimator import Estimate, Estimator
from rota.files.auto import USUAL, autos, settled
from rota.files.job import job_file, job_of
from rota.live.helper import Helper, Json, answer_all
from rota.live.past_use import MB, PREDICTED, attributes, past_uses
from rota.perf.use import LABEL as UTILIZATION
from rota.store.database import open_database
from rota.store.records import Records

BOUND = 0.25
FEWEST = 8
AGAIN_AFTER = 3
"""After so many more jobs have succeeded it is learned anew."""
PATIENCE_S = 20.0
"""How long a submission waits for estimates."""


class Learning:
    """The asking end."""

    def __init__(self, records: Records, home: Path, bound: float = BOUND, *, predicts_use: bool = False) -> None:
        self._records = records
        self._setting = {"database": records.url, "home": str(home)}
        self._helper = Helper("rota.live.learning")
        self.bound = bound
        self._predicts_use = predicts_use
        """Whether the policy lets jobs share devices by how busy they will keep them."""

    async def estimates(self, spec: Mapping[str, Any]) -> dict[str, Estimate]:
        """By field of a job file: what a task will probably need; nothing where nothing could be learned."""
        if await asyncio.to_thread(self._records.succeeded_count) < FEWEST:
            return {}
        question = {**self._setting, "attributes": attributes(spec)}
        try:
            answer = await asyncio.wait_for(self._helper.ask(question), PATIENCE_S)
        except (RotaError, Unavailable, TimeoutError):
            return {}
        return {field: Estimate(**answer[label]) for field, label in PREDICTED.items() if label in answer}

    async def settle(self, values: Any) -> Any:
        """A job file with an amount in place of each `auto`, and where each comes from.

        For a policy that shares devices by use, a job of one GPU gets what is known of its use, too.
        """
        if not isinstance(values, dict) or not (autos(values) or (self._predicts_use and shares_by_use(values))):
            return values
        job_file(values)
        known = await self.estimates(values)
        return settled_by(known, values, self.bound, predicts_use=self._predicts_use)

    async def close(self) -> None:
        """No more will be asked."""
        await self._helper.close()


def amount(field: str, found: Estimate) -> float:
    """What is asked for: memory by the upper end, for want of it ends a job; of the others the likely amount."""
    match field:
        case "gpus":
            return max(round(found.value), 0)
        case "cpus":
            return max(math.ceil(found.value), 1)
        case _:
            return math.ceil(found.high / 16) * 16 * MB


def settled_by(known: Mapping[str, Estimate], values: Json, bound: float, *, predicts_use: bool = False) -> Json:
    """A job file with what estimates of it are worth."""
    use = known.get(UTILIZATION)
    if predicts_use and shares_by_use(values) and use is not None and use.is_trusted(bound):
        values = _with_use(values, use, known.get("gpu_memory"), bound)
    amounts: dict[str, object] = {}
    told: dict[str, Json] = {}
    for field in autos(values):
        found = known.get(field)
        trusted = found is not None and found.is_trusted(bound)
        amounts[field] = amount(field, found) if found is not None and trusted else USUAL[field]
        told[field] = {"given": amounts[field], "trusted": trusted, "error": None if found is None else found.error}
    return {**settled(values, amounts), "estimated": {**values.get("estimated", {}), **told}} if told else values


def shares_by_use(values: Mapping[str, Any]) -> bool:
    """Whether a job could share its GPU by how busy it keeps it: one task with one GPU, which does not say itself."""
    if not isinstance(values.get("resources"), dict) or values.get("roles") or "gpus" in autos(values):
        return False
    job = job_of(job_file(values), JobId("asked"))
    return job.tasks == 1 and job.gpu_milli == WHOLE and UTILIZATION not in dict(job.labels)


def _with_use(values: Json, use: Estimate, memory: Estimate | None, bound: float) -> Json:
    """The job file with how busy it will keep its GPU, and how much of its memory it needs if it does not say."""
    busy = round(min(use.value / 100, 1.0), 2)
    told: Json = {UTILIZATION: {"given": busy, "trusted": True, "error": use.error}}
    resources = dict(values["resources"])
    if "gpu_memory" not in resources and memory is not None and memory.is_trusted(bound):
        resources["gpu_memory"] = amount("gpu_memory", memory)
        told["gpu_memory"] = {"given": resources["gpu_memory"], "trusted": True, "error": memory.error}
    labels = {**(values.get("labels") or {}), UTILIZATION: str(busy)}
    return {**values, "labels": labels, "resources": resources, "estimated": told}


def in_units(field: str, found: Estimate) -> Json:
    """An estimate in GPUs, CPUs or bytes."""
    unit = MB if field in ("memory", "gpu_memory") else 1
    return {
        "value": found.value * unit,
        "low": found.low * unit,
        "high": found.high * unit,
        "error": found.error,
    }


def main() -> None:
    """The answering end."""
    answer_all(_Learner().answer)


class _Learner:
    """Keeps what was learned until enough more jobs have succeeded."""

    def __init__(self) -> None:
        self._seen = -AGAIN_AFTER
        self._estimator = Estimator((), {})

    def answer(self, question: Json) -> Json:
        records = Records(open_database(question["database"]))
        try:
            count = records.succeeded_count()
            if count >= self._seen + AGAIN_AFTER:
                self._estimator = self._learn(records, Path(question["home"]))
                self._seen = count
        finally:
            records.close()
        from rota.estimate.fit import one_thread

        with one_thread():
            return {label: asdict(self._estimator.predict(label, question["attributes"])) for label in self._trusts}

    @property
    def _trusts(self) -> list[str]:
        return [label for label in PREDICTED.values() if label in self._estimator.trust]

    def _learn(self, records: Records, home: Path) -> Estimator:
        from rota.estimate.fit import one_thread
        from rota.estimate.score import labels_in

        runs = [use.run for use in past_uses(records, home)]
        known = [label for label in labels_in(runs) if label in PREDICTED.values()]
        with one_thread():
            return Estimator.learn(runs, known)
