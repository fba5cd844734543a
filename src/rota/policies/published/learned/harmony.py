"""Harmony: placement learned from observed interference between jobs (Bao et al., INFOCOM 2019)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from rota.core.engine.protocols import Policy
from rota.core.errors import RotaError
from rota.mechanisms.consolidation import Consolidating
from rota.mechanisms.declare import Knowledge, Traits
from rota.mechanisms.guarded import Guarded
from rota.mechanisms.hooks import RetrainingPlan, SimulationInput
from rota.mechanisms.learned import declare as family
from rota.mechanisms.learned.actor import Actor
from rota.mechanisms.learned.interval_placement import IntervalPlacement
from rota.mechanisms.learned.weights import Learned, load_learned
from rota.perf.speed.shared_servers import unknown_kinds

SHIPPED = Path(__file__).with_name("harmony.npz")
"""Weights that come with Rota; they contain how they were trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HarmonyParams:
    """`weights` is a file of `rota learn train`, by default the one that comes with Rota.

    New jobs are placed together every `interval_s`, at once for 0. Without `length` the network does not see job
    lengths. A manager retrains from its journal every `learn_s` (0 for never), once it has observed `learn_from`
    speeds.
    """

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
    """Return the weights of a file, which is read again only after a change."""
    path = Path(weights) if weights else SHIPPED
    return _loaded(path, path.stat().st_mtime_ns if path.is_file() else 0)


def _chooser(params: HarmonyParams, knowledge: Knowledge) -> Actor:
    return Actor(learned(params.weights).network, knows_length=params.length)


def _remarks(params: HarmonyParams, given: SimulationInput) -> Iterator[str]:
    """Tell of which jobs the network knows no kind."""
    if lacking := unknown_kinds(given.jobs, learned(params.weights).network.kinds):
        yield f"{lacking}; its weights treat them as one unknown kind"


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
        placing = policy
        while isinstance(placing, Consolidating | Guarded):
            placing = placing.inner
        assert isinstance(placing, IntervalPlacement)
        actor = Actor(load_learned(self.plan(params).weights).network, knows_length=params.length)
        return lambda: placing.use(actor)


harmony = family.learned(
    "harmony",
    _chooser,
    cites="Bao et al., INFOCOM 2019",
    summary="First in first out, each task where a trained network expects the least interference.",
    traits=Traits(
        prior_knowledge="model; length, where declared; observed interference",
        scheduling_input="arrival order, tasks on each server",
        placement="learned",
    ),
    params=HarmonyParams,
    differs="The networks see each server through the same encoder, so that one set of weights serves clusters of any "
    "size. Jobs of an interval are placed in order of arrival: the network chooses role and server, not the job. "
    "Training compares several placements of a job by the reward model. Jobs that are elastic, request fractions, "
    "exclusive nodes or a hard locality, and those whose tasks the network finds no room for, are placed by "
    "`--placement`.",
    remarks=_remarks,
    retraining=HarmonyWeights(),
)
