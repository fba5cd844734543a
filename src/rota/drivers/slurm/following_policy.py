"""The policy of a twin that only observes: it plans what Slurm has already done, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rota.core.engine.draft import Draft
from rota.core.engine.protocols import Capabilities, Changes
from rota.core.errors import PlanRefused
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import JobId
from rota.core.model.placement import Placement
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.drivers.slurm.reasons import plain_words


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmReason(Reason):
    """Why a job waits: Slurm's code in plain words, and what Rota finds itself."""

    slurm_code: str = ""

    def sentence(self) -> str:
        """Slurm's code, its meaning, and Rota's own finding."""
        own = "" if self.code is ReasonCode.NOT_CONSIDERED else f"; {Reason.sentence(self)}"
        return f"{self.slurm_code or 'None'}: {plain_words(self.slurm_code)}{own}"


class FollowingPolicy:
    """Gives each job the devices on which Slurm runs it."""

    capabilities = Capabilities(asks_guard=True, spares_others=True)

    def __init__(self, code_of: Callable[[JobId], str]) -> None:
        self._code_of = code_of
        self._state: State | None = None
        self.claims: dict[JobId, Placement] = {}
        """Where Slurm runs jobs that still wait here."""
        self.refused: dict[JobId, str] = {}
        """Jobs whose devices are held by others, by what Rota knows."""

    @property
    def wakeup_s(self) -> float:
        """At once while there is something to follow."""
        return -math.inf if self.claims else math.inf

    @property
    def memory(self) -> Any:
        """Nothing: Slurm remembers."""
        return None

    def adopt(self, state: State) -> None:
        """Follow this state from now on."""
        self._state = state

    def note(self, changes: Changes, now_s: float) -> None:
        """Forget claims of jobs that left."""
        for live in changes.left:
            self.claims.pop(live.job.id, None)

    def plan(self, draft: Draft) -> None:
        """Assign what Slurm has assigned; what does not fit is left out and reported."""
        assert self._state is not None, "a policy adopts its state first"
        claims, self.claims = self.claims, {}
        for job_id, placement in claims.items():
            live = self._state.jobs.get(job_id)
            if live is None or live.placement is not None:
                continue
            try:
                draft.assign(live, placement)
            except PlanRefused as error:
                self.refused[job_id] = str(error)

    def explain(self, waiting: LiveJob, draft: Draft) -> Reason:
        """Slurm's reason, with what the free devices say."""
        code = self._code_of(waiting.job.id)
        found = draft.offer(waiting)
        if not isinstance(found, Reason) or code not in ("Resources", "None", ""):
            return SlurmReason(code=ReasonCode.NOT_CONSIDERED, slurm_code=code)
        return SlurmReason(
            code=found.code,
            need_milli=found.need_milli,
            free_milli=found.free_milli,
            device_type=found.device_type,
            owned_milli=found.owned_milli,
            slurm_code=code,
        )
