"""Reads when nodes fail and come back: a CSV file with the header `time_s,node,event`."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rota.core.errors import RotaError, did_you_mean
from rota.core.model.cluster import Cluster
from rota.core.model.job import NodeId
from rota.files.document import read_text

HEADER = ("time_s", "node", "event")
_EVENTS = {"down": False, "up": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A node goes down, or comes back up, at this moment."""

    at_s: float
    node: NodeId
    up: bool


def read_faults(path: Path | str, *clusters: Cluster) -> tuple[Fault, ...]:
    """The file's faults in order of time, ties in file order; one of the clusters given must have the nodes named."""
    path = Path(path)
    known = frozenset(node.id for cluster in clusters for node in cluster.nodes) or None
    faults: list[Fault] = []
    for line, row in _rows(path):
        try:
            faults.append(_fault(row, known))
        except RotaError as error:
            raise RotaError(f"{path}:{line}: {error}") from error
    return tuple(sorted(faults, key=lambda fault: fault.at_s))


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The rows below the header, each with the number of its line; empty lines are left out."""
    reader = csv.reader(read_text(path).splitlines(), strict=True)
    try:
        header = tuple(field.strip() for field in next(reader, []))
        if header != HEADER:
            raise RotaError(f"{path}:1: the header is {','.join(header)!r}; it must be {','.join(HEADER)!r}")
        for row in reader:
            if row:
                yield reader.line_num, [field.strip() for field in row]
    except csv.Error as error:
        raise RotaError(f"{path}:{reader.line_num}: not CSV: {error}") from error


def _fault(row: list[str], known: frozenset[NodeId] | None) -> Fault:
    if len(row) != len(HEADER):
        raise RotaError(f"{len(row)} fields; a line has {len(HEADER)}: {','.join(HEADER)}")
    time_s, node, event = row
    if event not in _EVENTS:
        raise RotaError(f"unknown event {event!r}; {did_you_mean(event, _EVENTS)}")
    if not node:
        raise RotaError("the node has no name; give it one")
    if known is not None and node not in known:
        raise RotaError(f"unknown node {node!r}; {_nearest(node, known)}")
    return Fault(at_s=_seconds(time_s), node=NodeId(node), up=_EVENTS[event])


def _seconds(text: str) -> float:
    try:
        at_s = float(text)
    except ValueError:
        at_s = math.nan
    if not 0 <= at_s < math.inf:
        raise RotaError(f"time_s is {text!r}; it must be a number of seconds, 0 or more")
    return at_s


def _nearest(node: str, known: frozenset[NodeId]) -> str:
    """The nearest name; a cluster has too many to list them all when there is none near."""
    hint = did_you_mean(node, known)
    return hint if hint.startswith("did") else f"the cluster's nodes are {min(known)!r} to {max(known)!r}"
