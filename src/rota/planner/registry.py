"""The table of planners: names, citations, what each optimises and what it guarantees.

A planner's module is imported when it runs, so that listing them needs neither a solver nor PyTorch.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from rota.core.errors import RotaError, did_you_mean
from rota.planner.description.problem import PlanningProblem
from rota.planner.options import PlannerOptions
from rota.planner.plan import PlacementPlan, PlanObjective, ReportProgress

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
        guarantee="never worse than list scheduling and filling in order",
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
)


def planner_named(name: str) -> PlannerEntry:
    """The planner of that name."""
    for entry in PLANNERS:
        if entry.name == name:
            return entry
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
    module, _, attribute = entry.target.partition(":")
    function: PlanFunction = getattr(importlib.import_module(module), attribute)
    return function(problem, options, report)
