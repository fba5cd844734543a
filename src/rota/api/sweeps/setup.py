"""Sweeps as a part of a manager: made before the loop runs, and kept going beside it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from rota.api.service import Service, SweepParts
from rota.live.sweeps.keeper import SweepKeeper
from rota.live.sweeps.views import SweepViews


def with_sweeps(service: Service) -> Service:
    """Return the services with sweeps; those of the database are taken up."""
    keeper = SweepKeeper(service.control, service.records, service.requests, service.home)
    keeper.take_up()
    return replace(
        service, sweeps=SweepParts(keeper=keeper, views=SweepViews(service.control, service.records, keeper))
    )


def sweep_upkeep(service: Service) -> list[Callable[[], Coroutine[Any, Any, None]]]:
    """Return what runs as long as the manager does."""
    return [] if service.sweeps is None else [service.sweeps.keeper.run]
