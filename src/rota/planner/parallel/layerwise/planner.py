"""Chooses a strategy for each layer by dynamic programming over layers and memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from rota.core.errors import RotaError
from rota.planner.parallel.layerwise.cost import (
    ChunkedBatch,
    LayerStrategy,
    StrategyTime,
    embedding_memory_mib,
    embedding_time,
    layer_memory_mib,
    layer_time,
    pipeline_s,
)
from rota.planner.parallel.layerwise.profile import LayerwiseProfile, LinkTimes

CACHE_SHARE = 0.2  # of the memory is left to the allocator where there is more than 20 GiB


class Splits(Enum):
    """Which splits a plan's layers may have; a tensor split needs a buffer of its size on every device."""

    TENSOR = "tensor"
    SEQUENCE = "sequence"
    BOTH = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerwiseTask:
    """What is planned: a model on devices with some memory, a batch, and whether layers may differ.

    `unit_mib` is the step in which the dynamic program counts memory; larger ones are quicker and waste a little.
    `most_split` is the number of devices over which a layer may be split at most.
    """

    profile: LayerwiseProfile
    links: LinkTimes
    gpus: int
    memory_mib: int
    batch: int
    chunks: int
    fine: bool = True
    unit_mib: int = 1
    most_split: int = 8

    @property
    def room_mib(self) -> int:
        """Memory that a plan may use: what the allocator needs for itself is taken off."""
        cache = int(self.memory_mib * CACHE_SHARE) if self.memory_mib // 1024 > 20 else 0
        return self.memory_mib - cache


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerwisePlan:
    """A plan layer by layer, the strategy of the embedding and the output layer, and the seconds of a step."""

    pipeline: int
    stage_layers: tuple[int, ...]
    strategies: tuple[LayerStrategy, ...]
    embedding: LayerStrategy
    step_s: float
    batch: int
    chunks: int
    memory_mib: float

    @property
    def sequences_per_s(self) -> float:
        """Throughput."""
        return self.batch / self.step_s


def _degrees(most: int) -> list[int]:
    return [1 << power for power in range(most.bit_length()) if 1 << power <= most]


def _strategies(devices: int, splits: Splits, most_split: int, most_data: int) -> list[LayerStrategy]:
    """Every strategy of a layer on the devices of a stage."""
    found: set[LayerStrategy] = set()
    for degree in _degrees(min(devices, most_split)):
        data = devices // degree
        if data > most_data:
            continue
        for tensor, sequence in {(degree, 1), (1, degree)}:
            if (tensor > 1 and splits is Splits.SEQUENCE) or (sequence > 1 and splits is Splits.TENSOR):
                continue
            for shards in (False, True) if data > 1 else (False,):
                for recompute in (False, True):
                    found.add(
                        LayerStrategy(
                            tensor=tensor, sequence=sequence, data=data, shards_weights=shards, recompute=recompute
                        )
                    )
    return sorted(found)


def _even_stages(layers: int, pipeline: int) -> tuple[int, ...]:
    each = layers // pipeline
    return (*[each] * (pipeline - 1), layers - each * (pipeline - 1))


def reshard_s(task: LayerwiseTask, pipeline: int, one: LayerStrategy, other: LayerStrategy) -> float:
    """Seconds to change the split of activations between two layers."""
    if one.split == other.split:
        return 0.0
    wider = max(one.split, other.split)
    data = task.gpus // pipeline // wider
    sent_mib = (wider - 1) / wider * task.batch / task.chunks / data * task.profile.message_mib
    return sent_mib * task.links.near_reduce_ms_per_mib[wider] * (1 << 20) * 1e-7


class StrategyTable:
    """The least time of layers whose strategies fit in some room, for every room at once.

    After the last layer, `best[v, s]` is the least time in `v` units of memory with strategy `s` last.
    """

    def __init__(self, times_s: np.ndarray, units: np.ndarray, change_s: np.ndarray, layers: int, room: int) -> None:
        strategies = len(times_s)
        self._units = units
        self._layers = layers
        self._came_from = np.full((layers, room + 1, strategies), -1, dtype=np.int16)
        best = np.zeros((room + 1, strategies))
        for layer in range(layers):
            after = np.full_like(best, np.inf)
            for strategy in range(strategies):
                need = int(units[strategy])
                if need > room:
                    continue
                options = best[: room + 1 - need] + (change_s[:, strategy] if layer else 0.0)
                choice = options.argmin(axis=1)
                self._came_from[layer, need:, strategy] = choice
                after[need:, strategy] = options[np.arange(len(choice)), choice] + times_s[strategy]
            best = after
        self._best = best

    def pick(self, room: int) -> list[int] | None:
        """The strategy of each layer that takes the least time within the room; None if nothing fits."""
        if room < 0:
            return None
        last = int(self._best[room].argmin())
        if not np.isfinite(self._best[room, last]):
            return None
        chosen = [last]
        for layer in range(self._layers - 1, 0, -1):
            previous = int(self._came_from[layer, room, chosen[-1]])
            room -= int(self._units[chosen[-1]])
            chosen.append(previous)
        return chosen[::-1]


def _searches(task: LayerwiseTask) -> Iterator[tuple[int, Splits, int]]:
    """Numbers of stages, kinds of splits and the widest split: one dynamic program each."""
    for pipeline in _degrees(min(task.gpus, task.chunks, task.profile.layers)):
        devices = task.gpus // pipeline
        narrowest = max(1, devices // max(1, min(task.batch // task.chunks, devices)))
        for splits in Splits:
            most = min(devices, task.most_split)
            for widest in [most] if splits is Splits.SEQUENCE else _degrees(most):
                if widest >= narrowest:
                    yield pipeline, splits, widest


def plan_layerwise(task: LayerwiseTask) -> LayerwisePlan:
    """The fastest plan that fits; a `RotaError` if there is none."""
    if task.batch % task.chunks:
        raise RotaError(f"--chunks {task.chunks} does not divide --batch {task.batch}; give a divisor of {task.batch}")
    found = [plan for search in _searches(task) for plan in _plans(task, *search)]
    if not found:
        raise RotaError(
            f"no plan of {task.profile.layers} layers fits {task.memory_mib / 1024:.0f} GiB on {task.gpus} GPUs with "
            f"{task.chunks} micro-batches; give more GPUs, more memory or smaller micro-batches"
        )
    return min(found, key=lambda plan: plan.step_s)


def buffer_mib(task: LayerwiseTask, pipeline: int, splits: Splits, widest: int) -> float:
    """Memory in which gathered activations of the widest tensor split are kept; sequence splits need none."""
    if splits is Splits.SEQUENCE:
        return 0.0
    data = task.gpus // pipeline // widest
    return task.batch / task.chunks / data * task.profile.message_mib


def _plans(task: LayerwiseTask, pipeline: int, splits: Splits, widest: int) -> Iterator[LayerwisePlan]:
    """The best plan for each strategy of the embedding; all layers share it unless the task is fine-grained."""
    batch = ChunkedBatch(batch=task.batch, chunks=task.chunks, pipeline=pipeline)
    devices = task.gpus // pipeline
    strategies = _strategies(devices, splits, widest, max(1, min(task.batch // task.chunks, devices)))
    buffered_mib = buffer_mib(task, pipeline, splits, widest)
    stages = _even_stages(task.profile.layers, pipeline)
    if task.fine:
        yield from _mixed(task, batch, stages, strategies, buffered_mib)
    else:
        yield from _uniform(task, batch, stages, strategies, buffered_mib)


def _uniform(
    task: LayerwiseTask,
    batch: ChunkedBatch,
    stages: tuple[int, ...],
    strategies: list[LayerStrategy],
    buffered_mib: float,
) -> Iterator[LayerwisePlan]:
    """Plans whose layers and embedding all have one strategy."""
    for strategy in strategies:
        embedding = embedding_memory_mib(task.profile, batch, strategy)
        needed = [
            math.ceil(buffered_mib)
            + math.ceil(embedding[stage])
            + layers * math.ceil(layer_memory_mib(task.profile, batch, strategy, stage))
            for stage, layers in enumerate(stages)
        ]
        if max(needed) <= task.room_mib:
            yield _costed(task, batch, stages, [[strategy] * layers for layers in stages], strategy)


def _mixed(
    task: LayerwiseTask,
    batch: ChunkedBatch,
    stages: tuple[int, ...],
    strategies: list[LayerStrategy],
    buffered_mib: float,
) -> Iterator[LayerwisePlan]:
    """Plans with a strategy for each layer: one dynamic program per stage, read for each strategy of the embedding."""
    times_s = np.array([layer_time(task.profile, task.links, batch, strategy).synced_s for strategy in strategies])
    change_s = np.array([[reshard_s(task, batch.pipeline, one, other) for other in strategies] for one in strategies])
    tables = []
    for stage, layers in enumerate(stages):
        needs = [
            math.ceil(layer_memory_mib(task.profile, batch, strategy, stage) / task.unit_mib) for strategy in strategies
        ]
        tables.append(StrategyTable(times_s, np.array(needs), change_s, layers, task.room_mib // task.unit_mib))
    for embedding in sorted({replace(strategy, recompute=False) for strategy in strategies}):
        needed = embedding_memory_mib(task.profile, batch, embedding)
        rooms = [(task.room_mib - math.ceil(one) - int(buffered_mib)) // task.unit_mib for one in needed]
        picks = [table.pick(room) for table, room in zip(tables, rooms, strict=True)]
        chosen = [sorted((strategies[place] for place in pick), key=_stage_order) for pick in picks if pick is not None]
        if len(chosen) == len(stages):
            yield _costed(task, batch, stages, chosen, embedding)


def _stage_order(strategy: LayerStrategy) -> tuple[int, int, bool, bool]:
    """Layers of one split side by side, recomputed ones first."""
    return (strategy.split, strategy.sequence, not strategy.recompute, not strategy.shards_weights)


def _costed(
    task: LayerwiseTask,
    batch: ChunkedBatch,
    stages: tuple[int, ...],
    strategies: list[list[LayerStrategy]],
    embedding: LayerStrategy,
) -> LayerwisePlan:
    times: list[list[StrategyTime]] = [
        [layer_time(task.profile, task.links, batch, strategy) for strategy in stage] for stage in strategies
    ]
    step_s = pipeline_s(times, embedding_time(task.profile, task.links, batch, embedding), task.chunks)
    memory_mib = [
        embedding_mib + sum(layer_memory_mib(task.profile, batch, strategy, stage) for strategy in strategies[stage])
        for stage, embedding_mib in enumerate(embedding_memory_mib(task.profile, batch, embedding))
    ]
    return LayerwisePlan(
        pipeline=batch.pipeline,
        stage_layers=stages,
        strategies=tuple(strategy for stage in strategies for strategy in stage),
        embedding=embedding,
        step_s=step_s,
        batch=task.batch,
        chunks=task.chunks,
        memory_mib=max(memory_mib),
    )
