"""The family of round policies: a rule gives jobs shares of time by device type, the round scheduler leases devices."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from enum import Enum

from rota.core.engine.protocols import Policy
from rota.core.errors import RotaError
from rota.mechanisms.declare import LEASES
from rota.mechanisms.family import Build, Family
from rota.mechanisms.rounds.checked import CheckedShareRule
from rota.mechanisms.rounds.lease_rules import LeaseRules, adaptive_round_s
from rota.mechanisms.rounds.rule import ShareRule
from rota.mechanisms.rounds.scheduler import LengthRule, RoundScheduler

DEFAULT_ROUND_S = 360.0


class RoundLength(Enum):
    """How the length of a round is found, if it is not a number of seconds."""

    ADAPTIVE = "adaptive"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundParams:
    """The length of a round in seconds, or `adaptive`: then it follows from the restart cost and the jobs' lengths."""

    round_s: float | RoundLength = DEFAULT_ROUND_S

    def __post_init__(self) -> None:
        if isinstance(self.round_s, float | int) and not 0 < self.round_s < math.inf:
            raise RotaError(f"round_s is {self.round_s:g}; it must be a finite number above 0, or adaptive")


def round_length(values: RoundParams, restart_s: float) -> tuple[float, LengthRule | None]:
    """The length of the first round, and the rule for those after it where the length adapts."""
    if isinstance(values.round_s, RoundLength):
        return DEFAULT_ROUND_S, lambda jobs, now_s: adaptive_round_s(jobs, now_s, restart_s)
    return values.round_s, None


def _schedule(rule: ShareRule, build: Build) -> Policy:
    round_s, length = round_length(build.values, build.knowledge.restart_s)
    return RoundScheduler(
        rule,
        build.knowledge.speed,
        name=build.name,
        round_s=round_s,
        length=length,
        lease_rules=LeaseRules(build.knowledge.restart_s),
        rng=random.Random(build.knowledge.seed),
    )


def _packs(rule: object) -> bool:
    """Whether a rule, or the class of one, states that two jobs may share devices."""
    return getattr(rule, "packs", False) is True


rounds = Family(
    schedule=_schedule,
    check=CheckedShareRule,
    emits=LEASES,
    packs=_packs,
    params=RoundParams,
    whole_cluster=False,
    plans_in_rounds=True,
    asks_guard=False,
    placement="any",
    draws=True,
)
