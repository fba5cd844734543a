"""Chunks for the interleaved schedule: the model cut into several parts for each device, in turn on all of them.

Stages of a plan are contiguous on one device each, so that the interleaved schedule (Narayanan et al., SC 2021) needs a
cut of its own: as many chunks of about equal time as devices times chunks on each.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rota.core.errors import RotaError
from rota.planner.description.problem import PlanningProblem
from rota.planner.pipelines.chain import LayerChain
from rota.planner.pipelines.pipedream import pipeline_problem
from rota.planner.pipelines.stages import OPTIMIZER_COPIES, LayerStage, pipeline_chunks
from rota.planner.simulate.pipeline import PipelineChunk

_MOST_LAYERS = 200


def interleaved_chunks(
    problem: PlanningProblem, groups: Sequence[tuple[str, ...]], per_device: int
) -> list[PipelineChunk]:
    """So many chunks for each group of devices, the first chunk on the first group and so on in turn.

    Their memory is that of weights and activations, as for the stages of other schedules.
    """
    chain, fabric, _ = pipeline_problem(problem, "interleaved")
    count = len(groups) * per_device
    if count > min(len(chain), _MOST_LAYERS):
        raise RotaError(
            f"{per_device} chunks on each of {len(groups)} stages need {count} layers and the model is cut into at most"
            f" {min(len(chain), _MOST_LAYERS)}; give fewer --chunks"
        )
    small, places = chain.merged(max(_MOST_LAYERS, count))
    numbers = [tuple(fabric.devices.numbers[name] for name in group) for group in groups]
    stages = tuple(
        LayerStage(start=places[start], end=places[end], devices=numbers[place % len(groups)])
        for place, (start, end) in enumerate(itertools.pairwise(_even_ends(small, count)))
    )
    return [
        replace(chunk, weight_bytes=chunk.weight_bytes / OPTIMIZER_COPIES)
        for chunk in pipeline_chunks(chain, fabric, stages)
    ]


def _even_ends(chain: LayerChain, parts: int) -> list[int]:
    """Where to cut a chain into parts of at least one layer each, such that the longest takes least."""
    layers, sums = len(chain), chain.time_ms
    best = sums - sums[0]
    cuts = []
    for part in range(1, parts):
        row, chosen = np.full(layers + 1, np.inf), np.zeros(layers + 1, dtype=np.int64)
        for end in range(part + 1, layers + 1):
            tried = np.maximum(best[part:end], sums[end] - sums[part:end])
            place = int(tried.argmin())
            row[end], chosen[end] = tried[place], part + place
        best = row
        cuts.append(chosen)
    ends = [layers]
    for chosen in reversed(cuts):
        ends.append(int(chosen[ends[-1]]))
    return [0, *reversed(ends)]
