"""Schedules of gradients inside one job: in which order and in what pieces they are sent.

Backward computing makes gradients ready, the last layer first; the next forward pass needs them, the first layer first.
Layer `i` starts forward when its gradient has arrived and layer `i-1` is done. Every message costs a fixed overhead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from rota.core.errors import RotaError

GAP = 2.0
"""A gap of so many times the mean between ready times ends a block of gradients."""
IN_FLIGHT = 4
"""Partitions of a credit window that are on their way at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGradient:
    """One layer: bytes of its gradient, seconds forward, and when its gradient is ready after backward begins."""

    size: float
    forward_s: float
    ready_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientLink:
    """The way of gradients: its rate, and the overhead of every message."""

    bytes_per_s: float
    message_s: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.bytes_per_s < math.inf or not 0 <= self.message_s < math.inf:
            raise RotaError(
                f"a link of {self.bytes_per_s:g} bytes/s and {self.message_s:g} s per message; "
                "the rate must be above 0, the overhead 0 or more"
            )


class GradientSchedule(Enum):
    """The schedules by name."""

    FIFO = "fifo"
    P3 = "p3"
    BYTESCHEDULER = "bytescheduler"
    PROPHET = "prophet"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledIteration:
    """One iteration from the start of backward to the end of the next forward pass."""

    iteration_s: float
    arrival_s: tuple[float, ...]
    messages: int


Piece = tuple[int, float]
"""A layer, and bytes of its gradient."""
Pick = Callable[[float, list[float]], tuple[list[Piece], float]]
"""What to send at a moment, given the bytes left of each layer (below 0: not ready), and the overhead of that."""


def blocks_of(ready_s: Sequence[float]) -> list[list[int]]:
    """Return layers in blocks that become ready together, in the order of readiness."""
    order = sorted(range(len(ready_s)), key=lambda layer: (ready_s[layer], -layer))
    gaps = [ready_s[b] - ready_s[a] for a, b in pairwise(order)]
    mean = sum(gaps) / len(gaps) if gaps else 0.0
    blocks = [[order[0]]] if order else []
    for layer, gap in zip(order[1:], gaps, strict=True):
        if gap > GAP * mean:
            blocks.append([])
        blocks[-1].append(layer)
    return blocks


def fifo(layers: Sequence[LayerGradient], link: GradientLink) -> ScheduledIteration:
    """Send whole gradients in the order in which they become ready."""

    def pick(now_s: float, left: list[float]) -> tuple[list[Piece], float]:
        layer = min((n for n in range(len(layers)) if left[n] > 0), key=lambda n: (layers[n].ready_s, -n))
        return [(layer, left[layer])], link.message_s

    return _sent(layers, link, pick)


def p3(layers: Sequence[LayerGradient], link: GradientLink, slice_bytes: float = 4e6) -> ScheduledIteration:
    """Send one slice at a time of the first layer that is ready (Jayarajan et al., MLSys 2019)."""

    def pick(now_s: float, left: list[float]) -> tuple[list[Piece], float]:
        layer = next(n for n in range(len(layers)) if left[n] > 0)
        return [(layer, min(left[layer], slice_bytes))], link.message_s

    return _sent(layers, link, pick)


def bytescheduler(
    layers: Sequence[LayerGradient], link: GradientLink, partition_bytes: float, credit_bytes: float
) -> ScheduledIteration:
    """Keep a window of partitions in flight, by priority: their overheads overlap (Peng et al., SOSP 2019)."""

    def pick(now_s: float, left: list[float]) -> tuple[list[Piece], float]:
        window = max(credit_bytes, partition_bytes)
        return _first(left, window), link.message_s

    return _sent(layers, link, pick, per_message=partition_bytes, window=max(credit_bytes, partition_bytes))


def tuned_bytescheduler(layers: Sequence[LayerGradient], link: GradientLink) -> ScheduledIteration:
    """Return the best of a grid of partitions and credits, as its search would find."""
    sizes = [2.0**k * 1e6 for k in range(7)]
    runs = [bytescheduler(layers, link, part, part * times) for part in sizes for times in (1, 2, 4, 8)]
    return min(runs, key=lambda run: run.iteration_s)


def prophet(layers: Sequence[LayerGradient], link: GradientLink, credit_bytes: float = 8e6) -> ScheduledIteration:
    """Send in each interval between blocks what fits into it, then by priority (Zhang et al., ICPP 2021).

    A block of gradients is one message whose bytes are the rate times the time until the next block is ready, so that
    no gradient of higher priority waits for it. When the first layer's gradient is ready, nothing of higher priority
    can come any more: the rest goes in order, layer by layer, in a window of messages whose overheads overlap.
    """
    starts = sorted({min(layers[n].ready_s for n in block) for block in blocks_of([x.ready_s for x in layers])})
    first_ready_s = layers[0].ready_s

    def pick(now_s: float, left: list[float]) -> tuple[list[Piece], float]:
        if now_s >= first_ready_s:
            layer = next(n for n in range(len(layers)) if left[n] > 0)
            return _first(left, max(left[layer], credit_bytes / IN_FLIGHT)), link.message_s / IN_FLIGHT
        until_s = next((start for start in starts if start > now_s + 1e-12), first_ready_s)
        budget = max((until_s - now_s - link.message_s) * link.bytes_per_s, credit_bytes)
        return _first(left, budget), link.message_s

    return _sent(layers, link, pick)


def scheduled(kind: GradientSchedule, layers: Sequence[LayerGradient], link: GradientLink) -> ScheduledIteration:
    """Return an iteration under a schedule with its usual settings."""
    match kind:
        case GradientSchedule.FIFO:
            return fifo(layers, link)
        case GradientSchedule.P3:
            return p3(layers, link)
        case GradientSchedule.BYTESCHEDULER:
            return tuned_bytescheduler(layers, link)
        case GradientSchedule.PROPHET:
            return prophet(layers, link)


def _first(left: list[float], budget: float) -> list[Piece]:
    """Return pieces of the first layers that are ready, up to a budget."""
    pieces = []
    for layer, size in enumerate(left):
        if size > 0 and budget > 0:
            pieces.append((layer, min(size, budget)))
            budget -= pieces[-1][1]
    return pieces


def _sent(
    layers: Sequence[LayerGradient],
    link: GradientLink,
    pick: Pick,
    per_message: float = math.inf,
    window: float = 0.0,
) -> ScheduledIteration:
    """Send until all has arrived; with a window, the overhead of all but its first message is hidden."""
    if not layers:
        raise RotaError("a model of no layers has no gradients to send")
    left = [-1.0] * len(layers)
    arrival = [math.inf] * len(layers)
    waiting = sorted(range(len(layers)), key=lambda n: layers[n].ready_s, reverse=True)
    now_s, messages = 0.0, 0
    while waiting or any(size > 0 for size in left):
        while waiting and layers[waiting[-1]].ready_s <= now_s + 1e-15:
            layer = waiting.pop()
            left[layer] = layers[layer].size
            if not left[layer]:
                arrival[layer] = now_s
        if not any(size > 0 for size in left):
            if not waiting:
                break
            now_s = layers[waiting[-1]].ready_s
            continue
        pieces, overhead_s = pick(now_s, left)
        size = sum(amount for _, amount in pieces)
        parts = max(math.ceil(size / per_message - 1e-9), 1) if math.isfinite(per_message) else 1
        hidden = max(window / per_message, 1.0) if window else 1.0
        messages += parts
        now_s += overhead_s * parts / hidden
        for layer, amount in pieces:
            now_s += amount / link.bytes_per_s
            left[layer] -= amount
            if left[layer] <= 1e-6 * max(layers[layer].size, 1.0):
                left[layer] = 0.0
                arrival[layer] = now_s
    done_s = max(layer.ready_s for layer in layers)
    for profile, arrived_s in zip(layers, arrival, strict=True):
        done_s = max(done_s, arrived_s) + profile.forward_s
    return ScheduledIteration(iteration_s=done_s, arrival_s=tuple(arrival), messages=messages)
