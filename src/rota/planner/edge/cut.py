"""`cut`: where a chain of layers leaves the device for an edge server or the cloud.

One job: all cuts after the device and all its speed levels are tried, each with the best cuts between later tiers; the
fastest wins, or the one with the least energy of the device that meets a deadline (HERTI, Han et al., PACT 2021,
searches the same space by learning).
Several jobs of one model (Duan and Wu, ICPP 2021): a job computes on the device, then its cut's output is sent; with
the server fast, that is a two-machine flow shop. Jobs mix cuts so that both machines are evenly loaded, and go in
Johnson's order.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rota.core.errors import RotaError
from rota.planner.description.problem import PlanningProblem
from rota.planner.edge.johnson import FlowJob, best_makespan_ms
from rota.planner.methods.coarsen import topological
from rota.planner.options import DEFAULTS, PlannerOptions
from rota.planner.plan import PlacementPlan, PlanObjective, ReportProgress
from rota.planner.simulate.loads import placed_stage, refuse_misplaced

_ALL_PAIRS = 40
_ALL_SHARES = 32
"""More jobs than this are shared out between two cuts in so many steps first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainCut:
    """The layers before each tier's end, the device's speed level, and what one job then takes."""

    ends: tuple[int, ...]
    level: int
    local_ms: float
    """Compute on the first tier."""
    sent_ms: float
    """Transfers between tiers."""
    remote_ms: float
    energy_mj: float
    """Of the first tier: computing and sending, in millijoules."""

    @property
    def latency_ms(self) -> float:
        """One job on its own."""
        return self.local_ms + self.sent_ms + self.remote_ms


def plan_cut(
    problem: PlanningProblem, options: PlannerOptions = DEFAULTS, report: ReportProgress | None = None
) -> PlacementPlan:
    """The best cut: for one job by latency, or energy under the deadline; for several by the makespan of all."""
    began_s = time.process_time()
    jobs = options.micro_batches
    cuts = all_cuts(problem, least_sent=jobs > 1 and options.deadline_ms is None)
    notes: list[str] = []
    if options.deadline_ms is not None:
        chosen = least_energy(cuts, options.deadline_ms)
        value_ms = chosen.latency_ms
        notes.append(f"energy {chosen.energy_mj:.3f} mJ at speed level {chosen.level}")
    elif jobs > 1:
        mix, value_ms = best_mix(cuts, jobs)
        chosen = max(mix, key=lambda each: each[1])[0]
        notes.append("; ".join(f"{count} jobs cut after {' and '.join(map(str, cut.ends))}" for cut, count in mix))
        served_ms = sum(cut.remote_ms * count for cut, count in mix)
        if served_ms > value_ms:
            notes.append(f"later tiers are taken to serve all jobs at once; one by one they need {served_ms:.3f} ms")
    else:
        chosen = min(cuts, key=lambda each: (each.latency_ms, each.ends, each.level))
        value_ms = chosen.latency_ms
    order = _layers(problem)
    stages = []
    for tier, (start, end) in enumerate(itertools.pairwise((0, *chosen.ends, len(order)))):
        if end > start:
            operators = [number for layer in order[start:end] for number in layer]
            stages.append(placed_stage(problem, problem.devices.devices[tier].name, operators))
    refuse_misplaced(problem, stages)
    return PlacementPlan(
        planner="cut",
        objective=PlanObjective.LATENCY,
        value_ms=value_ms,
        stages=tuple(stages),
        seconds=time.process_time() - began_s,
        proved_optimal=_is_chain(problem) and (jobs == 1 or options.deadline_ms is not None),
        notes=tuple(notes),
    )


def _is_chain(problem: PlanningProblem) -> bool:
    """Whether every cut is one along the order."""
    graph = problem.graph
    return len(graph.edges) == len(graph) - 1 and all(
        len(each) <= 1 for each in (*graph.successors, *graph.predecessors)
    )


def _layers(problem: PlanningProblem) -> list[tuple[int, ...]]:
    """Operators in one topological order, each a layer; cuts go along that order."""
    order = topological(len(problem.graph), tuple(problem.graph.edges))
    return [(number,) for number in order]


def all_cuts(problem: PlanningProblem, *, least_sent: bool = False) -> list[ChainCut]:
    """Every cut of the chain after the first tier (the device), at every speed level of it.

    What the device takes depends on its own cut alone. The cuts between later tiers are those with the least latency,
    or those that send for the shortest time.
    """
    tiers = problem.devices.devices
    layers = _layers(problem)
    if len(tiers) < 2:
        raise RotaError("cut needs two or more devices, from the user's to the cloud's; add `devices`")
    times = [[_time_ms(problem, layer, each.type) for layer in layers] for each in tiers]
    crossing = _crossing_ms(problem, layers)
    rest = _later_tiers(times, crossing, least_sent=least_sent)
    local = np.concatenate(([0.0], np.cumsum(times[0])))
    found = []
    for end in range(len(layers) + 1):
        later_ms, remote_ms, later_ends = rest(end)
        first_link_ms = float(crossing[0][end])
        if not np.isfinite(local[end] + first_link_ms + later_ms + remote_ms):
            continue
        for level, (speed, watts) in enumerate(tiers[0].levels or ((1.0, 0.0),)):
            local_ms = float(local[end]) / speed
            found.append(
                ChainCut(
                    ends=(end, *later_ends),
                    level=level,
                    local_ms=local_ms,
                    sent_ms=first_link_ms + later_ms,
                    remote_ms=remote_ms,
                    energy_mj=local_ms * watts + first_link_ms * tiers[0].sending_watts,
                )
            )
    if not found:
        raise RotaError("no cut lets every layer run; some layer runs on none of the tiers in order")
    return found


def _later_tiers(
    times: Sequence[Sequence[float]], crossing: Sequence[np.ndarray], *, least_sent: bool
) -> Callable[[int], tuple[float, float, tuple[int, ...]]]:
    """Return a function from the device's cut to the best sending and computing of all later tiers, and their cuts.

    A dynamic program from the last layer and the last tier back: a tier runs the next layer, or hands over to the next
    tier. On ties it hands over.
    """
    count = len(times[0])

    def key(sent_ms: float, remote_ms: float) -> tuple[float, float]:
        return (sent_ms, remote_ms) if least_sent else (sent_ms + remote_ms, sent_ms)

    after = [(0.0, np.inf)] * count + [(0.0, 0.0)]
    for place in reversed(range(count)):
        after[place] = (0.0, after[place + 1][1] + times[-1][place])
    ends: list[list[int]] = []
    for tier in reversed(range(1, len(times) - 1)):
        best, end = list(after), list(range(count + 1))
        best[count] = (float(crossing[tier][count]) + after[count][0], after[count][1])
        for place in reversed(range(count)):
            handed = (float(crossing[tier][place]) + after[place][0], after[place][1])
            kept = (best[place + 1][0], best[place + 1][1] + times[tier][place])
            keeps = key(*kept) < key(*handed)
            best[place], end[place] = (kept, end[place + 1]) if keeps else (handed, place)
        after = best
        ends.insert(0, end)

    def rest(place: int) -> tuple[float, float, tuple[int, ...]]:
        found = []
        sent_ms, remote_ms = after[place]
        for end in ends:
            place = end[place]
            found.append(place)
        return sent_ms, remote_ms, tuple(found)

    return rest


def _time_ms(problem: PlanningProblem, layer: tuple[int, ...], device_type: str) -> float:
    return sum(problem.graph.operators[number].time_ms.get(device_type, np.inf) for number in layer)


def _crossing_ms(problem: PlanningProblem, layers: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    """For each pair of neighbouring tiers, the time to send what crosses a cut after so many layers."""
    count, graph = len(layers), problem.graph
    place = {number: position for position, layer in enumerate(layers) for number in layer}
    found = []
    for tier in range(len(problem.devices) - 1):
        sent = np.zeros(count + 2)
        for number, readers in enumerate(graph.successors):
            if readers:
                amount_ms = problem.transfer_ms(number, tier, tier + 1)
                sent[place[number] + 1] += amount_ms
                sent[max(place[reader] for reader in readers) + 1] -= amount_ms
        row = np.cumsum(sent)[: count + 1]
        sources = [number for number, before in enumerate(graph.predecessors) if not before]
        # Before the first layer, the input itself must be sent: as many bytes as the first layers put out.
        row[0] = sum(problem.transfer_ms(number, tier, tier + 1) for number in sources)
        row[count] = 0.0
        found.append(row)
    return found


def least_energy(cuts: Sequence[ChainCut], deadline_ms: float) -> ChainCut:
    """The cut that meets a deadline with the least energy of the device."""
    timely = [cut for cut in cuts if cut.latency_ms <= deadline_ms]
    if not timely:
        fastest = min(cut.latency_ms for cut in cuts)
        raise RotaError(f"no cut meets {deadline_ms:g} ms; the fastest takes {fastest:g} ms")
    return min(timely, key=lambda cut: (cut.energy_mj, cut.latency_ms, cut.ends, cut.level))


def best_mix(cuts: Sequence[ChainCut], jobs: int) -> tuple[list[tuple[ChainCut, int]], float]:
    """How many of several equal jobs take which cut, such that the last is done earliest.

    Cuts that are worse on both machines than another are never needed. Of the others all pairs and shares are tried
    (neighbours alone where there are many); from the best, single jobs change their cut as long as that helps.
    """
    useful = _undominated(cuts)
    some = range(len(useful))
    few = len(useful) <= _ALL_PAIRS
    pairs = itertools.combinations_with_replacement(some, 2) if few or len(useful) < 2 else itertools.pairwise(some)
    shares = (
        range(jobs + 1)
        if jobs <= _ALL_SHARES
        else sorted({jobs * part // _ALL_SHARES for part in range(_ALL_SHARES + 1)})
    )
    mixes = (tuple(sorted([first] * share + [second] * (jobs - share))) for first, second in pairs for share in shares)
    value_ms, mix = min((_mixed_ms(useful, tried), tried) for tried in mixes)
    while True:
        best_ms, best = min((_mixed_ms(useful, tried), tried) for tried in _with_one_moved(mix, len(useful)))
        if best_ms >= value_ms - 1e-12:
            break
        value_ms, mix = best_ms, best
    return [(useful[number], count) for number, count in sorted(Counter(mix).items())], float(value_ms)


def _mixed_ms(cuts: Sequence[ChainCut], mix: Sequence[int]) -> float:
    """The makespan of a mix; the server works while others compute and send, so that only the last job waits for it."""
    taken = [cuts[number] for number in mix]
    return best_makespan_ms([_flow(cut) for cut in taken]) + min(cut.remote_ms for cut in taken)


def _with_one_moved(mix: Sequence[int], count: int) -> Iterator[tuple[int, ...]]:
    """The mix, and every mix that has one job on another cut."""
    yield tuple(mix)
    for source in sorted(set(mix)):
        others = list(mix)
        others.remove(source)
        for target in range(count):
            if target != source:
                yield tuple(sorted([*others, target]))


def _flow(cut: ChainCut) -> FlowJob:
    return cut.local_ms, cut.sent_ms


def _undominated(cuts: Sequence[ChainCut]) -> list[ChainCut]:
    found: list[ChainCut] = []
    for cut in sorted(cuts, key=lambda each: (each.local_ms, each.sent_ms, each.remote_ms, each.ends)):
        if not found or cut.sent_ms < found[-1].sent_ms:
            found.append(cut)
    return found
