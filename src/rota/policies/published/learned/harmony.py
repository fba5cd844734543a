"""Harmony: placement that is learned from how fast jobs ran beside each other (Bao et al., INFOCOM 2019)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from rota.core.engine.protocols import Allocator, Policy
from rota.core.errors import RotaError
from rota.core.state.job_record import JobView
from rota.mechanisms.consolidation import Consolidating
from rota.mechanisms.declare import NEVER_STOPS, DeclaredPolicy, Knowledge, Traits
from rota.mechanisms.hooks import RetrainingPlan, SimulationInput
from rota.mechanisms.learned.actor import Actor
from rota.mechanisms.learned.interval_placement import IntervalPlacement
from rota.mechanisms.learned.weights import Learned, load_learned
from rota.mechanisms.ordering.list_scheduler import ListScheduler
from rota.mechanisms.ordering.rule import Backfill, SimpleRule, Turn
from rota.perf.speed.shared_servers import unknown_kinds

SHIPPED = Path(__file__).with_name("harmony.npz")
"""Weights that come with Rota; they say themselves how they were trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HarmonyParams:
    """`weights` is a file of `rota learn train`, or empty for those that come with Rota; `interval_s` is how often new
    jobs are placed together, 0 at once; without `length` the network is not told how long jobs are; `learn_s` is how
    often a manager learns anew from its journal, 0 never, and `learn_from` how many speeds it must have seen for
    that."""

    weights: str = ""
    interval_s: float = 0.0
    length: bool = True
    learn_s: float = 3600.0
    learn_from: int = 100

    def __post_init__(self) -> None:
        if self.learn_from < 1:
            raise RotaError(f"learn_from is {self.learn_from}; it must be a number of speeds, 1 or more")
        for name, seconds in (("interval_s", self.interval_s), ("learn_s", self.learn_s)):
            if not 0 <= seconds < float("inf"):
                raise RotaError(f"{name} is {seconds:g}; it must be a number of seconds, 0 or more")


@lru_cache(maxsize=4)
def _loaded(path: Path, changed_ns: int) -> Learned:
    return load_learned(path)


def learned(weights: str) -> Learned:
    """The weights by their file's name; read again only if the file changed."""
    path = Path(weights) if weights else SHIPPED
    return _loaded(path, path.stat().st_mtime_ns if path.is_file() else 0)


def _first_come(job: JobView, now_s: float) -> Turn:
    return Turn((job.seq,))


def _make(params: HarmonyParams, allocator: Allocator, knowledge: Knowledge) -> Policy:
    order = ListScheduler(SimpleRule(of=_first_come, backfill=Backfill.ANY, preempts=False), allocator)
    actor = Actor(learned(params.weights).network, knows_length=params.length)
    return IntervalPlacement(order, actor, params.interval_s, says_so=True)


def _remarks(params: HarmonyParams, given: SimulationInput) -> Iterator[str]:
    """Tell of which jobs the network knows no kind."""
    if lacking := unknown_kinds(given.jobs, learned(params.weights).network.kinds):
        yield f"{lacking}; its weights take them all for one unknown kind"


class HarmonyWeights:
    """The weights of the placement network, as a manager retrains them."""

    def plan(self, params: HarmonyParams) -> RetrainingPlan:
        """Return the plan that the parameters ask for."""
        weights = Path(params.weights) if params.weights else SHIPPED
        return RetrainingPlan(weights=weights, every_s=params.learn_s, fewest=params.learn_from)

    def check(self, weights: Path) -> None:
        """Raise a `RotaError` if a file does not hold usable weights."""
        load_learned(weights)

    def options_with(self, options: str, weights: Path) -> str:
        """Return the options with these weights in place of those they name."""
        others = [part for part in options.split(",") if part and part.partition("=")[0].strip() != "weights"]
        return ",".join([f"weights={weights}", *others])

    def swap(self, policy: Policy, params: HarmonyParams) -> Callable[[], None]:
        """Load the weights that the parameters name; return what lets the built policy use them."""
        placing = policy.inner if isinstance(policy, Consolidating) else policy
        assert isinstance(placing, IntervalPlacement)
        actor = Actor(load_learned(self.plan(params).weights).network, knows_length=params.length)
        return lambda: placing.use(actor)


harmony = DeclaredPolicy(
    name="harmony",
    cites="Bao et al., INFOCOM 2019",
    summary="First in first out, each task where a network has learned that it and those beside it run fast.",
    traits=Traits(
        prior_knowledge="model; length, where jobs give it; how fast jobs ran beside each other",
        scheduling_input="arrival order, who is on which server",
        placement="learned",
    ),
    params=HarmonyParams,
    placement="consolidate",
    make=_make,
    whole_cluster=True,
    differs="The networks see each server through the same encoder, so that one set of weights serves clusters of any "
    "size. Jobs of an interval are placed in order of arrival: the network chooses role and server, not the job. "
    "Training compares several placements of a job by what the reward model says of each. Jobs that share or change "
    "devices, want nodes for themselves or insist on a locality, and those for whose tasks it finds no room go where "
    "the placement by name puts them.",
    emits=NEVER_STOPS,
    remarks=_remarks,
    retraining=HarmonyWeights(),
)
