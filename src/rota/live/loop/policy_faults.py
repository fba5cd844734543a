"""A user's policy in a live manager: a fault in it ends a plan, not the manager.

After a fault nothing new is decided, what runs keeps running, and requests are answered. The policy is built again from
its file's functions and adopts the state, at the next change or after a while.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

from rota.core.engine.draft import Draft
from rota.core.engine.protocols import Capabilities, Changes, Policy
from rota.core.errors import RotaError
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State

log = logging.getLogger("rota.live")
RETRY_S = 10.0
"""After how long a policy that failed is tried again if nothing happens."""


def fault_of(policy: Policy) -> str | None:
    """Return what is wrong with a user's policy, if it failed when it was last asked."""
    return policy.fault if isinstance(policy, FaultyPolicy) else None


class FaultyPolicy:
    """A policy whose faults are reported and survived."""

    def __init__(self, build: Callable[[], Policy]) -> None:
        self._build = build
        self._policy = build()
        self._state: State | None = None
        self._retry_s = math.inf
        self._is_reported = ""
        self.fault: str | None = None
        """What was wrong when the policy was last asked; None if nothing was."""

    @property
    def capabilities(self) -> Capabilities:
        """Those of the policy inside."""
        return self._policy.capabilities

    @property
    def inner(self) -> Policy:
        """The policy whose faults are survived."""
        return self._policy

    @property
    def wakeup_s(self) -> float:
        """When the policy wants to plan, or when it is tried again."""
        if self.fault is not None:
            return self._retry_s
        try:
            return self._policy.wakeup_s
        except RotaError as error:
            self._failed(error)
            return self._retry_s

    @property
    def memory(self) -> Any:
        """What the policy remembers; nothing after a fault."""
        return None if self.fault is not None else self._policy.memory

    def adopt(self, state: State) -> None:
        """Rebuild from a state; a policy that can't even do that is tried again later."""
        self._state = state
        try:
            self._policy.adopt(state)
        except RotaError as error:
            self._failed(error)

    def note(self, changes: Changes, now_s: float) -> None:
        """Pass changes on; after a fault they are found in the state."""
        if self.fault is not None:
            return
        try:
            self._policy.note(changes, now_s)
        except RotaError as error:
            self._failed(error)

    def plan(self, draft: Draft) -> None:
        """Let the policy plan; after a fault, one that was built again."""
        try:
            if self.fault is not None:
                self._policy = self._build()
                if self._state is not None:
                    self._policy.adopt(self._state)
            self._policy.plan(draft)
        except RotaError as error:
            draft.abandon()
            self._failed(error)
            return
        if self.fault is not None:
            log.info("the policy works again")
        self.fault, self._is_reported = None, ""

    def explain(self, waiting: LiveJob, draft: Draft) -> Reason:
        """The policy's reason, or that it failed."""
        if self.fault is None:
            try:
                return self._policy.explain(waiting, draft)
            except RotaError as error:
                self._failed(error)
        return Reason(code=ReasonCode.POLICY_FAILED)

    def _failed(self, error: RotaError) -> None:
        self.fault = str(error)
        self._retry_s = (0.0 if self._state is None else self._state.now_s) + RETRY_S
        if self.fault != self._is_reported:
            self._is_reported = self.fault
            log.error("the policy failed; nothing new starts until it works again", extra={"error": self.fault})
