"""Inputs of the networks from the state of clusters: kinds, counts and places, never a constant of the world.

`kind` is the number of a kind in a network; the last number stands for all unknown kinds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rota.mechanisms.learned.actor import TASKS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
OWN = 6


class ObservationRows(NamedTuple):
    """One row for each job on each of its servers."""

    inputs: NDArray[np.float32]
    owner: Ints
    """Index of the row's job, as cluster x jobs + job."""


def row_inputs(kinds: int) -> int:
    """Return the number of inputs of a row."""
    return (kinds + 1) * 4 + OWN


def on_servers(kind: Ints, kinds: int, workers: Floats, servers: Floats) -> tuple[Floats, Floats]:
    """Return the tasks by role and kind on each server, and those of jobs that span several."""
    which = np.eye(kinds + 1)[kind]
    tasks = np.stack([np.einsum("bjm,bjk->bmk", side, which) for side in (workers, servers)], axis=2)
    spans = ((workers + servers) > 0).sum(-1) > 1
    talking = np.einsum("bjm,bjk->bmk", (workers + servers) * spans[..., None], which)
    return tasks, talking


def rows_of(kind: Ints, kinds: int, workers: Floats, servers: Floats) -> ObservationRows:
    """Return what determines the speed of each job: its own tasks and its neighbours' tasks."""
    tasks, talking = on_servers(kind, kinds, workers, servers)
    here = workers + servers
    at, job, node = np.nonzero(here)
    own_kind = kind[at, job]
    own_workers, own_servers = workers[at, job, node], servers[at, job, node]
    nodes = (here > 0).sum(-1)[at, job]
    neighbours = tasks[at, node].copy()
    rows = np.arange(len(at))
    neighbours[rows, 0, own_kind] -= own_workers
    neighbours[rows, 1, own_kind] -= own_servers
    others = talking[at, node].copy()
    others[rows, own_kind] -= np.where(nodes > 1, own_workers + own_servers, 0.0)
    all_workers, all_servers = workers.sum(-1)[at, job], servers.sum(-1)[at, job]
    own = np.stack([own_workers, own_servers, all_workers, all_servers, nodes, nodes > 1], axis=1)
    inputs = np.concatenate(
        [
            np.eye(kinds + 1)[own_kind],
            own / TASKS,
            neighbours.reshape(len(at), 2 * (kinds + 1)) / TASKS,
            others / TASKS,
        ],
        axis=1,
    )
    return ObservationRows(inputs.astype(np.float32), at * kind.shape[1] + job)
