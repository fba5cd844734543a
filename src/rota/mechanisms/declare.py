"""What a policy declares: its name, citation, parameters and assumptions. Commands, REST and docs read this."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from rota.core.engine.driver import DriverContract
from rota.core.engine.preemption_guard import PreemptionGuard
from rota.core.engine.protocols import Allocator, Policy
from rota.core.errors import RotaError
from rota.core.messages.decisions import DecisionKind
from rota.mechanisms.consolidation import Consolidating, read_every_s
from rota.mechanisms.guarded import Guarded, read_guard
from rota.mechanisms.hooks import RetrainedPolicy, SimulationInput
from rota.mechanisms.parameters import parse_parameters
from rota.mechanisms.user_code import UserCode
from rota.perf.speed.model import SpeedModel
from rota.perf.training.reports import Reports

Emits: TypeAlias = frozenset[DecisionKind] | Callable[[Any], frozenset[DecisionKind]]
"""The kinds of decision that a policy emits; a function of its parameters where they decide it."""
NEVER_STOPS = frozenset({DecisionKind.START})
PREEMPTS = NEVER_STOPS | {DecisionKind.STOP, DecisionKind.RESIZE}
"""A plan that preempts may give a job other devices: an elastic job is then resized, any other stopped and started."""
LEASES = PREEMPTS | {DecisionKind.LEASE}
RESIZES = PREEMPTS
SHARES = NEVER_STOPS | {DecisionKind.SHARE}
MOVES = PREEMPTS | {DecisionKind.MOVE}
"""A job whose new devices are not vacated yet is stopped and started there, so that what moves jobs also stops them."""
_KINDS = "a set of DecisionKind, such as {DecisionKind.START}"


def _are_kinds(value: object) -> bool:
    """Whether a value is a set of kinds of decision."""
    return isinstance(value, Set) and all(isinstance(kind, DecisionKind) for kind in value)


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
    """What a policy may know beside the state: speeds, what jobs report, the cost of a restart, the random seed."""

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
    """Whether an arriving job may wait for the end of a round although devices are free."""
    asks_guard: bool = True
    """Whether it asks the preemption guard before it stops a job, so that the guard's options work with it."""
    whole_cluster: bool = False
    """Whether it divides all devices by itself, so that it can't run with tenancy."""
    resizes: bool = False
    """Whether it chooses sizes of elastic jobs, so that it does little for jobs of fixed size."""
    divides_owners: bool = False
    """Whether it divides devices among tenants or users, so that it does nothing for a single one."""
    draws: bool = False
    """Whether it makes random choices, so that a seed matters."""
    differs: str = ""
    """Where it differs from the paper, in a sentence or two."""
    predicts_use: bool = False
    """Whether jobs share devices by predicted utilisation, so that a manager passes on what it measured."""
    remarks: Callable[[Any, SimulationInput], Iterable[str]] | None = None
    """Returns which parameters or jobs have no effect in a simulation, one sentence each."""
    number_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of jobs that it reads as numbers above 0, each with the consequence of any other value."""
    retraining: RetrainedPolicy | None = None
    """How a manager improves its weights, if it is learned."""
    places: Callable[[Any], str] | None = None
    """The placement as a function of the parameters, where they decide it."""
    live: str = ""
    """Options whose default in a live manager differs from that in a simulation."""
    make_checked: Callable[[Any, Allocator, Knowledge, UserCode], Policy] | None = None
    """As `make`, for a rule that a user wrote: every answer of the rule is checked."""
    user: UserCode | None = None
    """The name of a policy that comes from a user's file or another package; None for a built-in one."""

    def written_by_user(self, policy: str) -> DeclaredPolicy:
        """The same policy as one from a user's file or package, whose answers are checked; errors name it so."""
        return replace(self, user=UserCode(policy))

    def live_options(self, options: str) -> str:
        """The options, completed by the defaults of a live manager."""
        given = [part for part in options.split(",") if part]
        names = {part.partition("=")[0].strip() for part in given}
        return ",".join(
            [*given, *(part for part in self.live.split(",") if part and part.partition("=")[0] not in names)]
        )

    def placement_with(self, options: str) -> str:
        """The default placement under these options."""
        return self.placement if self.places is None else self.places(self.read(options))

    def kinds(self, options: str) -> frozenset[DecisionKind]:
        """Return the kinds of decision that the policy emits with these options."""
        own = self._own_kinds(options)
        if self.packs:
            own |= {DecisionKind.SHARE}
        return own if self._common(options)[2] is None else own | MOVES

    def _own_kinds(self, options: str) -> frozenset[DecisionKind]:
        """The kinds as they are declared; those of a user's policy are checked."""
        if self.user is None:
            return self.emits(self.read(options)) if callable(self.emits) else self.emits
        if not callable(self.emits):
            if not _are_kinds(self.emits):
                self.user.refuse_attribute("emits", self.emits, f"{_KINDS}, or a function that returns one")
            return frozenset(self.emits)
        found = self.user.call("emits", self.emits, self.read(options))
        if not _are_kinds(found):
            self.user.refuse("emits", found, _KINDS)
        return frozenset(found)

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

    @property
    def gives_one_type(self) -> bool:
        """Whether a job runs at its full size on one device type: rounds without sizes divide types among jobs."""
        return self.plans_in_rounds and not self.resizes

    def remarks_on(self, options: str, given: SimulationInput) -> list[str]:
        """Return what users should know before a simulation with these options."""
        return [] if self.remarks is None else list(self.remarks(self.read(options), given))

    def build(self, options: str, allocator: Allocator, knowledge: Knowledge | None = None) -> Policy:
        """Build the policy with parameters from `key=value,key=value`, including those that all policies have."""
        own, guard, every_s = self._common(options)
        policy = self._made(self.read(own), allocator, knowledge or Knowledge())
        if every_s is not None:
            self._refuse_consolidation(has_guarantees=allocator.has_guarantees)
            policy = Consolidating(policy, every_s)
        return policy if guard.is_open else Guarded(policy, guard)

    def _common(self, options: str) -> tuple[str, PreemptionGuard, float | None]:
        """Its own options, and those that work with all policies: the guard, and the interval of consolidation."""
        owner = f"policy {self.name!r}"
        rest, guard = read_guard(options, owner)
        if not guard.is_open and not self.asks_guard:
            raise RotaError(f"{owner} stops jobs by rounds and can't spare any; use protect=none and min_run_s=0")
        own, every_s = read_every_s(rest, owner)
        return own, guard, every_s

    def _made(self, values: Any, allocator: Allocator, knowledge: Knowledge) -> Policy:
        if self.user is None or self.make_checked is None:
            return self.make(values, allocator, knowledge)
        return self.make_checked(values, allocator, knowledge, self.user)

    def refuse_tenancy(self, tenancy: str, options: str = "") -> None:
        """Refuse to combine a policy that divides the whole cluster, or options that move jobs, with guarantees."""
        if (self.plans_in_rounds or self.whole_cluster) and tenancy != "none":
            raise RotaError(
                f"policy {self.name!r} divides the whole cluster and can't run with tenancy {tenancy!r}; "
                "use --tenancy none, or an ordering policy"
            )
        if self._common(options)[2] is not None:
            self._refuse_consolidation(has_guarantees=tenancy != "none")

    def _refuse_consolidation(self, *, has_guarantees: bool) -> None:
        if self.plans_in_rounds:
            raise RotaError(f"policy {self.name!r} places all jobs again in each round; leave consolidate_s out")
        if has_guarantees:
            raise RotaError("consolidate_s moves jobs without regard to tenants' guarantees; use --tenancy none")

    def read(self, options: str) -> Any:
        """Read the parameters from `key=value,key=value`."""
        own = self._common(options)[0]
        if self.user is None:
            return parse_parameters(self.params, own, f"policy {self.name!r}")
        return self.user.call(self.params.__name__, parse_parameters, self.params, own, f"policy {self.name!r}")
