"""How the policies of the family introduce themselves: a rule for shares, and the parameters that all have."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rota.core.engine.protocols import Allocator, Policy
from rota.core.errors import RotaError
from rota.core.messages.decisions import DecisionKind
from rota.mechanisms.declare import LEASES, RESIZES, SHARES, DeclaredPolicy, Knowledge, Traits
from rota.mechanisms.hooks import SimulationInput
from rota.mechanisms.rounds.lease_rules import LeaseRules, adaptive_round_s
from rota.mechanisms.rounds.rule import SHARES_ONLY, Freedoms, ShareRule
from rota.mechanisms.rounds.scheduler import RoundScheduler
from rota.policies.published.gavel.compat import GavelHabits
from rota.policies.published.gavel.forecast import ArrivalForecast

CITES = "Narayanan et al., OSDI 2020"
_USUAL_S = 360.0
_TYPE_ORDER_SEED = 5
"""Gavel draws the order of types from a generator of its own, seeded so much above the run's."""


class Compat(Enum):
    """Whose habits rounds are kept by."""

    GAVEL = "gavel"
    NONE = "none"


class Length(Enum):
    """How long a round takes, if not so many seconds."""

    ADAPTIVE = "adaptive"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundParams:
    """The length of a round in seconds, or `adaptive`; whether the published simulator's quirks are reproduced.

    An adaptive round's length follows from the restart cost and from how long jobs still run.
    """

    round_s: float | Length = _USUAL_S
    compat: Compat = Compat.GAVEL

    def __post_init__(self) -> None:
        if isinstance(self.round_s, float) and not 0 < self.round_s < math.inf:
            raise RotaError(f"round_s is {self.round_s:g}; it must be a finite number above 0, or adaptive")

    @property
    def freedoms(self) -> Freedoms:
        """What the rounds may decide beyond the shares."""
        return SHARES_ONLY

    def remarks(self, given: SimulationInput) -> Iterable[str]:
        """Return which names in the parameters mean nothing in a simulation."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LpParams(RoundParams):
    """As all of the family; `collapse` solves alike jobs as one, `spare` shares out what the least served leave.

    `forecast` leaves room in the shares for the jobs of the next hour, as many and such as came lately.
    """

    collapse: bool = True
    spare: bool = True
    forecast: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeParams(LpParams):
    """As all of the family; `collapse` solves alike jobs as one, `spare` shares out what the least served leave.

    `forecast` leaves room in the shares for the jobs of the next hour, as many and such as came lately. With `elastic`,
    the number of tasks of elastic jobs is part of the decision; with `cross_type`, jobs of several tasks may run on
    several types at once (both only with `compat=none`).
    """

    elastic: bool = False
    cross_type: bool = False

    def __post_init__(self) -> None:
        LpParams.__post_init__(self)
        refuse_with_quirks(self.compat, "elastic", self.elastic, "every job has one size")
        refuse_with_quirks(self.compat, "cross_type", self.cross_type, "every job runs on one type")

    @property
    def freedoms(self) -> Freedoms:
        """What the rounds may decide beyond the shares."""
        return Freedoms(elastic=self.elastic, cross_type=self.cross_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackParams(SizeParams):
    """As the policies without pairs; with `mixed_sharing`, a job may share some of its devices with a smaller one and
    have the others to itself (only with `compat=none`)."""

    mixed_sharing: bool = False

    def __post_init__(self) -> None:
        SizeParams.__post_init__(self)
        refuse_with_quirks(self.compat, "mixed_sharing", self.mixed_sharing, "pairs are of equal size")

    @property
    def freedoms(self) -> Freedoms:
        """What the rounds may decide beyond the shares."""
        return Freedoms(elastic=self.elastic, cross_type=self.cross_type, mixed_sharing=self.mixed_sharing)


def refuse_with_quirks(compat: Compat, option: str, is_on: bool, why: str) -> None:
    """An option that the published simulator has nothing like can't be had together with its quirks."""
    if is_on and compat is Compat.GAVEL:
        raise RotaError(f"{option}=true needs compat=none: in the published simulator {why}")


def shares(
    name: str,
    rule: Callable[[Any, Knowledge], ShareRule],
    *,
    summary: str,
    params: type = RoundParams,
    cites: str = CITES,
    knows: str = "speed by type",
    packs: bool = False,
    starvation: str = "no",
) -> DeclaredPolicy:
    """Declare a policy from a rule made of its parameters and of what may be known; `packs` if two share devices."""

    def make(values: Any, allocator: Allocator, knowledge: Knowledge) -> Policy:
        adapts = values.round_s is Length.ADAPTIVE
        habits = GavelHabits() if values.compat is Compat.GAVEL else LeaseRules(knowledge.restart_s)
        made = rule(values, knowledge)
        return RoundScheduler(
            ArrivalForecast(made) if isinstance(values, LpParams) and values.forecast else made,
            knowledge.speed,
            name=name,
            round_s=_USUAL_S if adapts else values.round_s,
            length=(lambda jobs, now_s: adaptive_round_s(jobs, now_s, knowledge.restart_s)) if adapts else None,
            habits=habits,
            rng=random.Random(knowledge.seed + _TYPE_ORDER_SEED),
            freedoms=values.freedoms,
        )

    def emits(values: RoundParams) -> frozenset[DecisionKind]:
        return LEASES | (RESIZES if values.freedoms.elastic else set()) | (SHARES if packs else set())

    return DeclaredPolicy(
        name=f"gavel/{name}",
        cites=cites,
        summary=summary,
        traits=Traits(
            prior_knowledge=knows,
            scheduling_input="time had on each type",
            dimensions="time and space",
            priority="share over time had",
            preemption="at the end of rounds",
            starvation=starvation,
            placement="any, packed" if packs else "any",
            intrusiveness="checkpoint",
        ),
        params=params,
        placement="any",
        make=make,
        plans_in_rounds=True,
        live="compat=none",
        emits=emits,
        packs=packs,
        remarks=lambda values, given: values.remarks(given),
        number_labels={"priority_weight": "it counts as 1", "slo": "it is no deadline"},
        spans_types=lambda values: values.freedoms.cross_type,
    )
