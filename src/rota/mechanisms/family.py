"""How policies of one family are declared: a rule, and the scheduler that carries out what the rule answers.

Each family has one `Family` value in its `declare` module, named as the family is. It is called with a name and a rule,
or used as a decorator above the rule's class: `elastic("afs-l", AfsL, params=AfsParams)`, `@elastic("mine")`.
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack, overload

from rota.core.engine.protocols import Allocator, Policy
from rota.core.errors import RotaError
from rota.mechanisms.declare import DeclaredPolicy, Emits, Knowledge, Traits
from rota.mechanisms.hooks import RetrainedPolicy, SimulationInput
from rota.mechanisms.parameters import NoParams
from rota.mechanisms.user_code import UserCode

RuleMaker = Callable[..., Any]
"""A class or function that returns a rule; it is called with the parameters and with what a policy may know."""


class About(TypedDict, total=False):
    """What a policy states of itself; see `DeclaredPolicy`."""

    cites: str
    summary: str
    params: type
    traits: Traits
    placement: str
    emits: Emits
    packs: bool
    spans_types: Callable[[Any], bool]
    remarks: Callable[[Any, SimulationInput], Iterable[str]]
    number_labels: Mapping[str, str]
    retraining: RetrainedPolicy
    plans_in_rounds: bool
    predicts_use: bool
    divides_owners: bool
    draws: bool
    differs: str
    live: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """What a scheduler is built from, beside its rule."""

    name: str
    values: Any
    """The parameters, an instance of the policy's parameter class."""
    allocator: Allocator
    knowledge: Knowledge


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A family of policies: how a rule becomes a policy, and how a user's rule is checked."""

    schedule: Callable[[Any, Build], Policy]
    """The scheduler of the family, with this rule."""
    check: Callable[[Any, UserCode], Any]
    """A rule that answers as the given one does, and refuses answers that the scheduler can't use."""
    emits: Emits
    """The kinds of decision that the scheduler emits, unless a policy states others."""
    packs: Callable[[object], bool] | None = None
    """Whether a rule, or the class of one, lets jobs run concurrently on one device; None: the declaration decides."""
    params: type = NoParams
    """The parameters that all policies of the family have: the base class of a policy's own."""
    whole_cluster: bool = True
    plans_in_rounds: bool = False
    asks_guard: bool = True
    """Whether the scheduler asks the preemption guard before it stops a job."""
    placement: str = "consolidate"
    resizes: bool = False
    """Whether the rule chooses sizes of elastic jobs."""
    draws: bool = False
    """Whether the scheduler makes random choices."""

    @overload
    def __call__(self, name: str, rule: RuleMaker, **about: Unpack[About]) -> DeclaredPolicy: ...

    @overload
    def __call__(
        self, name: str, rule: None = None, **about: Unpack[About]
    ) -> Callable[[RuleMaker], DeclaredPolicy]: ...

    def __call__(
        self, name: str, rule: RuleMaker | None = None, **about: Unpack[About]
    ) -> DeclaredPolicy | Callable[[RuleMaker], DeclaredPolicy]:
        """Declare a policy; without a rule, the decorator that does so. `about` is what it states of itself."""
        if rule is None:
            return lambda made: self.declare(name, made, **about)
        return self.declare(name, rule, **about)

    def declare(
        self,
        name: str,
        rule: RuleMaker,
        *,
        cites: str = "",
        summary: str = "",
        params: type | None = None,
        traits: Traits | None = None,
        placement: str = "",
        emits: Emits | None = None,
        packs: bool | None = None,
        spans_types: Callable[[Any], bool] | None = None,
        remarks: Callable[[Any, SimulationInput], Iterable[str]] | None = None,
        number_labels: Mapping[str, str] | None = None,
        retraining: RetrainedPolicy | None = None,
        plans_in_rounds: bool | None = None,
        predicts_use: bool = False,
        divides_owners: bool = False,
        draws: bool = False,
        differs: str = "",
        live: str = "",
    ) -> DeclaredPolicy:
        """Declare a policy. With `params`, the rule is made from them and `Knowledge`; otherwise by its annotations."""
        construct: Callable[[Any, Knowledge], Any] = rule
        packing = isinstance(rule, type) and self._states_packs(rule) if packs is None else packs
        if params is None:
            params, construct = by_annotations(rule, self.params)

        make, make_checked = self._makers(name, rule, construct, packing)
        where = placement or self.placement
        return DeclaredPolicy(
            name=name,
            cites=cites,
            summary=summary or first_line(rule),
            traits=traits or Traits(placement=where),
            params=params,
            placement=where,
            make=make,
            make_checked=make_checked,
            emits=self.emits if emits is None else emits,
            packs=packing,
            spans_types=spans_types,
            remarks=remarks,
            number_labels=number_labels or {},
            retraining=retraining,
            plans_in_rounds=self.plans_in_rounds if plans_in_rounds is None else plans_in_rounds,
            whole_cluster=self.whole_cluster,
            asks_guard=self.asks_guard,
            resizes=self.resizes,
            divides_owners=divides_owners,
            draws=self.draws or draws,
            differs=differs,
            predicts_use=predicts_use,
            live=live,
        )

    def _makers(
        self, name: str, rule: RuleMaker, construct: Callable[[Any, Knowledge], Any], packing: bool
    ) -> tuple[Callable[[Any, Allocator, Knowledge], Policy], Callable[[Any, Allocator, Knowledge, UserCode], Policy]]:
        """How the policy is made, and how it is made of a rule that a user wrote."""

        def make(values: Any, allocator: Allocator, knowledge: Knowledge) -> Policy:
            build = Build(name=name, values=values, allocator=allocator, knowledge=knowledge)
            return self.schedule(construct(values, knowledge), build)

        def make_checked(values: Any, allocator: Allocator, knowledge: Knowledge, user: UserCode) -> Policy:
            build = Build(name=name, values=values, allocator=allocator, knowledge=knowledge)
            made = user.call(getattr(rule, "__name__", name), construct, values, knowledge)
            return self.schedule(self._checked(made, user, packing), build)

        return make, make_checked

    def _states_packs(self, rule: object) -> bool:
        return self.packs is not None and self.packs(rule)

    def _checked(self, made: Any, user: UserCode, packing: bool) -> Any:
        """The user's rule with its answers checked; refuse one that packs jobs although it is not declared to."""
        checked = self.check(made, user)
        if self._states_packs(checked) and not packing:
            raise RotaError(
                f"policy {user.policy}: {type(made).__name__}.packs is True, but the policy is declared without "
                "sharing; set packs = True in the class, or declare it with packs=True"
            )
        return checked


def first_line(subject: Any) -> str:
    """The first line of a class's or function's documentation."""
    return (inspect.getdoc(subject) or "").split("\n")[0]


def by_annotations(rule: RuleMaker, base: type = NoParams) -> tuple[type, Callable[[Any, Knowledge], Any]]:
    """The parameter class of a rule, and how the rule is made: each argument is found by its annotation.

    One argument may be annotated with a dataclass, the parameters; one with `Knowledge`.
    """
    wanted = _annotated_arguments(rule)
    params: type = base
    for argument, kind in wanted.items():
        if kind is Knowledge:
            continue
        if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
            raise RotaError(
                f"policy {rule.__name__!r}: annotate argument {argument!r} with a dataclass of parameters "
                "or with Knowledge"
            )
        if base is not NoParams and not issubclass(kind, base):
            raise RotaError(f"policy {rule.__name__!r}: its parameters {kind.__name__} must extend {base.__name__}")
        params = kind

    def construct(values: Any, knowledge: Knowledge) -> Any:
        return rule(**{argument: knowledge if kind is Knowledge else values for argument, kind in wanted.items()})

    return params, construct


def _annotated_arguments(rule: RuleMaker) -> dict[str, Any]:
    """Arguments of a class's constructor, or of a function, by name; None where one has no annotation."""
    function: Any = getattr(rule, "__init__") if isinstance(rule, type) else rule  # noqa: B009  # mypy warns otherwise
    if function is object.__init__:
        return {}
    hints = typing.get_type_hints(function)
    arguments = [
        name
        for name, argument in inspect.signature(function).parameters.items()
        if argument.kind not in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD)
    ]
    return {name: hints.get(name) for name in (arguments[1:] if isinstance(rule, type) else arguments)}
