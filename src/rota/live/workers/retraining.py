"""A manager with a learned placement keeps learning from its journal, in a process of its own: the asking end.

New weights take the place of the old ones only if the jobs of the last days end sooner with them in simulation. What
came of it is in the log and in the audit log; a new stretch of the journal begins with new weights, and names them.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from dataclasses import replace
from pathlib import Path

from rota.core.codec.values import encode_cluster
from rota.core.errors import RotaError, Unavailable
from rota.live.loop.boot import Scheduling, header_of
from rota.live.loop.control import Control, JournalSegment, LoopEntry
from rota.live.workers.worker_process import Json, WorkerProcess
from rota.mechanisms.consolidation import Consolidating
from rota.mechanisms.learned.actor import Actor
from rota.mechanisms.learned.interval_placement import IntervalPlacement
from rota.mechanisms.learned.weights import load_learned
from rota.policies import find_policy
from rota.policies.published.learned.harmony import SHIPPED, HarmonyParams

log = logging.getLogger(__name__)
FILE = "harmony.npz"
KEPT = "weights"
"""The folder of all weights that were ever used, for those who run the journal again."""
WHO = "rota"
WHOLE_S = 600.0
LEAST_PART = 0.5


def with_learned(scheduling: Scheduling, home: Path) -> Scheduling:
    """The same, with the weights that the manager has learned if there are any; such as can't be right are left."""
    own = home / FILE
    if _params(scheduling) is None or not own.is_file():
        return scheduling
    try:
        load_learned(own)
        kept = home / KEPT / f"harmony-{hashlib.sha256(own.read_bytes()).hexdigest()[:12]}.npz"
        kept.parent.mkdir(exist_ok=True)
        if not kept.is_file():
            kept.write_bytes(own.read_bytes())
    except (RotaError, OSError) as error:
        log.warning("weights refused", extra={"why": str(error)})
        return scheduling
    declared, options = find_policy(scheduling.policy)
    others = [part for part in options.split(",") if part and part.partition("=")[0].strip() != "weights"]
    return replace(scheduling, policy=f"{declared.name}:{','.join([f'weights={kept}', *others])}")


def _params(scheduling: Scheduling) -> HarmonyParams | None:
    declared, options = find_policy(scheduling.policy)
    params = declared.read(options)
    return params if isinstance(params, HarmonyParams) else None


class Retraining:
    """The asking end: asks now and then, and lets the policy use weights that proved better."""

    def __init__(self, control: Control, scheduling: Scheduling, database: str, home: Path) -> None:
        self._control = control
        self._scheduling = scheduling
        self._database = database
        self._home = home
        self._helper = WorkerProcess("rota.live.workers.retraining_worker")

    @property
    def weights(self) -> Path:
        """Those in use."""
        params = _params(self._scheduling)
        return Path(params.weights) if params is not None and params.weights else SHIPPED

    async def run(self) -> None:
        """For ever, if the policy is one that learns."""
        params = _params(self._scheduling)
        if params is None or not params.learn_s:
            return
        while True:
            await asyncio.sleep(params.learn_s)
            try:
                await self.learn()
            except (RotaError, Unavailable) as error:
                log.warning("nothing learned", extra={"why": str(error)})

    async def learn(self) -> Json:
        """Ask once, and do as the answer says."""
        params = _params(self._scheduling) or HarmonyParams()
        question = {
            "fewest": params.learn_from,
            "part": part_of(params.learn_s),
            "database": self._database,
            "home": str(self._home),
            "weights": str(self.weights),
            "cluster": encode_cluster(self._scheduling.cluster),
            "placement": self._scheduling.placement,
        }
        try:
            said = await self._helper.ask(question)
        finally:
            await self._helper.close()
        if "old_s" not in said:
            log.info("nothing learned", extra=said)
            return said
        what = "weights-swap" if said["better"] else "weights-keep"
        audit: Json = {"at_s": time.time(), "who": WHO, "what": what, "thing": "harmony", "detail": detail_of(said)}
        entry = LoopEntry([], audit=[audit])
        if said["better"]:
            entry.stretch = self._taken_up()
        await self._control.apply(entry)
        log.info(what, extra=said)
        return said

    def _taken_up(self) -> JournalSegment | None:
        """From now on decisions are made with the weights in the manager's folder."""
        self._scheduling = scheduling = with_learned(self._scheduling, self._home)
        control = self._control
        policy, present = control.engine.policy, control.present
        placing = policy.inner if isinstance(policy, Consolidating) else policy
        assert isinstance(placing, IntervalPlacement)
        assert present is not None
        params = _params(scheduling) or HarmonyParams()
        actor = Actor(load_learned(self.weights).network, knows_length=params.length)
        declared, options = find_policy(scheduling.policy)
        placement = scheduling.placement or declared.placement_with(options)
        return JournalSegment(
            lambda: placing.use(actor),
            lambda: header_of(
                control.engine,
                present,
                scheduling.policy,
                placement,
                scheduling.tenancy,
                "new weights of a live manager",
            ),
        )

    async def close(self) -> None:
        """No more will be asked."""
        await self._helper.close()


def part_of(learn_s: float) -> float:
    """How much is learned at a time: who learns more often than every ten minutes takes less trouble, down to half."""
    return min(max(learn_s / WHOLE_S, LEAST_PART), 1.0)


def detail_of(said: Json) -> str:
    """What came of learning, in words that the audit log shows."""
    return (
        f"{said['why']}: {said['new_s']:,.1f} s on average with what was learned from {said['seen']:,} speeds, "
        f"{said['old_s']:,.1f} s with the weights in use"
    )
