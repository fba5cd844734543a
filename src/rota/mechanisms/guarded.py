"""A policy under a preemption guard: it plans as before, but spares the jobs that the guard protects.

The guard's options work with every policy that asks it: `protect=unsaved`, `min_run_s=60`, `min_run_growth=2`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from enum import Enum
from typing import Any

from rota.core.engine.draft import Draft
from rota.core.engine.preemption_guard import OPEN, PreemptionGuard
from rota.core.engine.protocols import Capabilities, Changes, Policy
from rota.core.errors import RotaError
from rota.core.messages.reasons import Reason
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State


class Protect(Enum):
    """Which running jobs a policy never stops: none, or those that would start over."""

    NONE = "none"
    UNSAVED = "unsaved"


GUARD_OPTIONS = ("protect", "min_run_s", "min_run_growth")
"""The names of the guard's options, which no policy's own parameters may have."""


class Guarded:
    """A policy whose plans carry a guard. When a job loses its protection, the policy plans again."""

    def __init__(self, policy: Policy, guard: PreemptionGuard) -> None:
        self._policy = policy
        self._guard = guard
        self._due_s = math.inf
        """When the first job that was spared loses its protection."""

    @property
    def capabilities(self) -> Capabilities:
        """Those of the policy inside."""
        return self._policy.capabilities

    @property
    def inner(self) -> Policy:
        """The policy that is guarded."""
        return self._policy

    @property
    def wakeup_s(self) -> float:
        """When the policy wants to plan, or when a spared job loses its protection."""
        return min(self._policy.wakeup_s, self._due_s)

    @property
    def memory(self) -> Any:
        """What the policy remembers; the guard remembers nothing beyond the jobs."""
        return self._policy.memory

    def adopt(self, state: State) -> None:
        """Rebuild from a state; the first plan finds out again which jobs it has to spare."""
        self._policy.adopt(state)
        self._due_s = state.now_s if any(live.placement is not None for live in state.jobs.values()) else math.inf

    def note(self, changes: Changes, now_s: float) -> None:
        """Pass changes on."""
        self._policy.note(changes, now_s)

    def plan(self, draft: Draft) -> None:
        """Let the policy plan with the guard in its draft."""
        if self._due_s <= draft.now_s:
            self._policy.note(Changes(freed=True), draft.now_s)
            self._due_s = math.inf
        draft.guard = self._guard
        self._policy.plan(draft)
        self._due_s = min(self._due_s, draft.guard_wakeup_s)

    def explain(self, waiting: LiveJob, draft: Draft) -> Reason:
        """The policy's reason."""
        draft.guard = self._guard
        return self._policy.explain(waiting, draft)


def read_guard(options: str, owner: str) -> tuple[str, PreemptionGuard]:
    """Return a policy's own options, and the guard that the others describe."""
    own, given = _split(options)
    values: dict[str, str] = {}
    for option in given:
        key, _, text = option.partition("=")
        if key.strip() in values:
            raise RotaError(f"{owner}: parameter {key.strip()!r} is given twice")
        values[key.strip()] = text.strip()
    guard = OPEN
    if "protect" in values:
        known = ", ".join(each.value for each in Protect)
        if values["protect"] not in {each.value for each in Protect}:
            raise RotaError(f"{owner}: protect is {values['protect']!r}; it must be one of {known}")
        guard = replace(guard, protects_unsaved=Protect(values["protect"]) is Protect.UNSAVED)
    try:
        if "min_run_s" in values:
            guard = replace(guard, min_run_s=_number("min_run_s", values["min_run_s"]))
        if "min_run_growth" in values:
            guard = replace(guard, growth=_number("min_run_growth", values["min_run_growth"]))
    except RotaError as error:
        raise RotaError(f"{owner}: {error}") from None
    return ",".join(own), guard


def with_guard(options: str, guard: PreemptionGuard) -> str:
    """Return a policy's options, completed by those of a guard; what the options name themselves stays."""
    named = {option.partition("=")[0].strip() for option in _split(options)[1]}
    protect = Protect.UNSAVED if guard.protects_unsaved else Protect.NONE
    found = {"protect": protect.value, "min_run_s": f"{guard.min_run_s:g}"}
    if guard.growth != OPEN.growth:
        found["min_run_growth"] = f"{guard.growth:g}"
    more = [f"{name}={text}" for name, text in found.items() if name not in named]
    return ",".join([*filter(None, options.split(",")), *more])


def _split(options: str) -> tuple[list[str], list[str]]:
    own: list[str] = []
    given: list[str] = []
    for option in options.split(","):
        (given if option.partition("=")[0].strip() in GUARD_OPTIONS else own).append(option)
    return own, given


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise RotaError(f"{name} is {text!r}; it must be a number") from None
