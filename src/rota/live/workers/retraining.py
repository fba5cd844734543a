"""Retraining of learned policies from the journal, in a worker process: the manager's side.

New weights take the place of the old ones only if the jobs of the last days end sooner with them in simulation. What
came of it is in the log and in the audit log; a new journal segment begins with new weights, and names them.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from dataclasses import replace
from pathlib import Path

from rota.core.codec.values import encode_cluster
from rota.core.errors import RotaError, Unavailable
from rota.live.loop.boot import Scheduling, header_of
from rota.live.loop.control import Control
from rota.live.loop.entry import JournalSegment, LoopEntry
from rota.live.workers.worker_process import Json, WorkerProcess
from rota.mechanisms.hooks import RetrainingPlan
from rota.policies import find_policy
from rota.store import clock

log = logging.getLogger(__name__)
KEPT = "weights"
"""The folder of all weights that were ever used, so that every journal can be replayed."""
ACTOR = "rota"
"""The name under which weights are changed, in the audit log."""
WHOLE_S = 600.0
LEAST_PART = 0.5


def weights_file(home: Path, policy: str) -> Path:
    """Return where a manager keeps the weights that it has learned for a policy."""
    return home / f"{policy}.npz"


def with_learned(scheduling: Scheduling, home: Path) -> Scheduling:
    """Return the scheduling with the weights that the manager has learned, if there are any that can be used."""
    declared, options = find_policy(scheduling.policy)
    own = weights_file(home, declared.name)
    if declared.retraining is None or not own.is_file():
        return scheduling
    try:
        declared.retraining.check(own)
        kept = home / KEPT / f"{declared.name}-{hashlib.sha256(own.read_bytes()).hexdigest()[:12]}.npz"
        kept.parent.mkdir(exist_ok=True)
        if not kept.is_file():
            kept.write_bytes(own.read_bytes())
    except (RotaError, OSError) as error:
        log.warning("weights refused", extra={"why": str(error)})
        return scheduling
    return replace(scheduling, policy=f"{declared.name}:{declared.retraining.options_with(options, kept)}")


def plan_of(scheduling: Scheduling) -> RetrainingPlan | None:
    """Return how the policy's weights are improved; None if it has none."""
    declared, options = find_policy(scheduling.policy)
    return None if declared.retraining is None else declared.retraining.plan(declared.read(options))


class Retraining:
    """Asks the worker for better weights at intervals, and lets the policy use those that proved better."""

    def __init__(self, control: Control, scheduling: Scheduling, database: str, home: Path) -> None:
        self._control = control
        self._scheduling = scheduling
        self._database = database
        self._home = home
        self._helper = WorkerProcess("rota.live.workers.retraining_worker")

    async def run(self) -> None:
        """Retrain until cancelled; return at once if the policy is not retrained."""
        plan = plan_of(self._scheduling)
        if plan is None or not plan.every_s:
            return
        while True:
            await asyncio.sleep(plan.every_s)
            try:
                await self.learn()
            except (RotaError, Unavailable) as error:
                log.warning("nothing learned", extra={"why": str(error)})

    async def learn(self) -> Json:
        """Retrain once, and use the new weights if they are better."""
        plan = plan_of(self._scheduling)
        assert plan is not None, "the policy is retrained"
        name = find_policy(self._scheduling.policy)[0].name
        question = {
            "fewest": plan.fewest,
            "part": part_of(plan.every_s),
            "database": self._database,
            "home": str(self._home),
            "policy": name,
            "weights": str(plan.weights),
            "cluster": encode_cluster(self._scheduling.cluster),
            "placement": self._scheduling.placement,
        }
        try:
            result = await self._helper.ask(question)
        finally:
            await self._helper.close()
        if "old_s" not in result:
            log.info("nothing learned", extra=result)
            return result
        what = "weights-swap" if result["better"] else "weights-keep"
        audit: Json = {"at_s": clock.now_s(), "who": ACTOR, "what": what, "thing": name, "detail": detail_of(result)}
        entry = LoopEntry([], audit=[audit])
        if result["better"]:
            entry.segment = self._taken_up()
        await self._control.apply(entry)
        log.info(what, extra=result)
        return result

    def _taken_up(self) -> JournalSegment | None:
        """Return the journal segment that begins with the weights in the manager's folder."""
        self._scheduling = scheduling = with_learned(self._scheduling, self._home)
        control = self._control
        present = control.present
        declared, options = find_policy(scheduling.policy)
        assert declared.retraining is not None
        assert present is not None
        change = declared.retraining.swap(control.engine.policy, declared.read(options))
        placement = scheduling.placement or declared.placement_with(options)
        return JournalSegment(
            change,
            lambda: header_of(
                control.engine,
                present,
                scheduling.policy,
                placement,
                scheduling,
                "new weights of a live manager",
            ),
        )

    async def close(self) -> None:
        """Stop the worker."""
        await self._helper.close()


def part_of(learn_s: float) -> float:
    """Return the training effort: full for intervals of ten minutes or more, less for shorter ones, down to half."""
    return min(max(learn_s / WHOLE_S, LEAST_PART), 1.0)


def detail_of(result: Json) -> str:
    """Return the result of a retraining as the audit log shows it."""
    return (
        f"{result['why']}: {result['new_s']:,.1f} s on average with what was learned from {result['seen']:,} speeds, "
        f"{result['old_s']:,.1f} s with the weights in use"
    )
