"""Tenancy: the allocator that a policy asks for devices. This module is the table of names."""

from __future__ import annotations

from collections.abc import Callable

from rota.core.engine.protocols import Allocator, Placer
from rota.core.errors import RotaError, did_you_mean
from rota.core.model.cluster import Cluster
from rota.tenancy.cells.allocator import CellAllocator
from rota.tenancy.open import OpenAllocator
from rota.tenancy.quota.allocator import QuotaAllocator

TENANCIES: dict[str, Callable[[Placer, Cluster | None], Allocator]] = {
    "none": lambda placer, cluster: OpenAllocator(placer),
    "quota": QuotaAllocator,
    "cells": CellAllocator,
}


def allocator(name: str, placer: Placer, cluster: Cluster | None = None) -> Allocator:
    """The allocator of a tenancy on a cluster, with a placement inside it."""
    refuse_unknown(name)
    return TENANCIES[name](placer, cluster)


def refuse_unknown(name: str) -> None:
    """Refuse a tenancy that there is not."""
    if name not in TENANCIES:
        raise RotaError(f"unknown tenancy {name!r}; {did_you_mean(name, TENANCIES)}")
