"""The table of planners: names, citations, what each optimises and what it guarantees.

A planner's module is imported when it runs, so that listing them needs neither a solver nor PyTorch.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from rota.core.errors import RotaError, did_you_mean
from rota.planner.description.problem import PlanningProblem
from rota.planner.options import PlannerOptions
from rota.planner.plan import PlacementPlan, PlanObjective, ReportProgress, TooManyIdeals

PlanFunction = Callable[[PlanningProblem, PlannerOptions, ReportProgress | None], PlacementPlan]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerEntry:
    """One planner as `rota plan policies` shows it; `target` is `module:function`."""

    name: str
    summary: str
    cites: str
    objective: str
    guarantee: str
    target: str
    needs: str | None = None
    """The extra of the package that it needs."""
    places: bool = True
    """Whether it answers `rota plan place`; others take another input and have a command of their own."""
    swaps: bool = False
    """Whether it takes models that are larger than all devices together."""
    compared: bool = True
    """Whether `rota plan compare` tries it where none is named; not planners for special devices."""


PLANNERS: tuple[PlannerEntry, ...] = (
    PlannerEntry(
        name="max-load",
        summary="Splits the graph into contiguous stages by dynamic programming over its ideals.",
        cites="Tarnawski et al., NeurIPS 2020",
        objective="throughput: largest load of a device, transfers included",
        guarantee="optimal among contiguous splits",
        target="rota.planner.methods.max_load:plan_max_load",
    ),
    PlannerEntry(
        name="linear",
        summary="Cuts one topological order into contiguous stages; the bound that max-load starts from.",
        cites="Tarnawski et al., NeurIPS 2020 (linearisation)",
        objective="throughput: largest load of a device, transfers included",
        guarantee="optimal along that order",
        target="rota.planner.methods.max_load:plan_linear",
    ),
    PlannerEntry(
        name="pipedream",
        summary="Cuts layers into stages and replicates them so that the slowest is fastest.",
        cites="Narayanan et al., SOSP 2019",
        objective="throughput: slowest stage, weights synchronised for each micro-batch",
        guarantee="optimal for stages on consecutive devices along one order",
        target="rota.planner.pipelines.pipedream:plan_pipedream",
    ),
    PlannerEntry(
        name="dapple",
        summary="Cuts layers into replicated stages of a synchronous pipeline with early backward passes.",
        cites="Fan et al., PPoPP 2021",
        objective="latency: length of a step with its micro-batches and gradients",
        guarantee="best of the plans looked at, in the simulator",
        target="rota.planner.pipelines.dapple:plan_dapple",
    ),
    PlannerEntry(
        name="pesto",
        summary="Places and orders operators by an integer program on a coarsened graph.",
        cites="Hafeez et al., Middleware 2021",
        objective="latency: end of the last operator",
        guarantee="never worse than baechi",
        target="rota.planner.methods.pesto:plan_pesto",
    ),
    PlannerEntry(
        name="baechi",
        summary="Places operators by list scheduling under memory: m-TOPO, m-ETF and m-SCT.",
        cites="Jeon et al., SoCC 2020",
        objective="latency: end of the last operator",
        guarantee="best of the three, within memory",
        target="rota.planner.methods.baechi:plan_baechi",
    ),
    PlannerEntry(
        name="spotlight",
        summary="Learns a placement of groups of operators by proximal policy optimisation in the simulator.",
        cites="Gao et al., ICML 2018",
        objective="latency: end of the last operator",
        guarantee="none; the best placement tried",
        target="rota.planner.learned.spotlight:plan_spotlight",
        needs="learn",
    ),
    PlannerEntry(
        name="swap",
        summary="Trains on one device that is too small: micro-batches grouped by layer, tensors swapped.",
        cites="Li et al., HotOS 2021",
        objective="latency: length of a step, copies overlapped",
        guarantee="best group size and order of updates; evictions by Belady's rule",
        target="rota.planner.server.swap:plan_swap",
        swaps=True,
        compared=False,
    ),
    PlannerEntry(
        name="cut",
        summary="Cuts a chain of layers between device, edge and cloud; several jobs in Johnson's order.",
        cites="Han et al., PACT 2021; Duan and Wu, ICPP 2021",
        objective="latency, or energy of the device under a deadline, or makespan of several jobs",
        guarantee="optimal for one job of a chain; Johnson's order is optimal for given cuts",
        target="rota.planner.edge.cut:plan_cut",
        compared=False,
    ),
    PlannerEntry(
        name="pico",
        summary="Pipelines a model over unequal edge devices that split feature maps.",
        cites="Yang et al., arXiv 2206.08662",
        objective="throughput: slowest stage, halo included",
        guarantee="optimal for equal devices; greedy for unequal ones",
        target="rota.planner.edge.pico:plan_pico",
        compared=False,
    ),
    PlannerEntry(
        name="abacus",
        summary="Overlaps operators of several queries on one device within a latency bound.",
        cites="Cui et al., SC 2021",
        objective="latency of all queries under a bound",
        guarantee="no query that could meet its bound is made late by a group, as predicted",
        target="rota.planner.server.overlap:plan_overlap",
        compared=False,
    ),
    PlannerEntry(
        name="cc-os",
        summary="Chooses threads for each operator on a CPU and runs operators beside each other.",
        cites="Liu et al., IPDPS 2019",
        objective="latency: end of the last operator",
        guarantee="none beyond local optima of threads",
        target="rota.planner.server.threads:plan_threads",
        compared=False,
    ),
)


def planner_named(name: str) -> PlannerEntry:
    """The planner of that name."""
    for entry in PLANNERS:
        if entry.name == name:
            return entry
    from rota.planner.parallel.planners import PARALLEL_PLANNERS

    if any(entry.name == name for entry in PARALLEL_PLANNERS):
        raise RotaError(
            f"planner {name!r} divides a transformer, not a graph; run `rota plan parallel --planner {name}`"
        )
    raise RotaError(f"unknown planner {name!r}; {did_you_mean(name, [entry.name for entry in PLANNERS])}")


def default_planner(objective: PlanObjective) -> str:
    """The planner for an objective where none is named."""
    return "max-load" if objective is PlanObjective.THROUGHPUT else "pesto"


def run_planner(
    name: str, problem: PlanningProblem, options: PlannerOptions, report: ReportProgress | None = None
) -> PlacementPlan:
    """Plan a problem with the planner of that name."""
    entry = planner_named(name)
    if not entry.places:
        raise RotaError(f"planner {name!r} places no operators; see `rota plan policies` for what it takes")
    wanted = options.objective
    if wanted is not None and not entry.objective.startswith(wanted.value):
        raise RotaError(
            f"planner {name!r} does not make {wanted.value} small but {entry.objective.split(':')[0]};"
            f" leave out --objective {wanted.value}, or take {default_planner(wanted)}"
        )
    if not entry.swaps:
        problem.refuse_too_large()
    module, _, attribute = entry.target.partition(":")
    function: PlanFunction = getattr(importlib.import_module(module), attribute)
    return function(problem, options, report)


def run_default(
    problem: PlanningProblem, options: PlannerOptions, report: ReportProgress | None = None
) -> PlacementPlan:
    """Plan with the objective's own planner; with `linear` where the graph is too wide for `max-load`."""
    name = default_planner(options.objective or PlanObjective.THROUGHPUT)
    try:
        return run_planner(name, problem, options, report)
    except TooManyIdeals as err:
        plan = run_planner("linear", problem, options, report)
        return replace(plan, notes=(*plan.notes, f"not the least for certain: {err}"))
