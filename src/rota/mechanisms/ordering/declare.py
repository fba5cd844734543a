"""The family of ordering policies: a function gives each job a sort key, the list scheduler starts jobs in order."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable
from typing import Any

from rota.core.engine.protocols import Allocator, Policy
from rota.core.errors import RotaError
from rota.core.state.job_record import JobView
from rota.mechanisms.declare import NEVER_STOPS, PREEMPTS, DeclaredPolicy, Knowledge, Traits
from rota.mechanisms.family import by_annotations, first_line
from rota.mechanisms.ordering.checked import CheckedGroups, CheckedLearner, checked_turn
from rota.mechanisms.ordering.list_scheduler import ListScheduler
from rota.mechanisms.ordering.rule import Backfill, Groups, Learner, OrderingRule, Planning, SeesEnds, SimpleRule, Turn
from rota.mechanisms.parameters import NoParams
from rota.mechanisms.user_code import UserCode


def ordering(
    name: str,
    *,
    cites: str = "",
    preempts: bool = False,
    backfill: Backfill | Planning | Callable[[Any], Backfill | Planning] = Backfill.ANY,
    groups: Callable[[Any], Groups] | None = None,
    placement: str = "consolidate",
    traits: Traits | None = None,
) -> Callable[[Any], DeclaredPolicy]:
    """Declare an ordering policy: a function `(job, now_s[, params]) -> Turn`, or a class made from its parameters.

    A class has `turn(job, now_s)`, and where it learns, `ended(job, now_s)` and `memory`.
    """

    def declare(subject: Any) -> DeclaredPolicy:
        params = _params_of(subject)

        def make(values: Any, allocator: Allocator, knowledge: Knowledge) -> Policy:
            return ListScheduler(_rule(subject, params, values, knowledge, backfill, preempts, groups), allocator)

        def make_checked(values: Any, allocator: Allocator, knowledge: Knowledge, user: UserCode) -> Policy:
            rule = user.call(subject.__name__, _rule, subject, params, values, knowledge, backfill, preempts, groups)
            return ListScheduler(_checked(rule, subject, user), allocator)

        return DeclaredPolicy(
            name=name,
            cites=cites,
            summary=first_line(subject),
            traits=traits or Traits(preemption="yes" if preempts else "no", placement=placement),
            params=params,
            placement=placement,
            make=make,
            make_checked=make_checked,
            emits=PREEMPTS if preempts else NEVER_STOPS,
            divides_owners=groups is not None,
        )

    return declare


def _rule(
    subject: Any,
    params: type,
    values: Any,
    knowledge: Knowledge,
    backfill: Backfill | Planning | Callable[[Any], Backfill | Planning],
    preempts: bool,
    groups: Callable[[Any], Groups] | None,
) -> SimpleRule:
    """The rule with its parameters bound."""
    found = backfill if isinstance(backfill, Backfill | Planning) else backfill(values)
    fill, planning = (Backfill.PLAN, found) if isinstance(found, Planning) else (found, None)
    if planning is not None and (preempts or groups is not None):
        raise RotaError(f"{subject.__name__}: a policy with Planning neither preempts nor has groups")
    rule = SimpleRule(
        of=subject,
        backfill=fill,
        preempts=preempts,
        groups=None if groups is None else groups(values),
        planning=planning,
    )
    if isinstance(subject, type):
        made: Any = by_annotations(subject)[1](values, knowledge)
        rule.of = made.turn
        rule.learner = typing.cast(Learner, made) if isinstance(made, SeesEnds) else None
    elif params is not NoParams:

        def turn(job: JobView, now_s: float) -> Turn:
            return typing.cast(Turn, subject(job, now_s, values))

        rule.of = turn
    return rule


def _checked(rule: SimpleRule, subject: Any, user: UserCode) -> OrderingRule:
    """The rule with every answer checked."""
    function = f"{subject.__name__}.turn" if isinstance(subject, type) else subject.__name__
    if not isinstance(rule.backfill, Backfill):
        user.refuse("backfill", rule.backfill, "a Backfill")
    return SimpleRule(
        of=checked_turn(rule.of, function, user),
        backfill=rule.backfill,
        preempts=bool(rule.preempts),
        groups=None if rule.groups is None else CheckedGroups(rule.groups, user),
        learner=None if rule.learner is None else CheckedLearner(rule.learner, user),
        planning=rule.planning,
    )


def _params_of(subject: Any) -> type:
    """The dataclass that a class is made from, or that annotates the function's third argument."""
    if isinstance(subject, type):
        if not callable(getattr(subject, "turn", None)):
            raise RotaError(f"policy class {subject.__name__!r} has no function turn(job, now_s)")
        return by_annotations(subject)[0]
    arguments = list(inspect.signature(subject).parameters)
    if len(arguments) not in (2, 3):
        raise RotaError(
            f"policy function {subject.__name__!r} takes {len(arguments)} arguments; it must take (job, now_s) or "
            "(job, now_s, params)"
        )
    if len(arguments) == 2:
        return NoParams
    kind = typing.get_type_hints(subject).get(arguments[2])
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return kind
    raise RotaError(f"policy function {subject.__name__!r}: its third argument must be annotated with a dataclass")
