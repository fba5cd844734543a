"""What tests of placements begin with: clusters with some devices taken, and the question."""

from __future__ import annotations

from builders import cluster, node
from rota.core.model.cluster import Cluster
from rota.core.model.job import Job, Level, Locality, Role
from rota.core.model.placement import Placement
from rota.core.state.inventory import Inventory
from rota.placement import style

ANY_DEVICE = (Role(),)


def inventory(of: Cluster, *taken: Placement) -> Inventory:
    """A cluster with some devices taken by jobs that need nothing else."""
    books = Inventory(of)
    for placement in taken:
        books.take(placement, ANY_DEVICE)
    return books


def nodes(*devices: int) -> Cluster:
    return cluster(*(node(f"n{i}", count) for i, count in enumerate(devices, start=1)))


def place(
    books: Inventory, asked: Job, placement: str = "consolidate", insist: Locality | None = None
) -> Placement | None:
    return style(placement).find(books, asked, insist)


HARD = Locality(hard=True)


def within(level: Level) -> Locality:
    return Locality(level=level, hard=True)
