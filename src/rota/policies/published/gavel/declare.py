"""How Gavel's policies are declared: a rule for shares, and the parameters that all of them have."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from rota.core.engine.protocols import Policy
from rota.core.errors import RotaError
from rota.core.messages.decisions import DecisionKind
from rota.mechanisms.declare import LEASES, RESIZES, SHARES, DeclaredPolicy, Knowledge, Traits
from rota.mechanisms.family import Build
from rota.mechanisms.hooks import SimulationInput
from rota.mechanisms.rounds.declare import RoundParams, round_length, rounds
from rota.mechanisms.rounds.lease_rules import LeaseRules
from rota.mechanisms.rounds.rule import SHARES_ONLY, RoundFeatures, ShareRule
from rota.mechanisms.rounds.scheduler import RoundScheduler
from rota.policies.published.gavel.compat import GavelLeaseRules
from rota.policies.published.gavel.forecast import ArrivalForecast

CITES = "Narayanan et al., OSDI 2020"
_PREFIX = "gavel/"
_TYPE_ORDER_SEED = 5
"""Gavel shuffles types with a generator of its own, whose seed is this much above the run's."""


class Compat(Enum):
    """The lease rules of rounds: the published simulator's, or those of a live cluster."""

    GAVEL = "gavel"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class GavelParams(RoundParams):
    """The length of a round in seconds, or `adaptive`; whether the published simulator's quirks are reproduced.

    An adaptive round's length follows from the restart cost and the jobs' remaining run times.
    """

    compat: Compat = Compat.GAVEL

    @property
    def features(self) -> RoundFeatures:
        """What the rounds may decide beyond the shares."""
        return SHARES_ONLY

    def remarks(self, given: SimulationInput) -> Iterable[str]:
        """Return which names in the parameters mean nothing in a simulation."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LpParams(GavelParams):
    """As above; `collapse` solves equivalent jobs as one, `spare` distributes what the least served leave.

    `forecast` leaves room in the shares for the jobs expected in the next hour, by recent arrivals.
    """

    collapse: bool = True
    spare: bool = True
    forecast: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeParams(LpParams):
    """As above; `collapse` solves equivalent jobs as one, `spare` distributes what the least served leave.

    `forecast` leaves room in the shares for the jobs expected in the next hour, by recent arrivals. With `elastic`, the
    number of tasks of elastic jobs is part of the decision; with `cross_type`, jobs of several tasks may run on
    several types at once (both only with `compat=none`).
    """

    elastic: bool = False
    cross_type: bool = False

    def __post_init__(self) -> None:
        RoundParams.__post_init__(self)
        refuse_with_quirks(self.compat, "elastic", self.elastic, "every job has one size")
        refuse_with_quirks(self.compat, "cross_type", self.cross_type, "every job runs on one type")

    @property
    def features(self) -> RoundFeatures:
        """What the rounds may decide beyond the shares."""
        return RoundFeatures(elastic=self.elastic, cross_type=self.cross_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackParams(SizeParams):
    """As the policies without pairs; with `mixed_sharing`, a job may share some of its devices with a smaller job and
    keep the others to itself (only with `compat=none`)."""

    mixed_sharing: bool = False

    def __post_init__(self) -> None:
        SizeParams.__post_init__(self)
        refuse_with_quirks(self.compat, "mixed_sharing", self.mixed_sharing, "pairs are of equal size")

    @property
    def features(self) -> RoundFeatures:
        """What the rounds may decide beyond the shares."""
        return RoundFeatures(elastic=self.elastic, cross_type=self.cross_type, mixed_sharing=self.mixed_sharing)


def refuse_with_quirks(compat: Compat, option: str, is_on: bool, why: str) -> None:
    """Refuse an option that the published simulator lacks together with that simulator's quirks."""
    if is_on and compat is Compat.GAVEL:
        raise RotaError(f"{option}=true needs compat=none: in the published simulator {why}")


def _schedule(rule: ShareRule, build: Build) -> Policy:
    """Lease by the published simulator's rules, or by those of a live cluster, as `compat` says."""
    values, knowledge = build.values, build.knowledge
    round_s, length = round_length(values, knowledge.restart_s)
    return RoundScheduler(
        ArrivalForecast(rule) if isinstance(values, LpParams) and values.forecast else rule,
        knowledge.speed,
        name=build.name.removeprefix(_PREFIX),
        round_s=round_s,
        length=length,
        lease_rules=(GavelLeaseRules if values.compat is Compat.GAVEL else LeaseRules)(knowledge.restart_s),
        rng=random.Random(knowledge.seed + _TYPE_ORDER_SEED),
        features=values.features,
    )


_gavel_rounds = replace(rounds, schedule=_schedule, params=GavelParams)


def gavel(
    name: str,
    rule: Callable[[Any, Knowledge], ShareRule],
    *,
    summary: str,
    params: type = GavelParams,
    cites: str = CITES,
    knows: str = "speed by type",
    packs: bool = False,
    starvation: str = "no",
) -> DeclaredPolicy:
    """Declare a policy from a rule made of its parameters and `Knowledge`; `packs` if two jobs share devices."""

    def emits(values: GavelParams) -> frozenset[DecisionKind]:
        return LEASES | (RESIZES if values.features.elastic else set()) | (SHARES if packs else set())

    return _gavel_rounds(
        f"{_PREFIX}{name}",
        rule,
        cites=cites,
        summary=summary,
        traits=Traits(
            prior_knowledge=knows,
            scheduling_input="time served on each type",
            dimensions="time and space",
            priority="share over time served",
            preemption="at the end of rounds",
            starvation=starvation,
            placement="any, packed" if packs else "any",
            intrusiveness="checkpoint",
        ),
        params=params,
        live="compat=none",
        emits=emits,
        packs=packs,
        remarks=lambda values, given: values.remarks(given),
        number_labels={"priority_weight": "it counts as 1", "slo": "it is no deadline"},
        spans_types=lambda values: values.features.cross_type,
    )
