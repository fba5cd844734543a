"""A manager with a learned placement keeps learning from its journal, in a process of its own: the asking end.

New weights take the place of the old ones only if the jobs of the last days end sooner with them in simulation.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from rota.core.codec import encode_cluster
from rota.core.errors import RotaError, Unavailable
from rota.live.boot import Scheduling
from rota.live.control import Control
from rota.live.helper import Helper, Json
from rota.mechanisms.actor import Actor
from rota.mechanisms.placing import Placing
from rota.mechanisms.weights import load_learned
from rota.policies import find_policy
from rota.policies.harmony import SHIPPED, HarmonyParams

log = logging.getLogger(__name__)
FILE = "harmony.npz"


class Tutor:
    """The asking end: asks now and then, and lets the policy use weights that proved better."""

    def __init__(self, control: Control, scheduling: Scheduling, database: str, home: Path) -> None:
        self._control = control
        self._scheduling = scheduling
        self._database = database
        self._home = home
        self._helper = Helper("rota.live.tutor_work")
        declared, options = find_policy(scheduling.policy)
        params = declared.read(options)
        self._params = params if isinstance(params, HarmonyParams) else None

    @property
    def weights(self) -> Path:
        """Those in use: the manager's own if it has learned some, else as the policy says."""
        own = self._home / FILE
        given = self._params.weights if self._params is not None else ""
        return own if own.is_file() else Path(given) if given else SHIPPED

    async def run(self) -> None:
        """For ever, if the policy is one that learns."""
        if self._params is None or not self._params.learn_s:
            return
        self.take_up()
        while True:
            await asyncio.sleep(self._params.learn_s)
            try:
                said = await self.learn()
            except (RotaError, Unavailable) as error:
                said = {"why": str(error)}
            log.info("learned placement", extra=said)

    async def learn(self) -> Json:
        """Ask once; what came of it."""
        question = {
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
        if said["better"]:
            self.take_up()
        return said

    def take_up(self) -> None:
        """Use what was learned before; weights that can't be right are left alone."""
        policy = self._control.engine.policy
        if not isinstance(policy, Placing) or self.weights != self._home / FILE:
            return
        try:
            policy.use(Actor(load_learned(self.weights).network))
        except RotaError as error:
            log.warning("weights refused", extra={"why": str(error)})

    async def close(self) -> None:
        """No more will be asked."""
        await self._helper.close()
