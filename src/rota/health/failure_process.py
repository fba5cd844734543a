"""When which nodes fail: draws the failures of a model in order of time, without end.

What raises the failure rate of a node acts as a process of its own, and the first of them to strike is the failure:
Weibull's law since the last repair, wear that grows with age, and infant mortality that decays after a repair. The
sum of their rates is thus exact, and each is drawn by inversion.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rota.core.errors import RotaError
from rota.core.model.cluster import Node
from rota.core.model.job import NodeId
from rota.health.failure_model import FailureModel

YEAR_S = 365.25 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """Nodes that fail together: when, of which cause, when that is noticed, and when each is repaired."""

    at_s: float
    nodes: tuple[NodeId, ...]
    cause: str
    detected_s: float
    repaired_s: tuple[float, ...]


def breakdowns(nodes: Sequence[Node], model: FailureModel, rng: random.Random) -> Iterator[Breakdown]:
    """Yield failures in order of time; a node that is down does not fail again before its repair."""
    rate = 1.0 / model.node_mttf_s
    if not nodes or rate == 0.0:
        return
    racks = _racks(nodes, model)
    factors = _factors(len(nodes), model, rng)
    alone = 1.0 - model.rack
    due: list[tuple[float, int, int]] = []
    for index in range(len(nodes)):
        heapq.heappush(due, (_next(model, rate * alone * factors[index], 0.0, 0.0, rng), index, 0))
    for number in range(len(racks)):
        heapq.heappush(due, (rng.expovariate(rate * model.rack), len(nodes) + number, 0))
    up_from_s = [0.0] * len(nodes)
    drawn = [0] * len(nodes)
    """How often the next failure of each node was drawn; an older draw no longer counts."""
    while due:
        at_s, index, draw = heapq.heappop(due)
        if index >= len(nodes):
            struck = [each for each in racks[index - len(nodes)] if up_from_s[each] <= at_s]
            heapq.heappush(due, (at_s + rng.expovariate(rate * model.rack), index, 0))
        else:
            struck = [index] if draw == drawn[index] else []
        if not struck or at_s == math.inf:
            if at_s == math.inf:
                return
            continue
        detected_s = at_s + model.detect_s
        for each in struck:
            up_from_s[each] = detected_s + (rng.expovariate(1.0 / model.repair_s) if model.repair_s else 0.0)
            drawn[each] += 1
            age_s = up_from_s[each]
            next_s = age_s + _next(model, rate * alone * factors[each], age_s, model.infant, rng)
            heapq.heappush(due, (next_s, each, drawn[each]))
        yield Breakdown(
            at_s=at_s,
            nodes=tuple(nodes[each].id for each in struck),
            cause=_cause(model, rng),
            detected_s=detected_s,
            repaired_s=tuple(up_from_s[each] for each in struck),
        )


def _next(model: FailureModel, rate: float, age_s: float, infant: float, rng: random.Random) -> float:
    """Draw the time until a node fails that is `age_s` old and works from now on."""
    if rate <= 0:
        return math.inf
    after_s = rng.expovariate(rate) if model.shape == 1.0 else _weibull(model.shape, rate, rng)
    if infant:
        strength = rng.expovariate(1.0)
        most = rate * infant * model.infant_s
        if strength < most:
            after_s = min(after_s, -model.infant_s * math.log1p(-strength / most))
    if model.wear:
        # The rate grows by `growth` a second: growth * (age t + t^2 / 2) reaches a draw of the unit exponential.
        growth = rate * model.wear / YEAR_S
        after_s = min(after_s, math.sqrt(age_s * age_s + 2.0 * rng.expovariate(1.0) / growth) - age_s)
    return after_s


def _weibull(shape: float, rate: float, rng: random.Random) -> float:
    """Draw from Weibull's law with mean 1 / rate."""
    return rng.weibullvariate(1.0 / (rate * math.gamma(1.0 + 1.0 / shape)), shape)


def _cause(model: FailureModel, rng: random.Random) -> str:
    if len(model.causes) == 1:
        return model.causes[0].name
    weights = [cause.per_1000_node_days for cause in model.causes]
    return rng.choices(model.causes, weights)[0].name


def _factors(count: int, model: FailureModel, rng: random.Random) -> list[float]:
    """How many times as often as the mean each node fails."""
    lemons = round(model.lemons * count)
    if not lemons:
        return [1.0] * count
    bad = set(rng.sample(range(count), lemons))
    usual = count / (count - lemons + lemons * model.lemon_factor)
    return [usual * model.lemon_factor if index in bad else usual for index in range(count)]


def _racks(nodes: Sequence[Node], model: FailureModel) -> list[list[int]]:
    """The nodes of each rack, where racks fail."""
    if not model.rack:
        return []
    by_rack: dict[tuple[str, str], list[int]] = {}
    for index, node in enumerate(nodes):
        by_rack.setdefault((node.domain, node.rack), []).append(index)
    if len(by_rack) < 2:
        raise RotaError("failures: rack needs a cluster with several racks; give them in a cluster file")
    return list(by_rack.values())
