"""How a policy introduces itself: name, citation, parameters, what it assumes. Everything else reads this."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from rota.core.engine.driver import DriverContract
from rota.core.engine.protocols import Allocator, Policy
from rota.core.errors import RotaError
from rota.core.messages.decisions import DecisionKind
from rota.core.state.job_record import JobView
from rota.mechanisms.consolidation import Consolidating, read_every_s
from rota.mechanisms.hooks import RetrainedPolicy, SimulationInput
from rota.mechanisms.ordering.list_scheduler import ListScheduler
from rota.mechanisms.ordering.rule import Backfill, Groups, OrderingRule, SimpleRule, Turn
from rota.mechanisms.parameters import NoParams, parse_parameters
from rota.perf.speed.model import SpeedModel
from rota.perf.training.reports import Reports

Emits: TypeAlias = frozenset[DecisionKind] | Callable[[Any], frozenset[DecisionKind]]
"""The kinds of decision that a policy emits; a function of its parameters where they decide it."""
NEVER_STOPS = frozenset({DecisionKind.START})
PREEMPTS = NEVER_STOPS | {DecisionKind.STOP, DecisionKind.RESIZE}
"""A plan that preempts may give a job other devices: an elastic job is then resized, any other stopped and started."""
LEASES = NEVER_STOPS | {DecisionKind.STOP, DecisionKind.LEASE}
RESIZES = PREEMPTS
SHARES = NEVER_STOPS | {DecisionKind.SHARE}
MOVES = PREEMPTS | {DecisionKind.MOVE}
"""A job whose new devices are not vacated yet is stopped and started there, so that what moves jobs also stops them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """The rows of the usual comparison table of schedulers."""

    prior_knowledge: str = "none"
    scheduling_input: str = "arrival order"
    dimensions: str = "space"
    priority: str = "none"
    preemption: str = "no"
    starvation: str = "possible"
    placement: str = "any"
    intrusiveness: str = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """What a policy may know beside the state: how fast jobs run, what they tell, what a restart costs; its chance."""

    speed: SpeedModel = field(default_factory=SpeedModel)
    reports: Reports = field(default_factory=Reports)
    restart_s: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredPolicy:
    """A policy that can be named on the command line."""

    name: str
    cites: str
    summary: str
    traits: Traits
    params: type
    placement: str
    make: Callable[[Any, Allocator, Knowledge], Policy]
    emits: Emits
    """The kinds of decision that it emits by itself; tenancies add stops, `consolidate_s` adds moves."""
    packs: bool = False
    """Whether jobs run concurrently on one device, so that it matters how fast each is beside the other."""
    spans_types: Callable[[Any], bool] | None = None
    """Whether the parameters let one job run on several device types at once; None: never."""
    plans_in_rounds: bool = False
    """Whether a job that arrives may have to wait for the end of a round though devices are free."""
    whole_cluster: bool = False
    """Whether it shares out all devices by itself, so that there is no room for tenancy."""
    differs: str = ""
    """Where it is not what the paper describes, in a sentence or two."""
    predicts_use: bool = False
    """Whether jobs share devices by how busy they will keep them, so that a manager should say what it knows."""
    remarks: Callable[[Any, SimulationInput], Iterable[str]] | None = None
    """Tells users which parameters or jobs have no effect in a simulation, one sentence each."""
    number_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of jobs that it reads as numbers above 0, each with the consequence of any other value."""
    retraining: RetrainedPolicy | None = None
    """How a manager improves its weights, if it is learned."""
    places: Callable[[Any], str] | None = None
    """The placement by the parameters, where they decide it."""
    live: str = ""
    """Options that are otherwise in a live manager than in a study, unless they are given."""

    def live_options(self, options: str) -> str:
        """The options with those of live use, unless others were given for them."""
        given = [part for part in options.split(",") if part]
        names = {part.partition("=")[0].strip() for part in given}
        return ",".join(
            [*given, *(part for part in self.live.split(",") if part and part.partition("=")[0] not in names)]
        )

    def placement_with(self, options: str) -> str:
        """The placement with these options, unless another is asked for."""
        return self.placement if self.places is None else self.places(self.read(options))

    def kinds(self, options: str) -> frozenset[DecisionKind]:
        """Return the kinds of decision that the policy emits with these options."""
        own = self.emits(self.read(options)) if callable(self.emits) else self.emits
        return own if read_every_s(options, f"policy {self.name!r}")[1] is None else own | MOVES

    def refuse_driver(self, options: str, driver: DriverContract, *, live: bool = False) -> None:
        """Raise a `RotaError` if options can't be parsed, or if the driver lacks a kind of decision that they need.

        With `live`, the options are completed by those of live use.
        """
        used = self.live_options(options) if live else options
        self.read(used)
        driver.refuse(f"{self.name}:{options}" if options else self.name, self.kinds(used))

    def can_span_types(self, options: str) -> bool:
        """Return whether one job may run on several device types at once with these options."""
        return self.spans_types is not None and self.spans_types(self.read(options))

    def remarks_on(self, options: str, given: SimulationInput) -> list[str]:
        """Return what users should know before a simulation with these options."""
        return [] if self.remarks is None else list(self.remarks(self.read(options), given))

    def build(self, options: str, allocator: Allocator, knowledge: Knowledge | None = None) -> Policy:
        """The policy with its parameters read from `key=value,key=value`; `consolidate_s` is everybody's."""
        own, every_s = read_every_s(options, f"policy {self.name!r}")
        policy = self.make(self.read(own), allocator, knowledge or Knowledge())
        if every_s is None:
            return policy
        if self.plans_in_rounds:
            raise RotaError(f"policy {self.name!r} places everybody anew in its rounds; leave consolidate_s out")
        if allocator.ledger is not None:
            raise RotaError("consolidate_s moves jobs whatever tenants were promised; use --tenancy none")
        return Consolidating(policy, every_s)

    def refuse_tenancy(self, tenancy: str) -> None:
        """A policy that shares out the whole cluster itself leaves no room for guarantees to tenants."""
        if (self.plans_in_rounds or self.whole_cluster) and tenancy != "none":
            raise RotaError(
                f"policy {self.name!r} shares out the whole cluster and can't run with tenancy {tenancy!r}; "
                "use --tenancy none, or an ordering policy"
            )

    def read(self, options: str) -> Any:
        """Parameters from `key=value,key=value`."""
        own, _ = read_every_s(options, f"policy {self.name!r}")
        return parse_parameters(self.params, own, f"policy {self.name!r}")


def by_rule(
    scheduler: Callable[..., Policy],
    name: str,
    rule: Callable[[Any, Knowledge], Any],
    *,
    cites: str,
    summary: str,
    params: type,
    traits: Traits,
    emits: Emits,
    packs: bool = False,
    plans_in_rounds: bool = False,
    differs: str = "",
    placement: str = "consolidate",
    predicts_use: bool = False,
    remarks: Callable[[Any, SimulationInput], Iterable[str]] | None = None,
) -> DeclaredPolicy:
    """Declare a policy that shares out the whole cluster: a scheduler with a rule, made of parameters and knowledge."""

    def make(values: Any, allocator: Allocator, knowledge: Knowledge) -> Policy:
        return scheduler(rule(values, knowledge), allocator, name=name)

    return DeclaredPolicy(
        name=name,
        cites=cites,
        summary=summary,
        traits=traits,
        params=params,
        placement=placement,
        make=make,
        plans_in_rounds=plans_in_rounds,
        differs=differs,
        whole_cluster=True,
        predicts_use=predicts_use,
        emits=emits,
        packs=packs,
        remarks=remarks,
    )


def ordering(
    name: str,
    *,
    cites: str = "",
    preempts: bool = False,
    backfill: Backfill | Callable[[Any], Backfill] = Backfill.ANY,
    groups: Callable[[Any], Groups] | None = None,
    placement: str = "consolidate",
    traits: Traits | None = None,
) -> Callable[[Any], DeclaredPolicy]:
    """Declare an ordering policy: a function `(job, now_s[, params]) -> Turn`, or a class made from its params.

    A class has `turn(job, now_s)`, and where it learns, `ended(job, now_s)` and `memory`.
    """

    def declare(subject: Any) -> DeclaredPolicy:
        params = _params_of(subject)

        def make(values: Any, allocator: Allocator, knowledge: Knowledge) -> Policy:
            fill = backfill if isinstance(backfill, Backfill) else backfill(values)
            group = None if groups is None else groups(values)
            return ListScheduler(_rule(subject, params, values, fill, preempts, group), allocator)

        return DeclaredPolicy(
            name=name,
            cites=cites,
            summary=(inspect.getdoc(subject) or "").split("\n")[0],
            traits=traits or Traits(preemption="yes" if preempts else "no", placement=placement),
            params=params,
            placement=placement,
            make=make,
            emits=PREEMPTS if preempts else NEVER_STOPS,
        )

    return declare


def _rule(
    subject: Any, params: type, values: Any, backfill: Backfill, preempts: bool, groups: Groups | None
) -> OrderingRule:
    if isinstance(subject, type):
        made: Any = subject(values)
        return SimpleRule(of=made.turn, backfill=backfill, preempts=preempts, groups=groups, learner=made)
    if params is NoParams:
        return SimpleRule(of=subject, backfill=backfill, preempts=preempts, groups=groups)

    def turn(job: JobView, now_s: float) -> Turn:
        return typing.cast(Turn, subject(job, now_s, values))

    return SimpleRule(of=turn, backfill=backfill, preempts=preempts, groups=groups)


def _params_of(subject: Any) -> type:
    """The dataclass that the subject's last argument is annotated with."""
    function = subject.__init__ if inspect.isclass(subject) else subject
    hints = typing.get_type_hints(function)
    hints.pop("return", None)
    for kind in hints.values():
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            return kind
    wanted = 1 if inspect.isclass(subject) else 3
    if len(inspect.signature(function).parameters) > wanted - 1 and not inspect.isclass(subject):
        raise RotaError(f"policy function {subject.__name__!r}: its third argument must be annotated with a dataclass")
    return NoParams
