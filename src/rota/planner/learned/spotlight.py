"""`spotlight`: placement as a sequence of decisions, learned by proximal policy optimisation.

Gao et al., ICML 2018: groups of operators are placed one after the other; a network sees the group and where its inputs
and the memory went, and draws a device. The reward is the latency in the simulator. Clipped updates take several
passes over the same placements, which is what saves trials against plain policy gradients.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from rota.core.errors import RotaError
from rota.planner.description.operators import GraphOperator, OperatorGraph
from rota.planner.description.problem import PlanningProblem
from rota.planner.methods.coarsen import GroupGraph, coarsened
from rota.planner.options import DEFAULTS, PlannerOptions
from rota.planner.plan import PlacementPlan, PlanObjective, PlanStage, ReportProgress
from rota.planner.pytorch.load import require_torch
from rota.planner.simulate.latency import placement_latency_ms, stages_of

ROUNDS, TRIALS, PASSES, CLIP, WIDTH, RATE, ENTROPY = 40, 16, 4, 0.2, 64, 3e-3, 0.01
_LARGEST_TRIED = 500
"""Larger graphs are tried by groups; only the best placement is judged on all operators."""
_TOO_LARGE = 2.0
"""Latency of a placement that exceeds memory, as a multiple of the worst seen."""


def plan_spotlight(
    problem: PlanningProblem, options: PlannerOptions = DEFAULTS, report: ReportProgress | None = None
) -> PlacementPlan:
    """The best placement seen while learning; the same seed gives the same one."""
    began_s = time.process_time()
    torch = require_torch("planner 'spotlight'")
    groups = coarsened(problem, options.coarsen_to)
    is_large = len(problem.graph) > _LARGEST_TRIED
    trial = _Trial(*_as_problem(problem, groups)) if is_large else _Trial(problem, groups)
    policy = _Policy(torch, trial, options.seed)
    for number in range(ROUNDS):
        policy.improve()
        if report is not None:
            report((number + 1) / ROUNDS)
    if trial.best is None:
        raise RotaError(f"{problem.graph.source}: no trial fitted the devices' memory; add memory, or take baechi")
    value_ms, stages = trial.best
    if is_large:
        device_of = {
            number: stage.devices[0]
            for stage in stages
            for group in stage.operators
            for number in groups.members[group]
        }
        stages = stages_of(problem, device_of)
        value_ms = placement_latency_ms(problem, stages)
    return PlacementPlan(
        planner="spotlight",
        objective=PlanObjective.LATENCY,
        value_ms=value_ms,
        stages=stages,
        seconds=time.process_time() - began_s,
        notes=(f"{ROUNDS * TRIALS} trials of {len(groups)} groups, first {trial.first_ms:.3f} ms",),
    )


def _as_problem(problem: PlanningProblem, groups: GroupGraph) -> tuple[PlanningProblem, GroupGraph]:
    """Groups as operators of a problem of their own, so that trials of large graphs are quick."""
    operators = []
    for number, members in enumerate(groups.members):
        inside = set(members)
        chosen = [problem.graph.operators[each] for each in members]
        types = set.intersection(*(set(operator.time_ms) for operator in chosen))
        leaving = [
            problem.graph.operators[each]
            for each in members
            if any(reader not in inside for reader in problem.graph.successors[each])
        ]
        times_ms = [operator.transfer_ms for operator in leaving]
        operators.append(
            GraphOperator(
                name=f"group {number}",
                time_ms={each: sum(operator.time_ms[each] for operator in chosen) for each in sorted(types)},
                output_bytes=sum(operator.output_bytes for operator in leaving),
                transfer_ms=None
                if None in times_ms or problem.devices.links
                else sum(each or 0.0 for each in times_ms),
                weight_bytes=sum(operator.weight_bytes for operator in chosen),
            )
        )
    graph = OperatorGraph(operators=tuple(operators), edges=tuple(groups.edges), source=problem.graph.source)
    alone = replace(groups, members=tuple((number,) for number in range(len(groups))))
    return PlanningProblem(graph=graph, devices=problem.devices), alone


class _Trial:
    """Judges placements of groups and remembers the best."""

    def __init__(self, problem: PlanningProblem, groups: GroupGraph) -> None:
        self.problem = problem
        self.groups = groups
        self.best: tuple[float, tuple[PlanStage, ...]] | None = None
        self.first_ms = float("nan")
        self.before: list[list[int]] = [[] for _ in range(len(groups))]
        for first, second in groups.edges:
            self.before[second].append(first)
        self._worst_ms = 0.0

    def allowed(self) -> np.ndarray:
        """Which devices can run each group."""
        operators = self.problem.graph.operators
        return np.array(
            [
                [all(device.type in operators[number].time_ms for number in members) for device in self._devices]
                for members in self.groups.members
            ]
        )

    @property
    def _devices(self) -> Any:
        return self.problem.devices.devices

    def latency_ms(self, placed: list[int]) -> float:
        """The latency of a placement; one that exceeds memory counts as worse than any seen."""
        device_of = {
            number: self._devices[device].name
            for members, device in zip(self.groups.members, placed, strict=True)
            for number in members
        }
        stages = stages_of(self.problem, device_of)
        value_ms = placement_latency_ms(self.problem, stages)
        self._worst_ms = max(self._worst_ms, value_ms)
        caps = {device.name: device.memory_bytes for device in self._devices}
        if any((cap := caps[stage.devices[0]]) is not None and stage.memory_bytes > cap for stage in stages):
            return _TOO_LARGE * self._worst_ms
        if self.best is None:
            self.first_ms = value_ms
        if self.best is None or value_ms < self.best[0]:
            self.best = (value_ms, stages)
        return value_ms


class _Policy:
    """A small network that draws a device for each group, and learns from what the trials took."""

    def __init__(self, torch: Any, trial: _Trial, seed: int) -> None:
        self._torch, self._trial = torch, trial
        self._generator = torch.Generator().manual_seed(seed)
        self._devices = len(trial.problem.devices)
        self._allowed = torch.tensor(trial.allowed())
        if not bool(self._allowed.any(dim=1).all()):
            raise RotaError("a group of operators runs on no single device; take a larger coarsen_to")
        features = len(trial.groups) + 2 * self._devices
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self._network = torch.nn.Sequential(
                torch.nn.Linear(features, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, self._devices)
            )
        self._optimizer = torch.optim.Adam(self._network.parameters(), lr=RATE)

    def improve(self) -> None:
        """One round: draw placements, try them, and take clipped steps towards the better ones."""
        torch = self._torch
        states, actions, old = self._draw()
        took = np.log([self._trial.latency_ms(placed) for placed in actions.tolist()])
        gain = torch.tensor(-(took - took.mean()) / (took.std() + 1e-8), dtype=torch.float32)
        for _ in range(PASSES):
            logs = self._logs(states)
            ratio = (logs.gather(2, actions[..., None])[..., 0] - old).exp()
            clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
            spread = -(logs.exp() * logs.clamp(min=-30)).sum(dim=2).mean()
            loss = -torch.minimum(ratio * gain[:, None], clipped * gain[:, None]).mean() - ENTROPY * spread
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()

    def _logs(self, states: Any) -> Any:
        logits = self._network(states).masked_fill(~self._allowed, -1e9)
        return logits.log_softmax(dim=-1)

    def _draw(self) -> tuple[Any, Any, Any]:
        """States, devices and the logarithms of their chances, by trial and group; all trials group by group."""
        torch = self._torch
        groups = self._trial.groups
        count = len(groups)
        trials = torch.arange(TRIALS)
        states = torch.zeros(TRIALS, count, count + 2 * self._devices)
        actions = torch.zeros(TRIALS, count, dtype=torch.long)
        chances = torch.zeros(TRIALS, count)
        held = torch.zeros(TRIALS, self._devices)
        total_ms = max(float(groups.accelerator_ms.sum()), 1e-9)
        with torch.no_grad():
            for group in range(count):
                states[:, group, group] = 1.0
                for before in self._trial.before[group]:
                    states[trials, group, count + actions[:, before]] = 1.0
                states[:, group, count + self._devices :] = held
                logits = self._network(states[:, group]).masked_fill(~self._allowed[group], -1e9)
                logs = logits.log_softmax(dim=-1)
                drawn = torch.multinomial(logs.exp(), 1, generator=self._generator)[:, 0]
                actions[:, group] = drawn
                chances[:, group] = logs[trials, drawn]
                held[trials, drawn] += float(groups.accelerator_ms[group]) / total_ms
        return states, actions, chances
