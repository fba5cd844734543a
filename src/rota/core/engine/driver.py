"""The contract between the engine and a driver, which carries decisions out and answers with events.

The simulator, the local driver and the Kubernetes driver implement the same protocol. They differ in when they answer:
the simulator at once, the others while their tasks and pods start and end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rota.core.errors import RotaError
from rota.core.messages.decisions import Decision, DecisionKind, kinds_of
from rota.core.messages.events import Event
from rota.core.model.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverContract:
    """The name of a driver, and the kinds of decision that it carries out."""

    name: str
    supports: frozenset[DecisionKind]

    def refuse(self, policy: str, emits: Iterable[DecisionKind]) -> None:
        """Raise a `RotaError` that names both sides if a policy emits a kind that the driver does not support."""
        missing = [kind.value for kind in DecisionKind if kind in set(emits) - self.supports]
        if missing:
            raise RotaError(
                f"policy {policy!r} emits {listed(missing)} decisions, which the {self.name} driver does not support; "
                "choose another policy"
            )

    def refuse_decision(self, decision: Decision, job: Job) -> None:
        """Raise a `RotaError` for a decision of a kind that the driver does not support, so that none is ignored."""
        missing = [kind.value for kind in DecisionKind if kind in kinds_of(decision, job) - self.supports]
        if missing:
            raise RotaError(
                f"job {job.id}: the policy emitted a decision of kind {listed(missing)}, which the {self.name} driver "
                "does not support; declare the kind in the policy's `emits`, and choose another policy for this driver"
            )


class Driver(Protocol):
    """Carries decisions out."""

    @property
    def contract(self) -> DriverContract:
        """What it is called and which kinds of decision it supports."""

    def carry_out(self, decisions: Sequence[Decision], now_s: float) -> list[Event]:
        """Begin to carry out decisions, in order. Return the answers that are known at once; others come as events."""


class LiveDriver(Driver, Protocol):
    """A driver whose tasks outlive the process that started them."""

    def take_up(self) -> None:
        """Find the tasks of all jobs of the state again and continue with the decisions that were under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitDetail:
    """What a driver knows about the end of a job beside the event: exit code, message, and failure code."""

    exit_code: int | None = None
    message: str = ""
    failure: str | None = None
    evidence: str = ""
    """The sign that told what went wrong, such as a line of output."""
    blame: str = ""
    """What has to change for the job to succeed: `job`, `node`, `network`, `storage` or `unknown`."""
    remedy: str = ""
    """What helps: `never`, `more-memory`, `retry`, `elsewhere` or `after-repair`."""


def listed(words: Sequence[str]) -> str:
    """Join words as a sentence does: `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
